//! A daemon that gets no descriptors any more: calls fail or go on, and nothing is lost or left behind.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod lab;

use std::time::Duration;

use lab::{Lab, text};
use palyra_sandbox::{Ended, SandboxProcessRunErrorKind as Kind};
use rustix::process::{Resource, Rlimit};
use tokio::{sync::Mutex, time::timeout};

/// Every test takes it: limits are those of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    lab::again_as_an_ordinary_user("all_of_this_holds_for_an_ordinary_user_too");
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
