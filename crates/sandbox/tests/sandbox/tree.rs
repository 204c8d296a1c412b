//! Nothing outlives a call: not what daemonises, ignores, forks or holds on, and not when the daemon itself is killed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use palyra_sandbox::{Ended, Layer, RunInput, SandboxProcessRunErrorKind, StopCause};
use rustix::process::{Pid, Resource, Rlimit};

use crate::lab::{self, Lab, marked, text, wait_for};

/// Ignores what can be ignored, forks twice into sessions of their own, and keeps its output open.
const STUBBORN: &str = r#"
    use POSIX qw(setsid);
    $| = 1;
    $SIG{$_} = 'IGNORE' for qw(TERM HUP INT QUIT USR1 PIPE);
    if (!fork) { setsid; if (!fork) { setsid; print "up\n"; sleep 1 while 1 } exit 0 if $ARGV[0]; sleep 1 while 1 }
    sleep 1 while 1;
"#;

const A_SECOND: Duration = Duration::from_secs(1);

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_stubborn_tree_is_gone_within_a_second_of_the_wall_clock() {
    let lab = Lab::new();
    for daemonised in ["", "1"] {
        let mut plan = lab.plan("/usr/bin/perl", &["-e", STUBBORN, daemonised]);
        plan.limits.wall_ms = 600;
        let began = Instant::now();
        let outcome = lab.run(&plan).await;
        assert_eq!(lab.processes(), [0; 0]);
        assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::WallClock, "up\n"));
        assert!(began.elapsed() < Duration::from_millis(600) + A_SECOND, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_deadline_of_the_caller_counts_when_it_is_the_earlier_one() {
    let lab = Lab::new();
    let mut plan = lab.shell("exec sleep 60");
    let soon = RunInput { deadline: Some(Duration::from_millis(200)), ..RunInput::default() };
    let began = Instant::now();
    assert_eq!(lab.runner.start(&plan, soon).await.unwrap().outcome().await.ended, Ended::Deadline);
    assert!(began.elapsed() < A_SECOND);
    plan.limits.wall_ms = 200;
    let late = RunInput { deadline: Some(Duration::from_secs(60)), ..RunInput::default() };
    assert_eq!(lab.runner.start(&plan, late).await.unwrap().outcome().await.ended, Ended::WallClock);
}

#[tokio::test]
async fn a_program_that_listens_to_sigterm_can_say_goodbye() {
    let lab = Lab::new();
    let mut running =
        lab.start(&lab.shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done")).await;
    wait_for(&mut running, "up").await;
    running.stop(StopCause::Requested);
    running.stop(StopCause::Shutdown);
    let outcome = running.outcome().await;
    assert_eq!(outcome.ended, Ended::Cancelled(StopCause::Requested), "the first cause counts");
    assert!(text(&outcome.stdout.bytes).ends_with("bye\n"));
}

#[tokio::test]
async fn a_stop_that_comes_as_soon_as_the_program_runs_is_not_lost() {
    let lab = Lab::new();
    for _ in 0..50 {
        let running = lab.start(&lab.plan("/usr/bin/sleep", &["60"])).await;
        running.stop(StopCause::Requested);
        let began = Instant::now();
        assert_eq!(running.outcome().await.ended, Ended::Cancelled(StopCause::Requested));
        assert!(began.elapsed() < 5 * A_SECOND, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_is_left_after_a_normal_end_is_gone() {
    let lab = Lab::new();
    let script = r#"use POSIX qw(setsid); $SIG{TERM} = 'IGNORE'; if (!fork) { setsid; if (!fork) { setsid; sleep 60 } exit } wait; exit 7"#;
    let began = Instant::now();
    let outcome = lab.run(&lab.perl(script)).await;
    assert_eq!(lab.processes(), [0; 0]);
    assert_eq!(outcome.ended, Ended::Exited(7));
    assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
}

#[tokio::test]
async fn dropping_the_handle_ends_the_tree() {
    let lab = Lab::new();
    let mut running = lab.start(&lab.perl(STUBBORN)).await;
    wait_for(&mut running, "up").await;
    assert!(lab.processes().len() >= 3);
    drop(running);
    assert!(lab.quiet().await < A_SECOND);
}

#[tokio::test]
async fn dropping_a_future_that_waits_ends_the_tree() {
    let lab = Lab::new();
    let plan = lab.perl(STUBBORN);
    assert!(tokio::time::timeout(Duration::from_millis(300), lab.run(&plan)).await.is_err());
    assert!(lab.quiet().await < A_SECOND);
}

#[test]
fn the_end_of_the_runtime_ends_the_tree() {
    let lab = Lab::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let running = runtime.block_on(async {
        let mut running = lab.start(&lab.perl(STUBBORN)).await;
        wait_for(&mut running, "up").await;
        running
    });
    drop(runtime);
    let again = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(again.block_on(lab.quiet()) < A_SECOND);
    assert_eq!(again.block_on(running.outcome()).ended, Ended::SupervisorLost);
}

#[tokio::test]
async fn killing_the_daemon_ends_the_tree() {
    let lab = Lab::new();
    let mut daemon = stand_in(&lab);
    let began = Instant::now();
    while lab.processes().len() < 4 || !lab.workspace().join("up").exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "the stand-in did not start");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The stand-in carries the mark itself, to hand it on.
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(lab.quiet().await < A_SECOND);
}

/// This test program in the place of a daemon, with a stubborn tool under it.
#[expect(clippy::disallowed_methods, reason = "a test starts itself as the daemon that is killed")]
fn stand_in(lab: &Lab) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tree::a_daemon_that_waits_to_be_killed", "--nocapture"]);
    command.env("MARK", &lab.mark).env("STAND_IN_WORKSPACE", lab.workspace());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Does nothing unless [`stand_in`] asks for it.
#[tokio::test]
async fn a_daemon_that_waits_to_be_killed() {
    let Ok(workspace) = std::env::var("STAND_IN_WORKSPACE") else { return };
    let lab = Lab::new();
    let mut plan = lab.perl(STUBBORN);
    plan.workspace = lab::absolute(workspace.as_ref());
    plan.cwd = plan.workspace.clone();
    plan.env.insert("MARK".to_owned(), std::env::var("MARK").unwrap());
    let mut running = lab.start(&plan).await;
    wait_for(&mut running, "up").await;
    fs::write(format!("{workspace}/up"), "").unwrap();
    running.outcome().await;
}

#[tokio::test]
async fn a_program_cannot_signal_its_init_nor_the_daemon() {
    let lab = Lab::new();
    let daemon = std::process::id();
    let outcome =
        lab.run(&lab.shell(&format!("kill -9 $PPID; kill -9 {daemon}; sleep 60 & kill -9 $!; echo alive"))).await;
    assert!(outcome.layers.contains(&Layer::SignalScope), "needs Landlock 6, Linux 6.12: {:?}", outcome.layers);
    assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(0), "alive\n"));
    assert_eq!(text(&outcome.stderr.bytes).matches("not permitted").count(), 2, "{:?}", text(&outcome.stderr.bytes));
}

#[tokio::test]
async fn an_init_that_is_killed_is_reported_and_its_tree_with_it() {
    let lab = Lab::new();
    let mut running = lab.start(&lab.shell("trap '' TERM; sleep 60 & echo $PPID up; wait")).await;
    let init = wait_for(&mut running, "up").await;
    kill("-KILL", init.split_once(' ').unwrap().0);
    let outcome = running.outcome().await;
    assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::SupervisorLost, &*init));
    assert!(lab.quiet().await < A_SECOND);
}

