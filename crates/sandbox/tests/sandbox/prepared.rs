//! Programs that are prepared before they may run: nothing of them happens until they start. What stays when they do not is
//! counted where inits are.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{fs, time::Duration};

use palyra_sandbox::{Ended, RunInput};

use crate::lab::Lab;

#[tokio::test]
async fn nothing_of_a_prepared_program_happens_before_it_starts() {
    let lab = Lab::new();
    let prepared = lab.runner.prepare(&lab.shell("echo once >> done"), RunInput::default()).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert!(!lab.workspace().join("done").exists());
    assert_eq!(prepared.start().await.unwrap().outcome().await.ended, Ended::Exited(0));
    assert_eq!(fs::read_to_string(lab.workspace().join("done")).unwrap(), "once\n");
}

#[tokio::test]
async fn the_time_of_a_prepared_program_runs_from_its_start() {
    let lab = Lab::new();
    let mut plan = lab.shell("sleep 0.1");
    plan.limits.wall_ms = 400;
    let prepared = lab.runner.prepare(&plan, RunInput::default()).await.unwrap();
    tokio::time::sleep(2 * A_WHILE).await;
    let outcome = prepared.start().await.unwrap().outcome().await;
    assert_eq!(outcome.ended, Ended::Exited(0));
    assert!(outcome.usage.wall < Duration::from_millis(400), "{:?}", outcome.usage.wall);
}

/// Long enough for a program that runs to have done something.
const A_WHILE: Duration = Duration::from_millis(300);
