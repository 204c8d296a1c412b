//! What a program finds around it, and what reaches the caller of what it does.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use palyra_sandbox::{Ended, Layer, RunInput, Streams, run_constrained_process};

use crate::lab::{self, Lab, absolute, is_root, text};

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_failing_program_keeps_its_code_and_both_streams() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.shell("echo good; echo bad >&2; exit 42")).await;
    assert_eq!(outcome.ended, Ended::Exited(42));
    assert_eq!((text(&outcome.stdout.bytes), text(&outcome.stderr.bytes)), ("good\n", "bad\n"));
    assert_eq!((outcome.stdout.total, outcome.stdout.truncated()), (5, false));
}

#[tokio::test]
async fn a_signal_of_its_own_is_reported_as_such() {
    let lab = Lab::new();
    assert_eq!(lab.run(&lab.shell("kill -SEGV $$")).await.ended, Ended::Signalled(11));
    assert_eq!(lab.run(&lab.shell("kill -TERM $$")).await.ended, Ended::Signalled(15));
}

#[tokio::test]
async fn standard_input_arrives_byte_for_byte_and_ends() {
    let lab = Lab::new();
    let stdin: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let input = RunInput { streams: Streams::Captured { stdin: Some(stdin.clone()) }, ..RunInput::default() };
    let outcome = run_constrained_process(&lab.runner, &lab.plan("/bin/cat", &[]), input, drop).await.unwrap();
    assert_eq!(outcome.ended, Ended::Exited(0));
    assert!(outcome.stdout.bytes == stdin);
}

#[tokio::test]
async fn without_standard_input_it_is_at_its_end() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.plan("/bin/cat", &[])).await;
    assert_eq!((outcome.ended, outcome.stdout.total), (Ended::Exited(0), 0));
}

#[tokio::test]
async fn the_environment_is_exactly_the_plans() {
    let lab = Lab::new();
    let mut plan = lab.plan("/usr/bin/env", &[]);
    plan.env = BTreeMap::from([("A".to_owned(), "1 2\n3".to_owned()), ("B".to_owned(), String::new())]);
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "A=1 2\n3\nB=\n");
}

#[tokio::test]
async fn arguments_and_name_are_exactly_the_plans() {
    let lab = Lab::new();
    let plan = lab.plan("/usr/bin/printf", &["<%s>", "a b", "", "$HOME", "*", "ü"]);
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "<a b><><$HOME><*><ü>");
    let mut plan = lab.plan("/bin/sh", &["-c", "tr '\\0' ' ' </proc/$$/cmdline"]);
    plan.argv0 = Some("another-name".to_owned());
    assert!(text(&lab.run(&plan).await.stdout.bytes).starts_with("another-name -c "));
}

#[tokio::test]
async fn no_descriptor_but_the_standard_ones_is_open() {
    let lab = Lab::new();
    let _open_here = fs::File::open("/dev/null").unwrap();
    let outcome = lab.run(&lab.plan("/bin/ls", &["/proc/self/fd"])).await;
    // The fourth is the one with which `ls` reads the directory.
    assert_eq!(text(&outcome.stdout.bytes), "0\n1\n2\n3\n");
}

#[tokio::test]
async fn the_limits_hold_and_can_be_seen() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.shell("cat /proc/self/limits; cat /proc/self/stat; echo $$")).await;
    let shown = text(&outcome.stdout.bytes);
    for line in [
        "Max core file size 1 1 bytes",
        "Max cpu time 300 301 seconds",
        "Max file size 4294967296 4294967296 bytes",
        "Max open files 4096 4096 files",
        "Max address space 68719476736 68719476736 bytes",
    ] {
        let squeezed = |shown: &str| shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.lines().any(|shown| squeezed(shown) == line), "{line} is not in {shown}");
    }
}

#[tokio::test]
async fn the_program_leads_a_session_of_its_own_without_a_terminal() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.shell("cat /proc/$$/stat")).await;
    let stat = text(&outcome.stdout.bytes);
    let pid = stat.split_once(' ').unwrap().0;
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!((fields[2], fields[3], fields[4]), (pid, pid, "0"), "group, session, terminal");
}