#[tokio::test]
async fn an_init_that_was_stopped_is_set_going_again() {
    let lab = Lab::new();
    let mut plan = lab.shell("echo $PPID up; exec sleep 60");
    plan.limits.wall_ms = 200;
    let mut running = lab.start(&plan).await;
    let init = wait_for(&mut running, "up").await;
    kill("-STOP", init.split_once(' ').unwrap().0);
    let began = Instant::now();
    assert_eq!(running.outcome().await.ended, Ended::WallClock);
    assert!(began.elapsed() < 3 * A_SECOND, "{:?}", began.elapsed());
    assert_eq!(lab.processes(), [0; 0]);
}

#[tokio::test]
async fn a_process_that_looks_dead_while_its_threads_run_on_is_ended() {
    let lab = Lab::new();
    let source = lab.file(
        "threads.c",
        r#"#include <pthread.h>
           #include <signal.h>
           #include <stdio.h>
           #include <unistd.h>
           static void *run(void *x) { puts("up"); fflush(stdout); for (;;) pause(); return x; }
           int main(void) { pthread_t t; signal(SIGTERM, SIG_IGN); pthread_create(&t, 0, run, 0); pthread_exit(0); }"#,
    );
    let program = lab.workspace().join("threads");
    let (source, program) = (source.to_str().unwrap(), program.to_str().unwrap());
    let built = lab.run(&lab.shell(&format!("gcc -pthread -o {program} {source}"))).await;
    assert_eq!(built.ended, Ended::Exited(0), "{:?}", text(&built.stderr.bytes));
    for plan in [lab.plan(program, &[]), lab.shell(&format!("{program} & sleep 60"))] {
        let mut running = lab.start(&plan).await;
        wait_for(&mut running, "up").await;
        let began = Instant::now();
        running.stop(StopCause::Requested);
        assert_eq!(running.outcome().await.ended, Ended::Cancelled(StopCause::Requested));
        assert!(began.elapsed() < A_SECOND, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_wall_clock_beyond_all_measure_is_none() {
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/true", &[]);
    plan.limits.wall_ms = u64::MAX;
    assert_eq!(lab.run(&plan).await.ended, Ended::Exited(0));
}

#[tokio::test]
async fn a_program_cannot_get_at_memory_or_descriptors_of_the_daemon_or_its_init() {
    let lab = Lab::new();
    let daemon = std::process::id();
    for process in [daemon.to_string(), "$PPID".to_owned()] {
        for attempt in ["head -c 1 /proc/P/mem", "readlink /proc/P/fd/0", "cat /proc/P/fd/0"] {
            let outcome = lab.run(&lab.shell(&attempt.replace('P', &process))).await;
            assert!(outcome.layers.contains(&Layer::NoTrace), "needs Landlock 3: {:?}", outcome.layers);
            assert_eq!((outcome.ended, outcome.stdout.total), (Ended::Exited(1), 0), "{attempt} of {process}");
        }
    }
}

#[tokio::test]
async fn a_program_cannot_change_the_limits_of_its_init_nor_of_the_daemon() {
    let lab = Lab::new();
    let daemon = std::process::id();
    let script = format!(
        "setsid sleep 60 & for p in $PPID {daemon}; do for l in nofile as cpu; do prlimit --pid $p --$l=1; done; done; \
         prlimit --pid $PPID --nofile >/dev/null && ulimit -n 100 && ulimit -n"
    );
    let outcome = lab.run(&lab.shell(&script)).await;
    assert_eq!(lab.processes(), [0; 0]);
    assert!(outcome.layers.contains(&Layer::OwnLimits), "needs seccomp filters: {:?}", outcome.layers);
    assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(0), "100\n"), "{outcome:?}");
    assert_eq!(text(&outcome.stderr.bytes).matches("not permitted").count(), 6, "{:?}", text(&outcome.stderr.bytes));
}

#[tokio::test]
async fn an_init_that_gets_no_memory_or_descriptors_any_more_leaves_nothing() {
    let lab = Lab::new();
    for (resource, most) in [(Resource::As, 4096), (Resource::Data, 0), (Resource::Nofile, 4), (Resource::Nofile, 0)] {
        for stops in [true, false] {
            let mut plan = lab.perl(&format!("print getppid, ' '; {STUBBORN}"));
            plan.limits.wall_ms = if stops { 60_000 } else { 1_000 };
            let mut running = lab.start(&plan).await;
            let init = wait_for(&mut running, "up").await;
            let init = Pid::from_raw(init.split_once(' ').unwrap().0.parse().unwrap());
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            rustix::process::prlimit(init, resource, limit).unwrap();
            if stops {
                running.stop(StopCause::Requested);
            }
            let began = Instant::now();
            let ended = running.outcome().await.ended;
            assert!(began.elapsed() < 3 * A_SECOND, "{resource:?} {most}: {ended:?} after {:?}", began.elapsed());
            assert_eq!(lab.processes(), [0; 0], "{resource:?} {most}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn a_start_that_fails_leaves_nothing() {
    let lab = Lab::new();
    let program = lab.executable("broken", "#!/no/such/interpreter\n");
    let refused = lab.try_run(&lab.plan(program.to_str().unwrap(), &[])).await.unwrap_err();
    assert_eq!(refused.kind, SandboxProcessRunErrorKind::ProgramNotFound, "{refused}");
    assert_eq!(marked(&lab.mark), [0; 0]);
}

#[expect(clippy::disallowed_methods, reason = "the test plays the attacker on a kernel without signal scope")]
fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}
