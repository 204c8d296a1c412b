//! What is left of a daemon that was killed, or whose disk failed, while it changed who is let in: nothing that was refused, and nothing that keeps the next one from starting.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use palyra_api::{
    device::{ConfirmPairing, DeviceState, NewPairing, PairingState},
    token::NewToken,
};
use palyra_client::ClientError;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan, program},
    paired::{Candidate, pin},
};

/// the directory cannot be written to the disk after the new registry is in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mint_that_was_refused_as_unkept_is_not_there_after_a_kill() {
    let mut lab = DaemonLab::new();
    let before = fs::read(lab.home().join("access_registry.json")).unwrap();
    let fault = begin(&lab, "fsync", "EIO", &[lab.home().to_owned()]);
    lab.owner().mint_token(&new_token("unkept")).await.unwrap_err();
    end(fault);
    lab.kill();
    assert_eq!(fs::read(lab.home().join("access_registry.json")).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_was_told_that_it_is_not_let_in_is_not_let_in_after_a_kill() {
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    let open = owner.open_pairing(&NewPairing::default()).await.unwrap();
    let mut device = Candidate::connect(&lab, "phone").await;
    let proved = device.prove(pin(&open.pin)).await.unwrap();
    let key = owner.pairing(&open.id).await.unwrap().device.unwrap().observed.key;
    let confirming = tokio::spawn(async move { owner.confirm_pairing(&open.id, &ConfirmPairing { key }).await });
    let granted = device.granted(&proved).await.unwrap();
    let identity = device.identity(&lab, &granted);
    let fault = begin(&lab, "fsync", "EIO", &[lab.home().to_owned()]);
    assert_eq!(device.kept().await, Err("internal".to_owned()));
    assert_eq!(confirming.await.unwrap().unwrap().state, PairingState::Over);
    end(fault);
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
    let mut command = lab.command(Path::new("strace"));
    // The first is that of the device, whose certificate has run out as well.
    command.args(["-f", "-o", "/dev/null", "-e", "trace=rename", "-e", "inject=rename:signal=KILL:when=2"]);
    let status = command.arg(program("lab-daemon")).stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.code().is_none(), "{status}");
    lab.start();
    lab.agent().identity().await.unwrap();
}

/// the journal cannot be written when a device is to be let in, and the registry can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_pairing_could_not_be_recorded_is_forgotten() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let open = owner.open_pairing(&NewPairing::default()).await.unwrap();
    let mut device = Candidate::connect(&lab, "phone").await;
    let proved = device.prove(pin(&open.pin)).await.unwrap();
    let key = owner.pairing(&open.id).await.unwrap().device.unwrap().observed.key;
    let confirmer = lab.owner();
    let confirming = tokio::spawn(async move { confirmer.confirm_pairing(&open.id, &ConfirmPairing { key }).await });
    device.granted(&proved).await.unwrap();
    let fault = begin(&lab, "pwrite64", "ENOSPC", &[lab.journal().join("journal.db-wal")]);
    device.kept().await.unwrap_err();
    assert_eq!(confirming.await.unwrap().unwrap().state, PairingState::Over);
    end(fault);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let devices = owner.devices().await.unwrap().devices;
    assert!(devices.iter().all(|device| device.state == DeviceState::Active), "{devices:?}");
}

/// a start was killed while it wrote the configuration, and the next one has the same process id, as in a container.
#[test]
fn a_founding_that_was_killed_is_taken_up_by_a_process_of_the_same_id() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("state");
    let init = |which: u32| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "strace", "-f", "-o", "/dev/null", "-e", "trace=linkat"]);
        command.args(["-e", &format!("inject=linkat:signal=KILL:when={which}")]).arg(program("palyra")).arg("init");
        command.env("PALYRA_HOME", &home).current_dir(place.path()).stdin(Stdio::null()).output().unwrap()
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
    let mut command = lab.command(Path::new("strace"));
    command.args(["-f", "-o", "/dev/null", "-e", "trace=rename", "-e", "inject=rename:signal=KILL:when=1"]);
    let status = command.arg(program("palyra")).arg("init").stdin(Stdio::null()).output().unwrap().status;
    assert!(!status.success());
    lab.start();
    let names = fs::read_dir(lab.home().join("identity")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.contains(".new-")).collect();
    assert_eq!(left, Vec::<String>::new());
}

fn begin(lab: &DaemonLab, call: &str, error: &str, paths: &[PathBuf]) -> Child {
    inject(lab, &format!("{call}:error={error}"), paths)
}

fn inject(lab: &DaemonLab, what: &str, paths: &[PathBuf]) -> Child {
    let mut command = lab.command(Path::new("strace"));
    command.args(["-f", "-p", &lab.pid().to_string(), "-o", "/dev/null"]);
    command.args(["-e", &format!("trace={}", what.split(':').next().unwrap()), "-e", &format!("inject={what}")]);
    for path in paths {
        command.arg("-P").arg(path);
    }
    let strace = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    strace
}

fn end(mut strace: Child) {
    assert!(strace.try_wait().unwrap().is_none());
    strace.kill().unwrap();
    strace.wait().unwrap();
}

fn new_token(name: &str) -> NewToken {
    NewToken {
        name: name.to_owned(),
        principal: "agent:lab".to_owned(),
        scopes: vec!["calls.read".to_owned()],
        lifetime_seconds: 3_600,
        role: None,
        workspaces: None,
        per_minute: None,
        concurrent: None,
    }
}

fn refused(error: ClientError) -> (u16, String) {
    match error {
        ClientError::Refused { status, error: body } => (status, body.code),
        other => panic!("{other}"),
    }
}
