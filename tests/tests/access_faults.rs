//! A disk that fails under a running daemon, and a registry that somebody damaged: what cannot be kept is not granted, the old state stays
//! byte for byte, those who are let in go on, what is taken away is taken away as soon as it can be, and nothing begins anew by itself.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Stdio},
};

use palyra_api::{
    device::{DeviceState, NewPairing, PairingState},
    journal::RecordQuery,
    token::{MintedToken, RevokeToken, RotateToken, Token},
};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, program, refused},
    paired::{Granting, grant, pair},
    strace::Fault,
    token::token_named,
    until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_registry_cannot_be_saved_nothing_changes_and_everybody_goes_on() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let mut kept = owner.mint_token(&token_named("kept")).await.unwrap();
    for (call, error) in SAVING {
        let before = (lab.registry(), tokens(&owner).await);
        let fault = fault_of_registry(&lab, call, error);
        nothing_is_changed(&owner, &kept).await;
        assert_eq!(lab.holder_of(&kept.secret).identity().await.unwrap().token.as_ref(), Some(&kept.token.id));
        lab.agent().identity().await.unwrap();
        assert_eq!((lab.registry(), tokens(&owner).await), before, "{call} {error}");
        assert!(fault.end() >= 3, "{call} {error} was not felt");
        assert_eq!(lab.leftovers(), [""; 0], "{call} {error}");
        owner.revoke_token(&kept.token.id, &RevokeToken::default()).await.unwrap();
        assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), (401, "revoked".to_owned()));
        kept = owner.mint_token(&token_named("kept")).await.unwrap();
        lab.holder_of(&kept.secret).identity().await.unwrap();
    }
    let unkept = kinds(&owner).await.into_iter().filter(|kind| kind == "access.unkept").count();
    assert_eq!(unkept, 2 * SAVING.len(), "each grant that was not kept is on record as such");
    assert!(owner.verify().await.unwrap().ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_while_the_registry_cannot_be_saved_leaves_the_old_one() {
    let mut lab = DaemonLab::new();
    let kept = lab.owner().mint_token(&token_named("kept")).await.unwrap();
    let before = (lab.registry(), tokens(&lab.owner()).await);
    for (call, error) in SAVING {
        let fault = fault_of_registry(&lab, call, error);
        nothing_is_changed(&lab.owner(), &kept).await;
        lab.kill();
        assert!(fault.end() >= 3, "{call} {error} was not felt");
        lab.start();
        assert_eq!((lab.registry(), tokens(&lab.owner()).await), before, "{call} {error}");
        lab.holder_of(&kept.secret).identity().await.unwrap();
    }
    lab.owner().revoke_token(&kept.token.id, &RevokeToken::default()).await.unwrap();
    assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), (401, "revoked".to_owned()));
}

