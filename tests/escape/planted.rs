//! What an attack leaves in the workspace for the daemon to stumble over: pipes, links, directories that change while they are looked at.

use std::{
    fs,
    os::unix::fs::{MetadataExt, lchown},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use palyra_tests::daemon::{accepted, over, tool};
use palyra_types::WorkspaceName;
use serde_json::json;

use crate::escape::bench::{Bench, CANARY, Identity};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_planted_in_the_workspace_leads_no_tool_of_a_root_daemon_out() {
    planted_things_lead_nowhere(Identity::Root).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_planted_in_the_workspace_leads_no_tool_of_an_ordinary_user_out() {
    planted_things_lead_nowhere(Identity::Ordinary).await;
}

async fn planted_things_lead_nowhere(identity: Identity) {
    let Some(bench) = Bench::new(identity) else { return };
    let before = bench.host();
    assert_eq!(bench.attack(&["make-fifo", "pipe"]).await.line, "SUCCEEDED a pipe with a name");
    let attempts = [
        ("fs.read", json!({ "path": "pipe" })),
        ("fs.write", json!({ "path": "pipe", "content": "x" })),
        ("fs.write", json!({ "path": "pipe", "content": "x", "mode": "append" })),
        ("fs.read", json!({ "path": "stream.sock" })),
        ("fs.read", json!({ "path": "way-out/secret" })),
        ("fs.read", json!({ "path": "way-out/../outside/secret" })),
        ("fs.read", json!({ "path": "../outside/secret" })),
        ("fs.write", json!({ "path": "way-out/target", "content": "x" })),
        ("fs.write", json!({ "path": "way-out/new", "content": "x" })),
        ("fs.write", json!({ "path": "way-out", "content": "x" })),
        ("fs.list", json!({ "path": "way-out" })),
        ("fs.search", json!({ "pattern": "canary", "path": "way-out" })),
        ("process.run", json!({ "command": ["/bin/cat", "secret"], "cwd": "way-out", "tier": "c" })),
        ("process.run", json!({ "command": ["./way-out/attacks", "descriptors"], "tier": "c" })),
    ];
    for (name, args) in attempts {
        let answer = bench.tool(name, args.clone()).await;
        println!("{name} {args}: {answer:?}");
        assert!(answer.is_err(), "{name} {args} led to {answer:?}");
    }
    // Those that look at everything pass by what leads out.
    let found = bench.tool("fs.search", json!({ "pattern": "canary" })).await.unwrap();
    assert!(!found.contains(CANARY.trim()), "{found}");
    let listed = bench.tool("fs.list", json!({ "depth": 8 })).await.unwrap();
    assert!(!listed.contains("target"), "{listed}");
    assert_eq!(bench.host().changes(&before), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_becomes_a_link_while_it_is_looked_at_leads_nowhere() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::new(identity) else { continue };
        let before = bench.host();
        let (workspace, owner) = (bench.lab.workspace(), fs::metadata(bench.lab.workspace()).unwrap());
        for name in ["race", "race/secret", "race/target"] {
            let path = workspace.join(name);
            if name == "race" {
                fs::create_dir(&path).unwrap()
            } else {
                fs::write(&path, "inside\n").unwrap()
            }
            lchown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let argv = ["./attacks", "swap", "race", bench.outside.to_str().unwrap(), "4"].map(str::to_owned);
        let agent = bench.lab.agent();
        let racing = agent.propose(&accepted(bench.call(&argv)), None).await.unwrap();
        let (begun, mut tries, mut inside) = (Instant::now(), 0, 0);
        while begun.elapsed() < Duration::from_millis(3_500) {
            let read = bench.tool("fs.read", json!({ "path": "race/secret" })).await;
            let _ = bench.tool("fs.write", json!({ "path": "race/target", "content": "inside\n" })).await;
            let _ = bench.tool("fs.write", json!({ "path": "race/new", "content": "inside\n" })).await;
            let run = json!({ "command": ["/bin/cat", "secret"], "cwd": "race", "tier": "c" });
            let ran = bench.tool("process.run", run).await;
            for answer in [&read, &ran] {
                assert!(!format!("{answer:?}").contains(CANARY.trim()), "{answer:?}");
                inside += usize::from(format!("{answer:?}").contains("inside"));
            }
            tries += 1;
        }
        println!("{tries} tries, {inside} of them met the directory");
        assert!(tries > 10 && inside > 0, "{tries} tries, {inside} met the directory: too few to show anything");
        let raced = over(&agent, racing.id).await;
        assert!(format!("{:?}", raced.output).contains("DONE"), "{raced:?}");
        assert_eq!(bench.host().changes(&before), Vec::<String>::new());
    }
}

/// Whoever opens a file under a lease waits for its holder, unless told not to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_on_a_file_holds_up_no_tool_of_the_daemon() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::new(identity) else { continue };
        let argv = ["./attacks", "lease", "leased", "6"].map(str::to_owned);
        let agent = bench.lab.agent();
        let holding = agent.propose(&accepted(bench.call(&argv)), None).await.unwrap();
        let begun = Instant::now();
        while !fs::read_to_string("/proc/locks").unwrap().contains("LEASE") {
            assert!(begun.elapsed() < Duration::from_secs(5), "nothing was leased");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let begun = Instant::now();
        for (name, args) in [
            ("fs.read", json!({ "path": "leased" })),
            ("fs.search", json!({ "pattern": "leased" })),
            ("fs.write", json!({ "path": "leased", "content": "x", "mode": "append" })),
            ("process.run", json!({ "command": ["./leased"], "tier": "c" })),
            ("process.run", json!({ "command": ["/bin/sh", "leased"], "tier": "c", "timeout_seconds": 1 })),
        ] {
            let answer = bench.tool(name, args).await;
            println!("{identity:?} {name}: {answer:?} after {:?}", begun.elapsed());
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "the daemon waited for {:?}", begun.elapsed());
        agent.cancel(holding.id).await.unwrap();
        over(&agent, holding.id).await;
    }
}

/// Where the state directory lies in a workspace, there is an empty one in its place, and Landlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_inside_a_workspace_cannot_be_read_written_or_opened_to_others() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(mut bench) = Bench::new(identity) else { continue };
        let (before, host) = (modes(&bench), bench.host());
        for (attempt, refusal) in [
            ("./workspace/attacks open st''ate list", "REFUSED EACCES"),
            ("./workspace/attacks open st''ate/identity/device.json read", "REFUSED EACCES"),
            ("./workspace/attacks open st''ate/identity/device.json write", "REFUSED EACCES"),
            ("./workspace/attacks open st''ate/identity/new create", "REFUSED EACCES"),
            ("./workspace/attacks hard-link st''ate/identity/device.json", "REFUSED EXDEV | REFUSED EACCES"),
            ("chmod 755 st''ate 2>/dev/null || echo REFUSED", "REFUSED"),
            ("chmod 666 st''ate/identity/device.json 2>/dev/null || echo REFUSED", "REFUSED"),
            ("touch -d 2001-01-01 st''ate/config.toml 2>/dev/null || echo REFUSED", "REFUSED"),
            ("stat st''ate/identity/device.json 2>/dev/null || echo REFUSED", "REFUSED"),
            ("mv st''ate moved 2>/dev/null || echo REFUSED", "REFUSED"),
        ] {
            let line = above(&bench, attempt).await;
            println!("{identity:?} {attempt}: {line}");
            assert!(refusal.split(" | ").any(|refusal| line == refusal), "{attempt}: {line}");
        }
        assert_eq!(modes(&bench), before);
        assert_eq!(bench.host().changes(&host), Vec::<String>::new());
        // It was covered for the enclosure, and is where it was for everybody else.
        assert!(bench.lab.stop().success());
        bench.lab.start();
    }
}

