//! The inits that wait for the next calls: they may be lost, also while a program is prepared, and they are never left behind. One test, as it counts the children of this
//! process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    cell::RefCell,
    fs,
    time::{Duration, Instant},
};

use palyra_sandbox::{Ended, RunInput};
use rustix::process::{Pid, Signal};

use crate::lab::{self, Lab};

#[tokio::test]
async fn a_waiting_init_may_be_killed_and_nothing_stays_behind() {
    let lab = Lab::new();
    let plan = lab.plan("/bin/true", &[]);
    let once = lab.shell("echo once >> done");
    let descriptors = descriptors();
    for round in 0..100 {
        if round % 25 == 0 {
            kill_all().await;
        }
        if round % 10 == 0 {
            drop(lab.runner.prepare(&once, RunInput::default()).await.unwrap());
        }
        if round % 20 == 0 {
            let prepared = lab.runner.prepare(&once, RunInput::default()).await.unwrap();
            // One that was just started has not forked yet.
            until(|| children(own()).filter(|stat| !is_dead(stat)).all(|stat| children(pid(&stat)).count() == 1)).await;
            kill_all().await;
            // It was not told to go yet, so another may be.
            assert_eq!(prepared.start().await.unwrap().outcome().await.ended, Ended::Exited(0));
        }
        // Two at once also see at once to it that others wait.
        let (one, other) = tokio::join!(lab.run(&plan), lab.run(&plan));
        assert_eq!((one.ended, other.ended), (Ended::Exited(0), Ended::Exited(0)));
    }
    assert_eq!(fs::read_to_string(lab.workspace().join("done")).unwrap().lines().count(), 5);
    until(|| inits().len() == lab::WAITING).await;
    until(|| self::descriptors() <= descriptors + 2).await;
    drop(lab);
    until(|| inits().is_empty()).await;
}

async fn kill_all() {
    let tools: RefCell<Vec<Pid>> = RefCell::default();
    until(|| {
        // More than once, as another may just be starting.
        for init in inits() {
            tools.borrow_mut().extend(children(init).map(|stat| pid(&stat)));
            let _ = rustix::process::kill_process(init, Signal::KILL);
        }
        children(own()).all(|stat| is_dead(&stat))
    })
    .await;
    // Those die with their inits, if a moment later. Whoever tells one of them to go meanwhile cannot know whether it went.
    let stat = |tool: &Pid| fs::read_to_string(format!("/proc/{tool}/stat"));
    let tools = tools.into_inner();
    until(|| tools.iter().all(|tool| stat(tool).is_ok_and(|stat| is_dead(&stat)) || stat(tool).is_err())).await;
}

async fn until(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}, {}", inits(), descriptors());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn inits() -> Vec<Pid> {
    children(own()).map(|stat| pid(&stat)).collect()
}

fn own() -> Pid {
    rustix::process::getpid()
}

/// The children of a process, dead or alive, as the kernel describes them.
fn children(parent: Pid) -> impl Iterator<Item = String> {
    let parent = parent.to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(move |stat| stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(1) == Some(&parent))
}

fn pid(stat: &str) -> Pid {
    Pid::from_raw(stat.split_once(' ').unwrap().0.parse().unwrap()).unwrap()
}

fn is_dead(stat: &str) -> bool {
    stat.contains(") Z ") || stat.contains(") X ")
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
