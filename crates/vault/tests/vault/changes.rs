//! What a vault keeps, and how it changes.

use std::fs;

use palyra_types::{HostName, Timestamp};
use palyra_vault::{
    Belief, BindingTerms, NewSecret, OpenError, Vault, VaultChange, VaultError,
    backend::{BackendError, BackendKind, Passphrase},
};

use crate::place::{Place, bind, new, put, read, secret, value};

#[test]
fn a_secret_is_there_after_the_vault_was_closed_and_nowhere_in_the_open() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "github", "ghp_canary_canary_canary");
    assert_eq!(read(&vault, "github").as_deref(), Some("ghp_canary_canary_canary"));
    drop(vault);
    let vault = place.open();
    assert_eq!(read(&vault, "github").as_deref(), Some("ghp_canary_canary_canary"));
    let file = fs::read(place.file()).unwrap();
    let holds = |what: &[u8]| file.windows(what.len()).any(|window| window == what);
    assert!(!holds(b"canary") && !holds(b"github"), "names and values are sealed");
    assert!(!format!("{vault:?} {:?}", vault.get(&secret("github"))).contains("canary"));
}

#[test]
fn the_newest_version_counts_and_earlier_ones_are_dropped_in_time() {
    let mut place = Place::new();
    let vault = place.open();
    for (number, text) in [(1, "one"), (2, "two"), (3, "three")] {
        let added = place.change(&vault, put("a", text));
        assert_eq!(added.versions, [(secret("a"), number)]);
        assert_eq!(read(&vault, "a").as_deref(), Some(text));
    }
    let versions: Vec<u32> = vault.describe(&secret("a")).unwrap().versions.iter().map(|one| one.number).collect();
    assert_eq!(versions, [3, 2]);
    drop(vault);
    let vault = place.open();
    assert_eq!(read(&vault, "a").as_deref(), Some("three"));
    place.change(&vault, VaultChange::Remove { secret: secret("a"), version: Some(3) });
    assert_eq!(read(&vault, "a").as_deref(), Some("two"));
    // The number is free again, and the value of before is sealed for another generation.
    assert_eq!(place.change(&vault, put("a", "four")).versions, [(secret("a"), 3)]);
}

#[test]
fn what_is_removed_is_gone_from_the_file() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "first");
    place.put(&vault, "b", "second");
    place.change(&vault, bind("a", "api.example.org"));
    place.change(&vault, bind("b", "api.example.org"));
    let length = fs::metadata(place.file()).unwrap().len();
    place.change(&vault, VaultChange::Remove { secret: secret("a"), version: None });
    assert!(fs::metadata(place.file()).unwrap().len() < length);
    assert!(matches!(vault.get(&secret("a")), Err(VaultError::NoSecret(_))));
    drop(vault);
    let vault = place.open();
    assert_eq!((read(&vault, "a"), read(&vault, "b").as_deref()), (None, Some("second")));
    // Nor does a new secret of the same name inherit where the old one could go.
    place.put(&vault, "a", "another");
    assert!(vault.describe(&secret("a")).unwrap().bindings.is_empty());
    assert_eq!(vault.describe(&secret("b")).unwrap().bindings.len(), 1);
}

#[test]
fn a_secret_ends_when_it_expires() {
    let mut place = Place::new();
    let vault = place.open();
    let expires = Timestamp::from_unix_millis(1_000_500);
    let short = NewSecret { expires: Some(expires), rotate_after_days: Some(1), ..new("a", "x") };
    place.change(&vault, VaultChange::Add { secrets: vec![short], bindings: Vec::new() });
    assert!(read(&vault, "a").is_some());
    place.clock.advance(499);
    assert!(read(&vault, "a").is_some());
    place.clock.advance(1);
    assert!(matches!(vault.get(&secret("a")), Err(VaultError::Expired { at, .. }) if at == expires));
    assert!(vault.describe(&secret("a")).unwrap().has_expired(expires));
    // A value put anew does not expire with the old one, and the age that it may reach is as before.
    place.put(&vault, "a", "y");
    let about = vault.describe(&secret("a")).unwrap();
    assert_eq!((about.expires, about.rotate_after_days), (None, Some(1)));
    assert!(!about.is_due(Timestamp::from_unix_millis(1_000_500)));
    assert!(about.is_due(Timestamp::from_unix_millis(1_000_500 + 24 * 3_600_000)));
    let late = NewSecret { expires: Some(expires), ..new("b", "x") };
    let change = VaultChange::Add { secrets: vec![late], bindings: Vec::new() };
    assert!(matches!(vault.stage(change), Err(VaultError::Past(_))));
}

#[test]
fn a_new_key_opens_everything_and_the_old_one_is_gone() {
    let mut place = Place::new();
    let vault = place.open();
    for number in 0..20 {
        place.put(&vault, &format!("s{number}"), &format!("value {number}"));
    }
    place.change(&vault, bind("s3", "api.example.org"));
    let before = keys_of(&place);
    assert_eq!((before.len(), vault.key_number()), (1, 1));
    let old = fs::read(place.keys().join(&before[0])).unwrap();
    // Whoever reads meanwhile is not held up, and reads what was there.
    let staged = vault.stage(VaultChange::RotateKey).unwrap();
    assert_eq!(read(&vault, "s7").as_deref(), Some("value 7"));
    place.known = Some(staged.after());
    staged.confirm();
    let after = keys_of(&place);
    assert_eq!((after.len(), vault.key_number()), (1, 2));
    assert_ne!(fs::read(place.keys().join(&after[0])).unwrap(), old);
    for vault in [vault, place.open()] {
        for number in 0..20 {
            assert_eq!(read(&vault, &format!("s{number}")), Some(format!("value {number}")));
        }
        assert_eq!(vault.describe(&secret("s3")).unwrap().bindings.len(), 1);
    }
    place.known = None;
    // The old key opens nothing of the new file.
    fs::write(place.keys().join(&after[0]), old).unwrap();
    assert!(matches!(Vault::open(place.ground(), Belief::File), Err(OpenError::WrongKey(BackendKind::KeyFile))));
}

