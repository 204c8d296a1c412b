//! A state directory whose founding is killed at each of its steps.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    process::Stdio,
};

use palyra_api::{device::DeviceState, token::TokenState};
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan},
    random::Random,
    strace::killed_before,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founding_that_is_killed_at_any_step_is_taken_up_by_the_next() {
    let mut random = Random::new();
    let mut kills = 0;
    for call in ["mkdir", "fchmod", "write", "fsync", "linkat", "unlink", "rename", "renameat"] {
        for which in 1.. {
            let mut lab = DaemonPlan::default().make();
            let config = fs::read(lab.home().join("config.toml")).unwrap();
            fs::remove_dir_all(lab.home()).unwrap();
            if found_and_kill(&lab, (call, which)) {
                break;
            }
            // The registry is there by now, mostly, and is saved twice more.
            let again = [("fchmod", 1), ("fchmod", 2), ("renameat", 1), ("renameat", 2), ("rename", 1), ("rename", 2)];
            let again = again[usize::try_from(random.below(6)).unwrap()];
            kills += 1 + u32::from(!found_and_kill(&lab, again));
            println!("killed before {call} {which}, then before {} {}", again.0, again.1);
            if random.below(2) == 0 {
                let told = lab.palyra().arg("init").output().unwrap();
                assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            }
            configure(&lab, &config);
            lab.start();
            look_after_a_founding(&lab).await;
        }
    }
    assert!(kills >= 50, "{kills} kills are too few to show anything");
}

/// Says whether it came to its end before it could be killed.
fn found_and_kill(lab: &DaemonLab, step: (&str, u32)) -> bool {
    let told = killed_before(lab, step, "palyra").arg("init").stdin(Stdio::null()).output();
    let told = told.expect("strace is installed; scripts/setup does that");
    assert!(told.status.code().is_none_or(|code| code == 0), "{}", String::from_utf8_lossy(&told.stderr));
    told.status.success()
}

/// Puts the configuration of a lab where another, or none, may be.
fn configure(lab: &DaemonLab, config: &[u8]) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(lab.home()).unwrap();
    let path = lab.home().join("config.toml");
    fs::write(&path, config).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

async fn look_after_a_founding(lab: &DaemonLab) {
    let owner = lab.owner();
    let own = owner.identity().await.unwrap();
    assert_eq!((own.principal.as_str(), own.roles.as_slice()), ("user:owner", ["owner".to_owned()].as_slice()));
    let devices = owner.devices().await.unwrap().devices;
    let told: Vec<_> = devices.iter().map(|device| (device.name.as_str(), device.state, device.this_one)).collect();
    assert_eq!(told, [("this machine", DeviceState::Active, true)]);
    let agent = lab.agent().identity().await.unwrap();
    let tokens = owner.tokens().await.unwrap().tokens;
    let told: Vec<_> = tokens.iter().map(|token| (token.name.as_str(), token.state, Some(&token.id))).collect();
    assert_eq!(told, [("agents on this machine", TokenState::Active, agent.token.as_ref())]);
    assert_eq!(lab.leftovers(), [""; 0]);
}
