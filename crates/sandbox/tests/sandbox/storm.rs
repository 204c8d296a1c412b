//! Storms of forks: limited or watched, and ended. In a file of their own, as they leave little time to their neighbours.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::time::{Duration, Instant};

use palyra_sandbox::{Ended, Layer, StopCause};

use crate::lab::{self, Lab, text, wait_for};

/// Passes itself on from process to process, faster than a listing can follow.
const HOPPING: &str = r#"
    use POSIX qw(setsid);
    $| = 1; $SIG{TERM} = 'IGNORE'; $SIG{CHLD} = 'IGNORE';
    for (1 .. 20) { if (!fork) { setsid; while (1) { my $p = fork; next unless defined $p; exit 0 if $p; select undef, undef, undef, 0.001 } } }
    print "up\n"; sleep 1 while 1;
"#;

const A_SECOND: Duration = Duration::from_secs(1);

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_storm_of_forks_is_ended() {
    let lab = Lab::new();
    let mut running = lab.start(&lab.perl(HOPPING)).await;
    wait_for(&mut running, "up").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    running.stop(StopCause::Requested);
    let outcome = running.outcome().await;
    assert_eq!((outcome.ended, lab.processes().len()), (Ended::Cancelled(StopCause::Requested), 0));
    assert!(began.elapsed() < 5 * A_SECOND, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_bomb_of_forks_is_ended() {
    let lab = Lab::new();
    // Ten generations make 1024 processes, if nothing stops them.
    let mut plan = lab.perl("$SIG{TERM} = 'IGNORE'; fork for 1 .. 10; 1 while 1");
    plan.limits.processes = 200;
    plan.limits.wall_ms = 3000;
    let began = Instant::now();
    let outcome = lab.run(&plan).await;
    assert_eq!(lab.processes(), [0; 0]);
    let held = outcome.layers.contains(&Layer::ProcessLimit);
    assert_eq!(outcome.ended, if held { Ended::WallClock } else { Ended::ProcessLimit });
    assert!(began.elapsed() < 15 * A_SECOND, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_number_of_processes_is_limited_by_the_kernel_or_watched() {
    let lab = Lab::new();
    let script = "$| = 1; my $n = 0; while ($n < 3000) { my $p = fork; last unless defined $p; if (!$p) { sleep 60 } $n++ } print $n";
    let mut plan = lab.perl(&format!("{script}; sleep 1"));
    plan.limits.processes = 50;
    let outcome = lab.run(&plan).await;
    assert_eq!(lab.processes(), [0; 0]);
    if outcome.layers.contains(&Layer::ProcessLimit) {
        let forks: usize = text(&outcome.stdout.bytes).parse().unwrap();
        // At least what was given, at most as many more as the machine has tasks, which neighbours change all the time.
        assert!((30..3000).contains(&forks), "{forks} forks");
    } else {
        assert!(outcome.layers.contains(&Layer::ProcessWatch));
        assert_eq!(outcome.ended, Ended::ProcessLimit);
    }
}