fn keys_of(place: &Place) -> Vec<String> {
    let all = fs::read_dir(place.keys()).unwrap();
    all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_change_that_is_undone_leaves_everything_as_it_was() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "x");
    let before = (fs::read(place.file()).unwrap(), keys_of(&place), vault.head());
    let remove = || VaultChange::Remove { secret: secret("a"), version: None };
    for change in [put("b", "y"), put("a", "z"), remove(), VaultChange::RotateKey, bind("a", "api.example.org")] {
        let staged = vault.stage(change).unwrap();
        assert_ne!(staged.after(), before.2);
        // Nobody sees it, and nobody else changes anything meanwhile.
        assert_eq!((read(&vault, "a").as_deref(), read(&vault, "b")), (Some("x"), None));
        assert!(matches!(vault.stage(put("c", "c")), Err(VaultError::Busy)));
        staged.undo();
        assert_eq!((fs::read(place.file()).unwrap(), keys_of(&place), vault.head()), before);
        assert!(!place.next().exists());
    }
    place.put(&vault, "b", "y");
    assert_eq!(read(&vault, "b").as_deref(), Some("y"));
}

#[test]
fn a_binding_is_made_once_for_a_secret_that_is_there() {
    let mut place = Place::new();
    let vault = place.open();
    assert!(matches!(vault.stage(bind("a", "api.example.org")), Err(VaultError::NoSecret(_))));
    place.put(&vault, "a", "x");
    let id = place.change(&vault, bind("a", "api.example.org")).bindings[0].id;
    assert!(matches!(vault.stage(bind("a", "api.example.org")), Err(VaultError::Bound(same)) if same == id));
    let other = place.change(&vault, bind("a", "other.example.org")).bindings[0].id;
    assert_ne!(id, other);
    place.change(&vault, VaultChange::Unbind(other));
    assert!(matches!(vault.stage(VaultChange::Unbind(other)), Err(VaultError::NoBinding(_))));
    let third = place.change(&vault, bind("a", "third.example.org")).bindings[0].id;
    assert!(third > other, "no number is given twice");
    drop(vault);
    let vault = place.open();
    let hosts: Vec<String> =
        vault.describe(&secret("a")).unwrap().bindings.iter().map(|one| one.terms.host.to_string()).collect();
    assert_eq!(hosts, ["api.example.org", "third.example.org"]);
}

#[test]
fn values_and_bindings_are_added_all_together_or_not_at_all() {
    let mut place = Place::new();
    let vault = place.open();
    let host = HostName::parse("api.example.org").unwrap();
    let terms = |name| BindingTerms::usual(secret(name), host.clone());
    let both = |name| VaultChange::Add { secrets: vec![new("a", "x"), new("b", "y")], bindings: vec![terms(name)] };
    assert!(matches!(vault.stage(both("c")), Err(VaultError::NoSecret(_))));
    assert_eq!(vault.count(), 0);
    let added = place.change(&vault, both("b"));
    assert_eq!((added.versions.len(), added.bindings.len(), vault.count()), (2, 1, 2));
    drop(vault);
    let vault = place.open();
    assert_eq!((read(&vault, "a").as_deref(), read(&vault, "b").as_deref()), (Some("x"), Some("y")));
}

#[test]
fn a_vault_opens_with_the_backend_that_holds_its_key_alone() {
    let mut place = Place::new();
    drop(place.open());
    let words = zeroize::Zeroizing::new("correct horse battery".to_owned());
    let entropy = std::sync::Arc::new(palyra_types::entropy::SystemEntropy);
    let mut ground = place.ground();
    ground.backend = std::sync::Arc::new(Passphrase::new(place.keys(), words, entropy).unwrap());
    let refused = Vault::open(ground, Belief::Journal(place.known)).unwrap_err();
    let told = (BackendKind::KeyFile, BackendKind::Passphrase);
    assert!(matches!(refused, OpenError::OtherBackend { recorded, configured } if (recorded, configured) == told));

    let key = place.keys().join(&keys_of(&place)[0]);
    let kept = fs::read(&key).unwrap();
    fs::write(&key, [9; 32]).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::WrongKey(BackendKind::KeyFile)));
    fs::remove_file(&key).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::KeyMissing(BackendKind::KeyFile)));
    fs::write(&key, kept).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(matches!(error, OpenError::Backend(BackendError::OpenToOthers(_))), "{error}");
}

#[test]
fn a_key_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = Place::new();
    drop(place.open());
    let file = place.keys().join(&keys_of(&place)[0]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.keys()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn notes_are_short_and_values_bounded() {
    let mut place = Place::new();
    let vault = place.open();
    let long = NewSecret { note: Some("x".repeat(600)), ..new("a", "x") };
    let change = VaultChange::Add { secrets: vec![long], bindings: Vec::new() };
    assert!(matches!(vault.stage(change), Err(VaultError::LongNote { length: 600 })));
    let large = NewSecret { value: value(&"v".repeat(64 << 10)), ..new("a", "x") };
    place.change(&vault, VaultChange::Add { secrets: vec![large], bindings: Vec::new() });
    assert_eq!(read(&vault, "a").unwrap().len(), 64 << 10);
}