/// What is mounted in an enclosure must not show outside. It would, where mounts of the machine are shared, as most of today's are: here they are
/// for this test alone.
#[test]
fn the_same_holds_where_mounts_of_the_machine_are_shared() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let share = "mount --make-rshared / && exec \"$0\" \"$@\"";
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private", "sh", "-c", share]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture"]);
    again.arg("escape::planted::a_state_directory_inside_a_workspace_cannot_be_read_written_or_opened_to_others");
    let said = again.output().unwrap();
    let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert!(said.status.success() && text.contains("1 passed"), "{text}");
}

/// The modes of what is in the state directory.
fn modes(bench: &Bench) -> Vec<(PathBuf, u32)> {
    let kept = ["", "config.toml", "identity", "identity/device.json", "journal", "policies"];
    kept.iter()
        .map(|name| bench.lab.home().join(name))
        .map(|path| (path.clone(), fs::metadata(path).unwrap().mode()))
        .collect()
}

/// Runs a line of the shell in the workspace that holds everything.
async fn above(bench: &Bench, line: &str) -> String {
    let workspace = Some(WorkspaceName::parse("above").unwrap());
    let call = tool("process.run", json!({ "command": ["/bin/sh", "-c", line], "tier": "c" }));
    let call = palyra_api::call::NewCall { workspace, ..call };
    let ran = bench.lab.agent().propose(&call, None).await.unwrap();
    match ran.output {
        Some(palyra_api::call::Output::Process { stdout, .. }) => stdout.data.trim().to_owned(),
        other => panic!("{other:?}"),
    }
}
