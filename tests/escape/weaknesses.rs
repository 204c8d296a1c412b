//! What each defence is for: with it switched off, attacks succeed that are refused otherwise, and nothing else gives way.
//!
//! Only attacks are tried whose success harms nobody.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use palyra_tests::daemon::program;

use crate::escape::{
    attempt,
    bench::{Bench, Identity, plan},
    cases, host,
};

const BOTH: [Identity; 2] = [Identity::Root, Identity::Ordinary];

fn without(identity: Identity, defences: &str) -> Option<Bench> {
    Bench::with(identity, plan().variable("PALYRA_WEAKEN", defences))
}

/// These succeed, and these are still refused.
async fn expect(bench: &Bench, succeed: &[&str], refused: &[&str]) {
    for name in succeed {
        let told = attempt(bench, cases::named(name)).await.told();
        println!("{:?} {name}: {told}", bench.identity);
        assert!(told.starts_with("SUCCEEDED"), "{:?} {name}: {told}", bench.identity);
        bench.clean();
    }
    for name in refused {
        let told = attempt(bench, cases::named(name)).await.told();
        println!("{:?} {name}: {told}", bench.identity);
        assert!(told.starts_with("REFUSED"), "{:?} {name}: {told}", bench.identity);
        bench.clean();
    }
}

/// What is attested is what holds: each of these layers while nothing is switched off, and not where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_defence_that_is_switched_off_is_not_attested() {
    let layers = [
        ("seccomp", "seccomp_filter:"),
        ("landlock", "landlock"),
        ("user", "own_user"),
        ("close_range", "closed_fds"),
        ("network", "network_namespace"),
        ("capabilities", "no_capabilities"),
        ("limits", "rlimit"),
    ];
    let whole = attested(&Bench::new(Identity::Root)).await;
    println!("{whole:?}");
    for (defence, layer) in layers {
        let weakened = attested(&without(Identity::Root, defence)).await;
        let is_listed = |list: &[String]| list.iter().any(|one| one.starts_with(layer));
        assert!(whole.is_empty() || is_listed(&whole), "{layer} is not attested: {whole:?}");
        assert!(!is_listed(&weakened), "{layer} is attested without {defence}: {weakened:?}");
    }
}

