//! A daemon that gets no threads or descriptors any more: calls fail or go on, and nothing is lost or left behind.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::{
    fs,
    time::{Duration, Instant},
};

use palyra_sandbox::{Ended, PinnedFile, ProgramFiles, RunInput, SandboxProcessRunErrorKind as Kind};
use palyra_types::digest::Sha256Digest;
use rustix::process::{Resource, Rlimit};
use tokio::{sync::Mutex, time::timeout};

use crate::lab::{self, Lab, absolute, is_root, text};

/// Every test takes it: limits are those of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user(module_path!());
}

#[tokio::test]
async fn a_running_program_is_not_lost_when_no_thread_can_be_started() {
    let _alone = ALONE.lock().await;
    if is_root() {
        // The kernel holds root to no limit.
        return;
    }
    let lab = Lab::new();
    lab::next_tools().await;
    let other = Lab::new();
    let short = Short::of(Resource::Nproc, 1);
    let outcome = lab.run(&lab.shell("sleep 0.1; echo done")).await;
    assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(0), "done\n"));
    let sha256 = Some(Sha256Digest::of(&fs::read("/bin/true").unwrap()));
    let program = PinnedFile { path: absolute(&fs::canonicalize("/bin/true").unwrap()), sha256 };
    let input = RunInput { program: ProgramFiles::Pinned { program, interpreters: Vec::new() }, ..RunInput::default() };
    let refused = lab.try_run_with(&lab.plan("/bin/true", &[]), input).await.unwrap_err();
    assert_eq!(refused.kind, Kind::SpawnFailed, "{refused}");
    // One that runs, and those that wait.
    assert!(timeout(Duration::from_millis(100), lab.run(&lab.plan("/bin/sleep", &["60"]))).await.is_err());
    drop((lab, other));
    drop(short);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lab = Lab::new();
    assert_eq!(lab.run(&lab.plan("/bin/true", &[])).await.ended, Ended::Exited(0));
    drop(lab);
    let began = Instant::now();
    while lab::has_children() {
        assert!(began.elapsed() < Duration::from_secs(10), "inits that nobody collected");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_lack_of_descriptors_is_called_by_its_name() {
    let _alone = ALONE.lock().await;
    let lab = Lab::new();
    let plan = lab.shell("echo done");
    lab.run(&plan).await;
    for most in (3..40).rev() {
        lab::next_tools().await;
        let short = Short::of(Resource::Nofile, most);
        let ended = timeout(Duration::from_secs(10), lab.try_run(&plan)).await.unwrap();
        drop(short);
        match ended {
            Ok(outcome) => assert_eq!((outcome.ended, text(&outcome.stdout.bytes)), (Ended::Exited(0), "done\n")),
            Err(refused) => assert_eq!(refused.kind, Kind::SpawnFailed, "{most}: {refused}"),
        }
    }
}

/// A limit of this process that is lower until it is dropped.
struct Short(Resource, Rlimit);

impl Short {
    fn of(resource: Resource, most: u64) -> Self {
        let usual = rustix::process::getrlimit(resource);
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), ..usual }).unwrap();
        Self(resource, usual)
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        rustix::process::setrlimit(self.0, self.1).unwrap();
    }
}
