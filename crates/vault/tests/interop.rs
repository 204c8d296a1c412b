//! Other people's programs: Debian's age opens a backup, and a real keyring holds the key.
//!
//! `scripts/setup` installs them; without them these tests fail.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and these start the programs that they are about"
)]

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use palyra_types::{HostName, SecretRef, Timestamp, clock::SystemClock, entropy::SystemEntropy};
use palyra_vault::{
    Belief, BindingTerms, Ground, NewSecret, OpenError, SecretValue, Vault, VaultChange,
    backend::{BackendError, BackendKind, BlobBackend, KeyFile, Keyring},
    backup::{Backup, BackupError, Opening, Sealing},
};
use zeroize::Zeroizing;

const VALUE: &str = "ghp_canary\nwith two lines";

fn ground(directory: &Path, backend: Arc<dyn BlobBackend>) -> Ground {
    Ground {
        directory: directory.join("vault"),
        backend,
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        keep_versions: 1,
    }
}

fn vault(directory: &Path) -> Arc<Vault> {
    let backend = Arc::new(KeyFile::new(directory.join("keys")));
    Vault::open(ground(directory, backend), Belief::Journal(None)).unwrap().vault
}

fn secret(name: &str) -> SecretRef {
    SecretRef::parse(name).unwrap()
}

fn filled(directory: &Path) -> Arc<Vault> {
    let vault = vault(directory);
    let value = SecretValue::new(VALUE.as_bytes().to_vec()).unwrap();
    let note = Some("for the build".to_owned());
    let new =
        NewSecret { secret: secret("workspace:shop/github"), value, expires: None, rotate_after_days: Some(90), note };
    let binary = SecretValue::new(vec![0, 255, 1, 254]).unwrap();
    let other = NewSecret {
        secret: secret("global/bytes"),
        value: binary,
        expires: Some(Timestamp::from_unix_millis(4_000_000_000_000)),
        rotate_after_days: None,
        note: None,
    };
    let terms = BindingTerms::usual(secret("workspace:shop/github"), HostName::parse("api.example.org").unwrap());
    vault.stage(VaultChange::Add { secrets: vec![new, other], bindings: vec![terms] }).unwrap().confirm();
    vault
}

fn run(program: &str, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; run scripts/setup"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_export_opens_with_age_and_what_age_encrypts_is_imported() {
    let place = tempfile::tempdir().unwrap();
    let key = place.path().join("key.txt");
    let made = run("age-keygen", &["-o", key.to_str().unwrap()], b"");
    assert!(made.status.success(), "{made:?}");
    let identity = fs::read_to_string(&key).unwrap();
    let recipient = identity.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap().to_owned();

    let from = filled(place.path());
    let backup = from.export(&Sealing::Recipients(vec![recipient.clone()])).unwrap();
    assert!(backup.starts_with(b"-----BEGIN AGE ENCRYPTED FILE-----"));
    let opened = run("age", &["--decrypt", "-i", key.to_str().unwrap()], &backup);
    assert!(opened.status.success(), "{opened:?}");
    let document: serde_json::Value = serde_json::from_slice(&opened.stdout).unwrap();
    assert_eq!(document["palyra_vault_backup"], 1);
    assert_eq!(document["secrets"][1]["secret"], "workspace:shop/github");

    // The other way round: what age has encrypted anew is a backup, too.
    let again = run("age", &["--encrypt", "-r", &recipient], &opened.stdout);
    assert!(again.status.success());
    let opening = Opening::Identities(Zeroizing::new(identity));
    for backup in [backup, again.stdout] {
        let directory = tempfile::tempdir().unwrap();
        let into = vault(directory.path());
        let (change, left_out) = Backup::open(&backup, &opening).unwrap().into_change(&into);
        assert_eq!(left_out, 0);
        into.stage(change).unwrap().confirm();
        assert_eq!(into.get(&secret("workspace:shop/github")).unwrap().value.expose(), VALUE.as_bytes());
        assert_eq!(into.get(&secret("global/bytes")).unwrap().value.expose(), [0, 255, 1, 254]);
        let about = into.describe(&secret("workspace:shop/github")).unwrap();
        assert_eq!((about.rotate_after_days, about.note.as_deref()), (Some(90), Some("for the build")));
        assert_eq!(about.bindings[0].terms, from.describe(&secret("workspace:shop/github")).unwrap().bindings[0].terms);
        // Once more: all of it is there.
        let (change, left_out) = Backup::open(&backup, &opening).unwrap().into_change(&into);
        assert_eq!(left_out, 3);
        into.stage(change).unwrap().confirm();
        assert_eq!(into.describe(&secret("workspace:shop/github")).unwrap().versions[0].number, 1);
    }
}