/// The layers that a call is attested with.
async fn attested(bench: &Option<Bench>) -> Vec<String> {
    let Some(bench) = bench else { return Vec::new() };
    let ran = bench.attack(&["descriptors"]).await;
    let layers = ran.call.receipt.unwrap().attestation["sandbox_enforcement"].clone();
    serde_json::from_value(layers).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_filters_of_calls_these_attacks_succeed() {
    for identity in BOTH {
        let Some(bench) = without(identity, "seccomp") else { continue };
        let succeed = [
            "unshare-user",
            "a user namespace by clone",
            "a Unix socket",
            "a Unix socket of the machine in the workspace",
            "a message from one of a pair",
            "a socket to the hypervisor",
            "keyctl",
            "ptrace-traceme",
            "tracing a sibling",
            "process-vm-readv",
            "personality",
            "modify-ldt",
            "a 32-bit program",
            "a key on its own terminal",
            "set-id by chmod",
            "set-id by fchmodat2",
            "set-id by openat",
            "set-id by O_TMPFILE",
            "set-id by mknod",
        ];
        expect(&bench, &succeed, &["mount", "setuid-root", "its own name", "a public address"]).await;
        assert!(bench.was_reached());
        let told = attempt(&bench, cases::named("a call of the 32-bit interface")).await.told();
        assert_eq!(told, "SUCCEEDED a call of the old interface");
        // And the file on the machine is what the filters are there to prevent.
        bench.attack(&["set-id", "chmod"]).await;
        let made = bench.lab.workspace().join("plain");
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o7777, 0o4755);
        assert!(!host::wrong_files(bench.lab.workspace()).is_empty());
        bench.clean();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_landlock_these_attacks_succeed() {
    for identity in BOTH {
        let Some(bench) = without(identity, "landlock") else { continue };
        let succeed = ["its own name", "its own memory as a file", "a device of one's own"];
        expect(&bench, &succeed, &["unshare-user", "what the kernel runs at a crash", "set-id by chmod"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_user_of_its_own_an_enclosure_is_root_outside_and_only_landlock_is_left() {
    let Some(bench) = Bench::new(Identity::Root) else { return };
    let outside = |ran: crate::escape::bench::Ran| ran.line.split_ascii_whitespace().nth(1).map(str::to_owned);
    assert_ne!(outside(bench.shell("cat /proc/self/uid_map").await).as_deref(), Some("0"));
    drop(bench);
    let bench = without(Identity::Root, "user").unwrap();
    assert_eq!(outside(bench.shell("cat /proc/self/uid_map").await).as_deref(), Some("0"));
    expect(&bench, &[], &["what the kernel runs at a crash", "the name of the machine"]).await;
    drop(bench);
    // Nothing is written to it.
    let bench = without(Identity::Root, "user,landlock").unwrap();
    let before = bench.host();
    expect(&bench, &["what the kernel runs at a crash"], &["mount", "set-id by chmod"]).await;
    assert_eq!(bench.host().changes(&before), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_closing_descriptors_more_than_three_are_open() {
    for identity in BOTH {
        let Some(bench) = without(identity, "close_range") else { continue };
        expect(&bench, &["descriptors that leaked"], &["unshare-user"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_network_of_its_own_services_of_the_machine_are_reached() {
    for identity in BOTH {
        let Some(bench) = without(identity, "network") else { continue };
        let succeed = ["a service of the machine", "the daemon's local listener", "the daemon's control listener"];
        expect(&bench, &succeed, &["a Unix socket", "packets", "a raw socket"]).await;
        assert!(bench.was_reached());
    }
}

/// The operator may choose so, and is told what it means where it is configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_unix_sockets_allowed_those_in_the_workspace_are_reached_and_others_are_not() {
    for identity in BOTH {
        let sockets = "temporary_bytes = 16777216\nunix_sockets = \"allow\"";
        let plan = palyra_tests::daemon::DaemonPlan::default()
            .config("[policy]\npreset = \"none\"\nallow_sensitive_tools = true")
            .config(&format!("[sandbox]\n{sockets}"))
            .policies("lab.cedar", "@id(\"all\") permit (principal, action, resource);");
        let Some(bench) = Bench::with(identity, plan) else { continue };
        expect(&bench, &["a Unix socket of the machine in the workspace", "a message from one of a pair"], &[]).await;
        assert!(bench.was_reached());
        expect(
            &bench,
            &[],
            &["a Unix socket without a file", "a socket to the hypervisor", "a pair of another family"],
        )
        .await;
    }
}

#[test]
fn what_is_shipped_has_no_switches() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shipped");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--release", "--locked", "-p", "palyra-sandbox", "--target-dir"]).arg(&directory);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
        build.env_remove(flags);
    }
    // Switches are compiled in or not, whatever is optimised, and this way it takes less time.
    build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    assert!(build.status().unwrap().success());
    let libraries = host::walk(&directory.join("release/deps"));
    let is_library = |path: &&std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libpalyra_sandbox-"))
            && path.extension().is_some_and(|kind| kind == "rlib")
    };
    let libraries: Vec<_> = libraries.iter().filter(is_library).collect();
    assert!(!libraries.is_empty(), "nothing was built");
    for library in libraries {
        assert!(!names_switches(library), "{} can be weakened", library.display());
    }
    assert!(names_switches(&program("palyrad")), "the daemon of the tests cannot be weakened, so they show nothing");
}

fn names_switches(file: &Path) -> bool {
    let content = fs::read(file).unwrap();
    content.windows(VARIABLE.len()).any(|window| window == VARIABLE)
}

const VARIABLE: &[u8] = b"PALYRA_WEAKEN";