#[tokio::test]
async fn no_privileges_are_gained_and_no_signal_is_ignored_or_blocked() {
    let lab = Lab::new();
    let outcome = lab.run(&lab.plan("/bin/cat", &["/proc/self/status"])).await;
    let status = text(&outcome.stdout.bytes);
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    assert!(status.contains("SigBlk:\t0000000000000000\n"), "{status}");
    assert!(status.contains("SigIgn:\t0000000000000000\n"), "{status}");
}

#[tokio::test]
async fn the_layers_are_those_of_this_kernel_and_user() {
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/true", &[]);
    plan.hidden = vec![absolute(&lab.outside().join("hidden"))];
    let names: Vec<_> = lab.run(&plan).await.layers.iter().map(ToString::to_string).collect();
    let mut expected = vec!["rlimits", "session", "closed_fds", "cleared_environment", "no_new_privs"];
    expected.push("tree_kill_subreaper");
    for layer in expected {
        assert!(names.iter().any(|name| name == layer), "{layer} is not in {names:?}");
    }
    assert_eq!(names.iter().any(|name| name == "rlimit_nproc"), !is_root(), "the kernel holds root to no such limit");
    assert_eq!(names, lab.runner.layers().iter().map(ToString::to_string).collect::<Vec<_>>());
    let without = lab.run(&lab.plan("/bin/true", &[])).await.layers;
    assert!(!without.iter().any(|layer| matches!(layer, Layer::HiddenPaths { .. })), "nothing was hidden");
}

#[tokio::test]
async fn a_file_that_grows_too_long_stops_its_writer() {
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/dd", &["if=/dev/zero", "of=long", "bs=4096", "count=1000"]);
    plan.limits.file_size = 100_000;
    assert_eq!(lab.run(&plan).await.ended, Ended::Signalled(25), "SIGXFSZ");
    assert_eq!(fs::metadata(lab.workspace().join("long")).unwrap().len(), 100_000);
}

#[tokio::test]
async fn processor_time_is_limited_and_measured() {
    let lab = Lab::new();
    let mut plan = lab.shell("while :; do :; done");
    plan.limits.cpu_seconds = 1;
    let outcome = lab.run(&plan).await;
    assert_eq!(outcome.ended, Ended::Signalled(24), "SIGXCPU");
    let used = outcome.usage.user + outcome.usage.system;
    assert!((Duration::from_millis(800)..Duration::from_secs(3)).contains(&used), "{used:?}");
    assert!(outcome.usage.wall >= Duration::from_millis(800) && outcome.usage.max_rss_kb > 100, "{:?}", outcome.usage);
}

#[tokio::test]
async fn address_space_is_limited() {
    let lab = Lab::new();
    let mut plan = lab.perl("my $x = 'x' x (1 << 28); print length $x");
    assert_eq!(text(&lab.run(&plan).await.stdout.bytes), "268435456");
    plan.limits.address_space = 128 << 20;
    let outcome = lab.run(&plan).await;
    assert_ne!(outcome.ended, Ended::Exited(0));
    assert_eq!(outcome.stdout.total, 0);
}

#[tokio::test]
async fn many_runs_at_once_do_not_mix_and_leave_no_zombie() {
    let lab = std::sync::Arc::new(Lab::new());
    let runs = (0..40).map(|number| {
        let lab = lab.clone();
        tokio::spawn(async move { (number, lab.run(&lab.shell(&format!("echo {number}; exit {number}"))).await) })
    });
    for run in runs.collect::<Vec<_>>() {
        let (number, outcome) = run.await.unwrap();
        assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(number), &*format!("{number}\n")));
    }
    // Those of other tests come and go; one that nobody collects stays.
    let began = Instant::now();
    while !zombies_of_this_test("palyra-init").is_empty() {
        let left = zombies_of_this_test("palyra-init");
        assert!(began.elapsed() < Duration::from_secs(10), "inits that nobody collected: {left:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Zombies of this process with this name.
fn zombies_of_this_test(name: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&format!("({name}) Z {own} "))).collect()
}