#[test]
fn a_backup_opens_for_its_passphrase_alone_and_a_changed_one_for_nobody() {
    let place = tempfile::tempdir().unwrap();
    let words = |words: &str| Zeroizing::new(words.to_owned());
    let backup = filled(place.path()).export(&Sealing::Passphrase(words("correct horse battery staple"))).unwrap();
    assert!(Backup::open(&backup, &Opening::Passphrase(words("correct horse battery staple"))).is_ok());
    let refused = |backup: &[u8], words_: &str| Backup::open(backup, &Opening::Passphrase(words(words_))).unwrap_err();
    assert!(matches!(refused(&backup, "wrong"), BackupError::NotOpened));
    assert!(matches!(refused(b"something else", "correct horse battery staple"), BackupError::NotABackup));
    let text = String::from_utf8(backup).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.len() - 2;
    lines.remove(last);
    let cut = lines.join("\n") + "\n";
    assert!(matches!(refused(cut.as_bytes(), "correct horse battery staple"), BackupError::NotOpened));
    let nobody = vault(tempfile::tempdir().unwrap().path()).export(&Sealing::Recipients(Vec::new()));
    assert!(matches!(nobody.unwrap_err(), BackupError::Nobody));
    let other = vault(tempfile::tempdir().unwrap().path()).export(&Sealing::Recipients(vec!["age1nobody".into()]));
    assert!(matches!(other.unwrap_err(), BackupError::Recipient(_)));
}

/// Runs a test of this file in a D-Bus session of its own, with a keyring that is unlocked, locked, or not there.
fn in_session(test: &str, keyring: &str, place: &Path) {
    let this = std::env::current_exe().unwrap();
    let script = format!("set -e\n{keyring}\nexec \"$1\" --exact {test} --ignored --nocapture --test-threads 1",);
    let mut command = Command::new("dbus-run-session");
    command.args(["--", "sh", "-c", &script, "sh"]).arg(this).current_dir(place);
    let home = place.join("home");
    fs::create_dir_all(home.join("run")).unwrap();
    // A session of its own in every respect: nothing of the machine's own keyrings is seen or changed.
    command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("DISPLAY").env_remove("GNOME_KEYRING_CONTROL");
    command.env("HOME", &home).env("XDG_RUNTIME_DIR", home.join("run")).env("PLACE", place);
    for (name, directory) in [("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache")] {
        command.env(name, home.join(directory));
    }
    let output = command.output().unwrap_or_else(|error| panic!("dbus-run-session: {error}; run scripts/setup"));
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

/// Starts gnome-keyring with an unlocked login keyring.
const UNLOCKED: &str = "printf %s pass-of-the-keyring | gnome-keyring-daemon --unlock --components=secrets >/dev/null";

#[test]
fn gnome_keyring_holds_the_key_of_a_vault() {
    let place = tempfile::tempdir().unwrap();
    in_session("keyring_session", UNLOCKED, place.path());
    // In another session the keyring still has it; without a keyring nothing opens, and nothing falls back to anything.
    in_session("keyring_session_again", UNLOCKED, place.path());
    in_session("keyring_session_without_keyring", "true", place.path());
}

fn place() -> std::path::PathBuf {
    std::path::PathBuf::from(std::env::var("PLACE").unwrap())
}

#[test]
#[ignore = "runs in the session that `gnome_keyring_holds_the_key_of_a_vault` starts"]
fn keyring_session() {
    let keyring = Arc::new(Keyring::of_kind(BackendKind::SecretService).unwrap());
    assert!(matches!(Keyring::of_kind(BackendKind::Keychain), Err(BackendError::OtherSystem(_))));
    let vault = Vault::open(ground(&place(), keyring), Belief::Journal(None)).unwrap().vault;
    assert_eq!(vault.backend(), BackendKind::SecretService);
    let value = SecretValue::new(VALUE.as_bytes().to_vec()).unwrap();
    let new = NewSecret { secret: secret("global/github"), value, expires: None, rotate_after_days: None, note: None };
    vault.stage(VaultChange::Add { secrets: vec![new], bindings: Vec::new() }).unwrap().confirm();
    vault.stage(VaultChange::RotateKey).unwrap().confirm();
    assert_eq!(vault.key_number(), 2);
    fs::write(place().join("head"), serde_json::to_vec(&vault.head()).unwrap()).unwrap();
}

fn known() -> Belief {
    Belief::Journal(Some(serde_json::from_slice(&fs::read(place().join("head")).unwrap()).unwrap()))
}

#[test]
#[ignore = "runs in the session that `gnome_keyring_holds_the_key_of_a_vault` starts"]
fn keyring_session_again() {
    let keyring = Arc::new(Keyring::open().unwrap());
    let opened = Vault::open(ground(&place(), keyring), known()).unwrap();
    assert!(!opened.is_news);
    assert_eq!(opened.vault.get(&secret("global/github")).unwrap().value.expose(), VALUE.as_bytes());
}

#[test]
#[ignore = "runs in the session that `gnome_keyring_holds_the_key_of_a_vault` starts"]
fn keyring_session_without_keyring() {
    match Keyring::open() {
        Err(error) => assert!(matches!(error, BackendError::NoKeyring(_)), "{error}"),
        Ok(keyring) => {
            let error = Vault::open(ground(&place(), Arc::new(keyring)), known()).unwrap_err();
            assert!(matches!(error, OpenError::Backend(_)), "{error}");
        }
    }
    let file = Arc::new(KeyFile::new(place().join("keys")));
    let error = Vault::open(ground(&place(), file), known()).unwrap_err();
    assert!(matches!(error, OpenError::OtherBackend { .. }), "{error}");
}