/// Asks for everything that would have to be saved.
async fn nothing_is_changed(owner: &Client, kept: &MintedToken) {
    let unkept = (503, "unkept".to_owned());
    assert_eq!(refused(owner.mint_token(&token_named("unkept")).await.unwrap_err()), unkept);
    assert_eq!(refused(owner.rotate_token(&kept.token.id, &RotateToken::default()).await.unwrap_err()), unkept);
    assert_eq!(refused(owner.revoke_token(&kept.token.id, &RevokeToken::default()).await.unwrap_err()), unkept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_stay_on_the_disk_is_refused_and_gone_with_the_next_save() {
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    let kept = owner.mint_token(&token_named("kept")).await.unwrap();
    let before = tokens(&owner).await;
    // The directory, after the new file is in place.
    let fault = Fault::begin(&lab, "fsync", "EIO", &[lab.home().to_owned()]);
    let unkept = (503, "unkept".to_owned());
    assert_eq!(refused(owner.mint_token(&token_named("unkept")).await.unwrap_err()), unkept);
    assert_eq!(refused(owner.revoke_token(&kept.token.id, &RevokeToken::default()).await.unwrap_err()), unkept);
    assert_eq!(tokens(&owner).await, before, "what is in force is the old state");
    assert!(fault.end() >= 2, "it was not felt");
    owner.revoke_token(&kept.token.id, &RevokeToken::default()).await.unwrap();
    assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), (401, "revoked".to_owned()));
    lab.kill();
    lab.start();
    let names: Vec<_> = tokens(&lab.owner()).await.into_iter().map(|token| token.name).collect();
    assert_eq!(names, ["agents on this machine", "kept"]);
    assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), (401, "revoked".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_journal_nothing_is_granted_and_what_is_revoked_is_out_all_the_same() {
    let mut lab = DaemonLab::new();
    for (call, error) in [("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("fdatasync", "EIO")] {
        let owner = lab.owner();
        let kept = owner.mint_token(&token_named("kept")).await.unwrap();
        let before = (lab.registry(), tokens(&owner).await);
        let journal = ["journal.db", "journal.db-wal"].map(|name| lab.journal().join(name));
        let fault = Fault::begin(&lab, call, error, &journal);
        let unrecorded = (503, "journal_unwritable".to_owned());
        assert_eq!(refused(owner.mint_token(&token_named("unrecorded")).await.unwrap_err()), unrecorded, "{call}");
        assert_eq!((lab.registry(), tokens(&owner).await), before, "{call} {error}");
        lab.holder_of(&kept.secret).identity().await.unwrap();
        let revoked = owner.revoke_token(&kept.token.id, &RevokeToken::default()).await;
        assert_eq!(refused(revoked.unwrap_err()), unrecorded, "{call} {error}");
        let out = (401, "revoked".to_owned());
        assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), out);
        assert!(fault.end() >= 2, "{call} {error} was not felt");
        lab.kill();
        lab.start();
        assert_eq!(refused(lab.holder_of(&kept.secret).identity().await.unwrap_err()), out);
        let names: Vec<_> = tokens(&lab.owner()).await.into_iter().map(|token| token.name).collect();
        assert!(!names.contains(&"unrecorded".to_owned()), "{names:?}");
        assert!(lab.owner().verify().await.unwrap().ok);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_can_be_written_again_grants_again() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let fault = Fault::begin(&lab, "fdatasync", "EIO", &[lab.journal().join("journal.db-wal")]);
    owner.mint_token(&token_named("unrecorded")).await.unwrap_err();
    assert!(fault.end() >= 1);
    until(|| async { owner.mint_token(&token_named("recorded")).await.is_ok() }).await;
    let names: Vec<_> = tokens(&owner).await.into_iter().map(|token| token.name).collect();
    assert_eq!(names, ["agents on this machine", "recorded"]);
    assert!(owner.verify().await.unwrap().ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_cannot_be_kept_is_not_let_in_and_another_is_paired_afterwards() {
    let mut lab = DaemonLab::new();
    for (call, error) in [("openat", "ENOSPC"), ("write", "EIO"), ("fsync", "EIO"), (RENAME, "EIO")] {
        let before = lab.owner().devices().await.unwrap().devices.len();
        let Granting { mut device, identity, confirming } = grant(&lab, lab.owner(), &NewPairing::default()).await;
        // Only what lets it in is left to be saved.
        let fault = fault_of_registry(&lab, call, error);
        assert_eq!(device.kept().await, Err("internal".to_owned()), "{call} {error}");
        assert_eq!(confirming.await.unwrap().unwrap().state, PairingState::Over);
        assert_eq!(refused(lab.of_device(&identity).identity().await.unwrap_err()).0, 401);
        assert!(fault.end() >= 1, "{call} {error} was not felt");
        assert_eq!(refused(lab.of_device(&identity).identity().await.unwrap_err()).0, 401);
        lab.of_device(&pair(&lab, &NewPairing::default()).await).identity().await.unwrap();
        lab.kill();
        lab.start();
        let unknown = (401, "unknown_device".to_owned());
        assert_eq!(refused(lab.of_device(&identity).identity().await.unwrap_err()), unknown);
        let devices = lab.owner().devices().await.unwrap().devices;
        assert!(devices.iter().all(|device| device.state == DeviceState::Active), "{devices:?}");
        assert_eq!(devices.len(), before + 1);
    }
}

#[test]
fn a_registry_that_is_gone_or_damaged_keeps_the_daemon_from_starting_and_stays_as_it_is() {
    let mut lab = DaemonLab::new();
    assert!(lab.stop().success());
    let path = lab.home().join("access_registry.json");
    let (whole, middle) = (lab.registry(), lab.registry().len() / 2);
    let flipped = |place: usize| {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x04;
        damaged
    };
    let not_json = "restore the file from a backup; it was cut off or overwritten";
    let altered = "restore the file from a backup; it is not to be edited, only changed through the daemon";
    for (damaged, cause, help) in [
        (Vec::new(), "the access registry cannot be used: it is not JSON", not_json),
        (whole[..middle].to_vec(), "the access registry cannot be used: it is not JSON", not_json),
        (whole[..whole.len() - 2].to_vec(), "the access registry cannot be used: it is not JSON", not_json),
        (vec![0; whole.len()], "the access registry cannot be used: it is not JSON", not_json),
        (flipped(0), "the access registry cannot be used: it is not JSON", not_json),
        (flipped(find(&whole, "user:owner")), "the access registry cannot be used: its content was altered", altered),
        (flipped(whole.len() - 4), "the access registry cannot be used: ", "restore the file from a backup"),
        (flipped(find(&whole, "\"version\":1") + 10), "it is of version 5", "or restore the file from a backup"),
    ] {
        fs::write(&path, &damaged).unwrap();
        does_not_start(&lab, cause, help);
        assert_eq!(lab.registry(), damaged, "{cause}");
    }
    fs::write(&path, &whole).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    does_not_start(&lab, "is open to other users", "chmod 600");
    fs::rename(&path, path.with_extension("away")).unwrap();
    symlink(path.with_extension("away"), &path).unwrap();
    does_not_start(&lab, "is not a regular file", "move");
    fs::remove_file(&path).unwrap();
    does_not_start(&lab, "access_registry.json is gone", "restore it from a backup");
    assert!(!path.exists(), "it is begun anew, and everybody who was revoked is forgotten");
    fs::rename(path.with_extension("away"), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    lab.start();
    assert_eq!(lab.registry(), whole);
}

/// Tries to start the daemon in both ways, and to found it anew.
fn does_not_start(lab: &DaemonLab, cause: &str, help: &str) {
    let run = |mut command: Command| command.stdin(Stdio::null()).output().unwrap();
    let with = |word: &str| {
        let mut command = lab.palyra();
        command.arg(word);
        run(command)
    };
    for (name, told) in [("palyrad", run(lab.command(&program("palyrad")))), ("up", with("up")), ("init", with("init"))]
    {
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!((told.status.code(), told.stdout.as_slice()), (Some(1), b"".as_slice()), "{name}: {said}");
        assert!(said.starts_with("error: the daemon does not start\ncause: "), "{name}: {said}");
        assert!(said.contains(cause) && said.contains("\nhelp:  ") && said.contains(help), "{name}: {said}");
    }
}

/// Lets a call fail when it is about the file that becomes the registry.
fn fault_of_registry(lab: &DaemonLab, call: &str, error: &str) -> Fault {
    let file = |number| lab.home().join(format!(".access_registry.json.new-{}-{number}", lab.pid()));
    let mut paths: Vec<_> = (0..SAVES).map(file).collect();
    if call != "fsync" {
        // Names are looked up from it. That it is written to the disk itself comes after the registry is in place.
        paths.push(lab.home().to_owned());
    }
    Fault::begin(lab, call, error, &paths)
}

/// All tokens, but for when they were used.
async fn tokens(owner: &Client) -> Vec<Token> {
    let tokens = owner.tokens().await.unwrap().tokens;
    tokens.into_iter().map(|token| Token { last_used: None, ..token }).collect()
}

async fn kinds(owner: &Client) -> Vec<String> {
    let query = RecordQuery { from: Some(0), limit: Some(1_000) };
    owner.records(&query).await.unwrap().records.into_iter().map(|record| record.kind).collect()
}

/// Where a text begins.
fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

/// The steps of a save until the new file is in place, and how the disk can fail them.
const SAVING: [(&str, &str); 8] = [
    ("openat", "ENOSPC"),
    ("openat", "EIO"),
    ("write", "ENOSPC"),
    ("write", "EIO"),
    ("fsync", "ENOSPC"),
    ("fsync", "EIO"),
    (RENAME, "ENOSPC"),
    (RENAME, "EIO"),
];

const RENAME: &str = "renameat,renameat2";

/// More than one daemon saves here.
const SAVES: u32 = 128;
