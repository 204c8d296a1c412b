//! Tier C: what a program finds inside an enclosure, what it does not, and what is left of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and looks at the machine with its own programs"
)]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    time::{Duration, Instant},
};

use palyra_sandbox::{
    Containment, EgressPlan, Ended, Layer, Namespace, Outcome, ProcessPlan, Reason, RunInput,
    SandboxProcessRunErrorKind as Kind, UnixSockets, run_constrained_process,
};
use palyra_types::sandbox::EgressEnforcementMode;

use crate::lab::{self, Lab, text};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

async fn enclosed(lab: &Lab, script: &str) -> Outcome {
    lab.run(&lab.enclose(lab.shell(script))).await
}

/// What a script printed that ended well.
async fn printed(lab: &Lab, script: &str) -> String {
    let outcome = enclosed(lab, script).await;
    assert_eq!(outcome.ended, Ended::Exited(0), "{script}: {}", text(&outcome.stderr.bytes));
    text(&outcome.stdout.bytes).to_owned()
}

#[tokio::test]
async fn the_workspace_is_at_its_own_path_and_what_is_made_there_belongs_to_its_owner() {
    let lab = Lab::enclosed();
    lab.file("note", "hello\n");
    let said =
        printed(&lab, "cat note; echo made > made; mkdir -p a/b; ln made linked; ln -s made soft; pwd; id -u").await;
    assert_eq!(said, format!("hello\n{}\n1000\n", lab.workspace().display()));
    let owner = fs::metadata(lab.workspace()).unwrap();
    for made in ["made", "a", "a/b", "linked"] {
        let status = fs::symlink_metadata(lab.workspace().join(made)).unwrap();
        assert_eq!((status.uid(), status.gid()), (owner.uid(), owner.gid()), "{made}");
    }
}

#[tokio::test]
async fn the_machine_is_not_there() {
    let lab = Lab::enclosed();
    fs::write(lab.outside().join("secret"), "nobody's business").unwrap();
    let said = printed(&lab, "ls -A /; echo; ls -A /dev; echo; ls -A /tmp").await;
    let parts: Vec<&str> = said.split("\n\n").collect();
    let top: Vec<&str> = parts[0].lines().filter(|name| !name.starts_with("lib")).collect();
    assert_eq!(top, ["bin", "dev", "etc", "proc", "sbin", "tmp", "usr", "var"]);
    let devices =
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"];
    assert_eq!(parts[1].lines().collect::<Vec<_>>(), devices);
    for gone in ["/sys", "/run", "/root", "/home", "/boot", "/etc/shadow", "/etc/ssh", "/var/log"] {
        assert_eq!(printed(&lab, &format!("test -e {gone} && echo there || echo none")).await, "none\n", "{gone}");
    }
    let outside = lab.outside().join("secret");
    assert_eq!(printed(&lab, &format!("cat {} 2>&1 || true", outside.display())).await.lines().count(), 1);
    assert!(!printed(&lab, &format!("cat {} 2>&1 || true", outside.display())).await.contains("business"));
}

#[tokio::test]
async fn nothing_but_the_workspace_and_temporary_files_can_be_written() {
    let lab = Lab::enclosed();
    for path in ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/x", "/var/x", "/etc/passwd", "/usr/bin/true"] {
        let outcome = enclosed(&lab, &format!("echo no > {path}")).await;
        assert_ne!(outcome.ended, Ended::Exited(0), "{path}");
    }
    assert_eq!(
        printed(
            &lab,
            "echo yes > /tmp/x; cat /tmp/x; echo yes > /dev/shm/x; cat /dev/shm/x; touch $HOME/.x; echo x > /dev/null"
        )
        .await,
        "yes\nyes\n"
    );
}

