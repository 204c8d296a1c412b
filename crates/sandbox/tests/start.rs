//! A start that does not come about: the process that has the order does nothing with it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod lab;

use std::time::{Duration, Instant};

use lab::{Held, Lab};
use palyra_sandbox::{Ended, SandboxProcessRunErrorKind as Kind};
use tokio::{sync::Mutex, time::timeout};

/// Every test takes it: which init waits for whom cannot be told while another test has one, too.
static ALONE: Mutex<()> = Mutex::const_new(());

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user("all_of_this_holds_for_an_ordinary_user_too");
}

#[tokio::test]
async fn a_process_that_never_takes_its_order_is_given_up_on() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/true", &[]);
    plan.limits.wall_ms = 100;
    let held = Held::the_next_tools().await;
    let began = Instant::now();
    let refused = lab.try_run(&plan).await.unwrap_err();
    assert_eq!(refused.kind, Kind::SpawnFailed, "{refused}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    held.one_is_gone().await;
    drop(held);
    plan.limits.wall_ms = 60_000;
    assert_eq!(lab.run(&plan).await.ended, Ended::Exited(0), "the next one has a process of its own");
}

#[tokio::test]
async fn giving_up_on_a_start_leaves_nothing() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let plan = lab.plan("/bin/sleep", &["60"]);
    let held = Held::the_next_tools().await;
    assert!(timeout(Duration::from_millis(200), lab.start(&plan)).await.is_err());
    held.one_is_gone().await;
    assert_eq!(lab.processes(), [0; 0]);
}
