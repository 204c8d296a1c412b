//! A start that does not come about: the process that has the order does nothing with it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use palyra_sandbox::{Ended, SandboxProcessRunErrorKind as Kind};
use rustix::process::{Resource, Rlimit};
use tokio::{sync::Mutex, time::timeout};

use crate::lab::{self, Held, Lab, absolute};

/// Every test takes it: which init waits for whom cannot be told while another test has one, too.
static ALONE: Mutex<()> = Mutex::const_new(());

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
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

#[tokio::test]
async fn a_lack_of_descriptors_hides_nothing_more_than_is_to_be_hidden() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let all = rustix::process::getrlimit(Resource::Nofile);
    for open_files in (6..24).rev() {
        let tools = lab::next_tools().await;
        // A new one each time, so that no rules of an earlier call come along.
        let neighbour = lab.outside().join(open_files.to_string());
        fs::write(&neighbour, "").unwrap();
        let mut plan = lab.plan("/bin/cat", &[neighbour.to_str().unwrap()]);
        plan.hidden = vec![absolute(&lab.outside().join("hidden"))];
        for tool in tools {
            let few = Rlimit { current: Some(open_files), ..all };
            rustix::process::prlimit(Some(tool), Resource::Nofile, few).unwrap();
        }
        match lab.try_run(&plan).await {
            Ok(outcome) => assert_eq!(outcome.ended, Ended::Exited(0), "{open_files}: {outcome:?}"),
            Err(refused) => assert_eq!(refused.kind, Kind::SpawnFailed, "{open_files}: {refused}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_that_gets_lost_on_the_way_is_not_reported_as_run() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let mut plan = lab.plan("/bin/touch", &["ran"]);
    plan.hidden = vec![absolute(&lab.outside().join("hidden"))];
    let all = rustix::process::getrlimit(Resource::Nofile);
    for round in 0..60 {
        let tools = lab::next_tools().await;
        // A new neighbour, so that no rules of an earlier call come along.
        fs::write(lab.outside().join(round.to_string()), "").unwrap();
        let over = Arc::new(AtomicBool::new(false));
        // The descriptors of the order find no room, or some of them, and what comes after the order does.
        let squeeze = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                for room in (3..16).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    for current in [Some(room), all.current] {
                        let limit = Rlimit { current, ..all };
                        for &tool in &tools {
                            let _ = rustix::process::prlimit(Some(tool), Resource::Nofile, limit);
                        }
                    }
                }
            }
        });
        let ended = lab.try_run(&plan).await;
        over.store(true, Ordering::Relaxed);
        squeeze.join().unwrap();
        let ran = fs::remove_file(lab.workspace().join("ran")).is_ok();
        assert!(ran || !ended.as_ref().is_ok_and(|outcome| outcome.ended == Ended::Exited(0)), "{round}: {ended:?}");
    }
}
