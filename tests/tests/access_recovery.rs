//! What is left of a daemon that was killed, or whose disk failed, while it changed who is let in: nothing that was refused, and nothing that keeps the next one from starting.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use palyra_api::device::{DeviceState, NewPairing, PairingState};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, refused},
    paired::{Granting, grant},
    strace::{Fault, killed_before, killed_by},
    token::token_named,
    until,
};

/// the directory cannot be written to the disk after the new registry is in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mint_that_was_refused_as_unkept_is_not_there_after_a_kill() {
    let mut lab = DaemonLab::new();
    let before = lab.registry();
    let fault = Fault::begin(&lab, "fsync", "EIO", &[lab.home().to_owned()]);
    lab.owner().mint_token(&token_named("unkept")).await.unwrap_err();
    assert!(fault.end() >= 1, "it was not felt");
    lab.kill();
    assert_eq!(lab.registry(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_told_that_it_is_not_let_in_is_not_let_in_after_a_kill() {
    let mut lab = DaemonLab::new();
    let Granting { mut device, identity, confirming } = grant(&lab, lab.owner(), &NewPairing::default()).await;
    let fault = Fault::begin(&lab, "fsync", "EIO", &[lab.home().to_owned()]);
    assert_eq!(device.kept().await, Err("internal".to_owned()));
    assert_eq!(confirming.await.unwrap().unwrap().state, PairingState::Over);
    assert!(fault.end() >= 1, "it was not felt");
    lab.kill();
    lab.start();
    let error = lab.of_device(&identity).identity().await.expect_err("it is let in");
    assert_eq!(refused(error), (401, "unknown_device".to_owned()));
}

/// the agents' token is about to run out, and the daemon is killed between its rotation and the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follow_up_of_the_agents_token_that_was_killed_is_taken_up_by_the_next_start() {
    let mut lab = DaemonPlan::default().own_clock().start();
    assert!(lab.stop().success());
    lab.set_ahead(Duration::from_secs(360 * 24 * 60 * 60));
    // The first is that of the device, whose certificate has run out as well.
    let mut command = killed_before(&lab, ("rename", 2), "lab-daemon");
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.code().is_none(), "{status}");
    lab.start();
    lab.agent().identity().await.unwrap();
}

/// the journal cannot be written when a device is to be let in, and the registry can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_pairing_could_not_be_recorded_is_forgotten() {
    let lab = DaemonLab::new();
    let Granting { mut device, identity, confirming } = grant(&lab, lab.owner(), &NewPairing::default()).await;
    let fault = Fault::begin(&lab, "pwrite64", "ENOSPC", &[lab.journal().join("journal.db-wal")]);
    device.kept().await.unwrap_err();
    assert_eq!(confirming.await.unwrap().unwrap().state, PairingState::Over);
    assert!(fault.end() >= 1, "it was not felt");
    let only = lab.device().device;
    until(|| async {
        let devices = lab.owner().devices().await.unwrap().devices;
        devices.iter().map(|device| (&device.id, device.state)).eq([(&only, DeviceState::Active)])
    })
    .await;
    assert_eq!(refused(lab.of_device(&identity).identity().await.unwrap_err()), (401, "unknown_device".to_owned()));
}

/// a start was killed while it wrote the configuration, and the next one has the same process id, as in a container.
#[test]
fn a_founding_that_was_killed_is_taken_up_by_a_process_of_the_same_id() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("state");
    let init = |which: u32| {
        let mut strace = Command::new("unshare");
        strace.args(["--pid", "--fork", "--mount-proc", "strace"]);
        let mut command = killed_by(strace, ("linkat", which), "palyra");
        command.arg("init").env("PALYRA_HOME", &home).current_dir(place.path()).stdin(Stdio::null()).output().unwrap()
    };
    assert!(!init(1).status.success());
    let names: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let told = init(99);
    assert!(told.status.success(), "{names:?} was left, and then: {}", String::from_utf8_lossy(&told.stderr));
}

/// what a killed founding leaves in `identity` holds keys, and nobody removes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_killed_founding_left_stays() {
    let mut lab = DaemonPlan::default().make();
    let mut command = killed_before(&lab, ("rename", 1), "palyra");
    let status = command.arg("init").stdin(Stdio::null()).output().unwrap().status;
    assert!(!status.success());
    let identity = lab.home().join("identity");
    let left = || {
        let names = fs::read_dir(&identity).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(".new-")).collect::<Vec<_>>()
    };
    assert_eq!(left().len(), 1, "the kill left nothing to remove");
    lab.start();
    assert_eq!(left(), [""; 0]);
}