#[tokio::test]
async fn programs_that_developers_use_work() {
    let lab = Lab::enclosed();
    let scripts = [
        "git -c init.defaultBranch=main init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l",
        "/usr/bin/python3 -c 'import multiprocessing as m, threading; p = m.Pool(2); print(sum(p.map(abs, [-1, 2])))'",
        "/usr/bin/perl -e 'print 1 + 2, \"\\n\"'",
        "printf 'int main(void){return 0;}' > a.c && cc a.c -o a.out && ./a.out && echo 3",
        "/usr/bin/python3 -c 'import pty, os; m, s = pty.openpty(); print(os.ttyname(s).startswith(\"/dev/pts\"))'",
        "echo 3 > /dev/stdout; bash -c 'cat <(echo 3)'",
        "node -e 'require(\"child_process\").execSync(\"true\"); console.log(3)'",
    ];
    for script in scripts {
        let plan = lab.enclose(ProcessPlan {
            env: [("PATH", lab::SEARCH_PATH), ("HOME", "/tmp/home")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..lab.shell(script)
        });
        let outcome = lab.run(&plan).await;
        let (out, err) = (text(&outcome.stdout.bytes), text(&outcome.stderr.bytes));
        assert_eq!(outcome.ended, Ended::Exited(0), "{script}: {err} {:?}", outcome.reasons);
        assert!(["1", "3", "True", "3\n3"].contains(&out.trim()), "{script}: {out}");
    }
}

#[tokio::test]
async fn the_layers_are_those_that_hold() {
    let lab = Lab::enclosed();
    let outcome = enclosed(&lab, "true").await;
    for kind in Namespace::ALL {
        assert!(outcome.layers.contains(&Layer::Namespace(*kind)), "{kind}");
    }
    for wanted in [
        Layer::NoCapabilities,
        Layer::NoNewPrivs,
        Layer::Rlimits,
        Layer::ClosedFds,
        Layer::NamespaceKill,
        Layer::ProcessLimit,
    ] {
        assert!(outcome.layers.contains(&wanted), "{wanted}: {:?}", outcome.layers);
    }
    assert!(outcome.layers.iter().any(|layer| matches!(layer, Layer::CallFilter { .. })));
    assert!(outcome.layers.iter().any(|layer| matches!(layer, Layer::ListedPaths { .. })));
    assert_eq!(outcome.layers.contains(&Layer::OwnUser), rustix::process::geteuid().is_root());
    let status = printed(&lab, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").await;
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap();
        let expected = match name {
            "NoNewPrivs" => "1",
            "Seccomp" => "2",
            _ => "0000000000000000",
        };
        assert_eq!(value, expected, "{name}");
    }
    let map = printed(&lab, "cat /proc/self/uid_map").await;
    assert_ne!(map.split_ascii_whitespace().nth(1), Some("0"), "it is root outside");
}

#[tokio::test]
async fn the_machines_network_is_used_only_where_the_plan_says_so() {
    let lab = Lab::enclosed();
    let own = printed(&lab, "cat /proc/net/dev | wc -l").await;
    assert_eq!(own, "3\n", "two lines of headings, and the loopback device");
    let machine = fs::read_to_string("/proc/net/dev").unwrap().lines().count();
    let mut plan = lab.enclose(lab.shell("cat /proc/net/dev | wc -l"));
    plan.egress = EgressPlan { mode: EgressEnforcementMode::None, hosts: Vec::new() };
    let outcome = lab.run(&plan).await;
    assert_eq!(text(&outcome.stdout.bytes), format!("{machine}\n"));
    assert!(!outcome.layers.contains(&Layer::Namespace(Namespace::Network)));
}

#[tokio::test]
async fn no_file_that_runs_as_its_owner_is_left() {
    let lab = Lab::enclosed();
    let attempts = "touch f; chmod 4755 f; chmod u+s f; chmod g+s f; install -m 4755 /bin/true g; cp /bin/true h; chmod 6755 h; \
                    /usr/bin/python3 -c 'import os; os.open(\"i\", os.O_CREAT | os.O_WRONLY, 0o4755)'; \
                    /usr/bin/python3 -c 'import os; os.mknod(\"j\", 0o104755)'; true";
    let outcome = enclosed(&lab, attempts).await;
    assert_eq!(outcome.ended, Ended::Exited(0));
    for entry in fs::read_dir(lab.workspace()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{}: {mode:o}", entry.path().display());
    }
    let refused = outcome.reasons.iter().find_map(|reason| match reason {
        Reason::SystemCalls { calls, times } => Some((calls.clone(), *times)),
        _ => None,
    });
    let (calls, times) = refused.unwrap();
    assert!(calls.contains(&"fchmodat".to_owned()) && times >= 5, "{calls:?} {times}");
}

#[tokio::test]
async fn what_the_sandbox_refused_or_ended_is_told_by_name() {
    let lab = Lab::enclosed();
    let outcome = enclosed(&lab, "unshare -U true; unshare -n true; exit 3").await;
    assert_eq!(outcome.ended, Ended::Exited(3));
    assert_eq!(outcome.reasons, [Reason::SystemCalls { calls: vec!["unshare".to_owned()], times: 2 }]);
    assert_eq!(outcome.reasons[0].to_string(), "the sandbox refused 2 system calls: unshare");
    let mut plan = lab.enclose(lab.perl("while (1) {}"));
    plan.limits.cpu_seconds = 1;
    let outcome = lab.run(&plan).await;
    assert_eq!(outcome.reasons, [Reason::ProcessorTime { limit: 1 }]);
    let mut plan = lab.enclose(lab.perl("open F, '>', 'f'; $SIG{XFSZ} = 'DEFAULT'; syswrite F, 'x' x 9000"));
    plan.limits.file_size = 4096;
    assert_eq!(lab.run(&plan).await.ended, Ended::Exited(0), "what fits is written");
}

#[tokio::test]
async fn a_tree_that_uses_too_much_memory_is_ended_where_a_cgroup_bounds_it() {
    let lab = Lab::enclosed();
    let mut plan = lab.enclose(lab.perl("$x = 'x' x (200 << 20); sleep 1"));
    plan.limits.memory = 64 << 20;
    let outcome = lab.run(&plan).await;
    let bounded = outcome.layers.iter().any(|layer| layer.to_string() == "cgroup_memory");
    assert_eq!(
        bounded,
        lab.runner.tier_c().unwrap().backend().cgroups().controllers().iter().any(|one| one.name() == "memory")
    );
    if bounded {
        assert_eq!(outcome.ended, Ended::Signalled(9));
        assert_eq!(outcome.reasons, [Reason::Memory { limit: 64 << 20, processes: 1 }]);
    } else {
        assert_eq!(outcome.ended, Ended::Exited(0));
    }
}

#[tokio::test]
async fn more_processes_than_allowed_cannot_be_started() {
    let lab = Lab::enclosed();
    let mut plan = lab.enclose(lab.shell("for i in $(seq 40); do sleep 2 & done; wait"));
    plan.limits.processes = 16;
    let began = Instant::now();
    let outcome = lab.run(&plan).await;
    assert_ne!(outcome.ended, Ended::Exited(0));
    assert!(text(&outcome.stderr.bytes).contains("fork"), "{}", text(&outcome.stderr.bytes));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn temporary_files_are_bounded() {
    let lab = Lab::enclosed();
    let mut plan = lab.enclose(lab.shell("head -c 32M /dev/zero > /tmp/x; ls -l /tmp/x | cut -d' ' -f5"));
    if let Containment::Enclosure(enclosure) = &mut plan.containment {
        enclosure.temporary_bytes = 8 << 20;
    }
    let outcome = lab.run(&plan).await;
    assert_eq!(text(&outcome.stdout.bytes), format!("{}\n", 8 << 20));
    assert!(text(&outcome.stderr.bytes).contains("No space left"));
}

#[tokio::test]
async fn unix_sockets_are_refused_unless_the_plan_allows_them() {
    let lab = Lab::enclosed();
    let listener = std::os::unix::net::UnixListener::bind(lab.workspace().join("socket")).unwrap();
    fs::set_permissions(lab.workspace().join("socket"), fs::Permissions::from_mode(0o777)).unwrap();
    let connect = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('socket'); print('connected')";
    let mut plan = lab.enclose(lab.plan("/usr/bin/python3", &["-c", connect]));
    let outcome = lab.run(&plan).await;
    assert!(text(&outcome.stderr.bytes).contains("Address family not supported"), "{outcome:?}");
    let pair = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    let outcome = lab.run(&lab.enclose(lab.plan("/usr/bin/python3", &["-c", pair]))).await;
    assert_eq!(text(&outcome.stdout.bytes), "b'x'\n");
    if let Containment::Enclosure(enclosure) = &mut plan.containment {
        enclosure.unix_sockets = UnixSockets::Allow;
    }
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "connected\n");
    drop(listener);
}

#[tokio::test]
async fn what_lies_elsewhere_can_be_read_where_the_plan_lists_it_and_what_is_hidden_cannot() {
    let lab = Lab::enclosed();
    let tools = lab.outside().join("tools");
    fs::create_dir_all(tools.join("state")).unwrap();
    fs::write(tools.join("tool"), "#!/bin/sh\necho tool\n").unwrap();
    fs::write(tools.join("state/key"), "secret\n").unwrap();
    fs::set_permissions(tools.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = tools.join("tool").to_str().unwrap().to_owned();
    let mut plan = lab.enclose(lab.plan(&program, &[]));
    let refused = lab.try_run(&plan).await.unwrap_err();
    assert_eq!(refused.kind, Kind::OutsideEnclosure);
    let list = |plan: &mut ProcessPlan| {
        if let Containment::Enclosure(enclosure) = &mut plan.containment {
            enclosure.read_only = vec![lab::absolute(&tools)];
        }
        plan.hidden = vec![lab::absolute(&tools.join("state"))];
    };
    list(&mut plan);
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "tool\n");
    let script = format!("cat {0}/state/key; ls {0}/state; echo x > {0}/x; cat {0}/tool", tools.display());
    let mut plan = lab.enclose(lab.shell(&script));
    list(&mut plan);
    let outcome = lab.run(&plan).await;
    assert_eq!(text(&outcome.stdout.bytes), "#!/bin/sh\necho tool\n", "{}", text(&outcome.stderr.bytes));
}

#[tokio::test]
async fn a_workspace_or_directory_that_is_another_by_now_is_not_used() {
    let lab = Lab::enclosed();
    fs::create_dir(lab.workspace().join("inner")).unwrap();
    let mut plan = lab.enclose(lab.shell("pwd"));
    plan.cwd = lab::absolute(&lab.workspace().join("inner"));
    let prepared = lab.runner.prepare(&plan, RunInput::default()).await.unwrap();
    drop(prepared);
    // A link in its place leads nowhere.
    fs::remove_dir(lab.workspace().join("inner")).unwrap();
    symlink("/usr", lab.workspace().join("inner")).unwrap();
    assert_eq!(lab.try_run(&plan).await.unwrap_err().kind, Kind::OutsideWorkspace);
}

#[tokio::test]
async fn links_of_the_workspace_with_the_names_of_bubblewraps_own_directories_lead_nowhere() {
    let lab = Lab::enclosed();
    for name in ["oldroot", "newroot", "tmp", "etc", "proc"] {
        symlink("/", lab.workspace().join(name)).unwrap();
    }
    symlink("/oldroot", lab.workspace().join("old")).unwrap();
    assert_eq!(printed(&lab, "ls -A old/ oldroot/root/ 2>/dev/null | wc -l; ls oldroot | head -1").await, "0\nbin\n");
}

#[tokio::test]
async fn an_enclosure_that_waits_serves_the_next_call_and_only_that() {
    let lab = Lab::enclosed();
    let tier_c = lab.runner.tier_c().unwrap();
    let script = "ls -A /tmp /dev/shm | tr '\\n' ' '; cat /proc/[0-9]*/comm | grep -c sleep; touch /tmp/left /dev/shm/left; sleep 300 & true";
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(printed(&lab, script).await);
        let began = Instant::now();
        while tier_c.waiting() < 2 {
            assert!(began.elapsed() < Duration::from_secs(10), "none waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "one call saw something of another: {seen:?}");
    assert!(tier_c.waiting() <= 4);
    tier_c.clear();
    assert_eq!(tier_c.waiting(), 0);
}

#[tokio::test]
async fn another_principal_gets_another_enclosure() {
    let lab = Lab::enclosed();
    let plan = lab.enclose(lab.shell("true"));
    let run = async |principal: &str| {
        let input = RunInput { principal: principal.to_owned(), ..RunInput::default() };
        run_constrained_process(&lab.runner, &plan, input, drop).await.unwrap()
    };
    run("agent:one").await;
    let tier_c = lab.runner.tier_c().unwrap();
    while tier_c.waiting() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run("agent:two").await;
    assert!(tier_c.waiting() >= 2, "what waits for one was used by another");
}

#[tokio::test]
async fn nothing_is_left_when_bubblewrap_is_killed() {
    let lab = Lab::enclosed();
    let plan = lab.enclose(lab.shell("setsid sleep 300 & sleep 300 & echo up; sleep 300"));
    let mut running = lab.start(&plan).await;
    assert!(running.next_output().await.is_some());
    let bubblewraps = lab::children_above(&lab.processes());
    assert!(!bubblewraps.is_empty());
    for pid in bubblewraps {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let outcome = running.outcome().await;
    assert!(matches!(outcome.ended, Ended::SupervisorLost), "{outcome:?}");
    lab.quiet().await;
}

#[tokio::test]
async fn without_bubblewrap_there_is_no_tier_c_and_nothing_runs_in_a_weaker_one() {
    let lab = Lab::new();
    let mut options = lab.tier_c_options();
    options.linux.bubblewrap = Some("/no/such/bwrap".into());
    let runner = palyra_sandbox::SandboxProcessRunner::new([]).unwrap().with_tier_c(&options);
    assert_eq!(runner.tier_c().unwrap_err().detail, "bubblewrap is not installed");
    let refused = runner.start(&lab.enclose(lab.shell("true")), RunInput::default()).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Unavailable);
    // One that builds nothing is found out before anything runs.
    options.linux.bubblewrap = Some("/bin/true".into());
    let runner = palyra_sandbox::SandboxProcessRunner::new([]).unwrap().with_tier_c(&options);
    assert_eq!(runner.tier_c().unwrap_err().kind, Kind::Unavailable);
}
