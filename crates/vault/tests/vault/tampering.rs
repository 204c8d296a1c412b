//! What somebody could do to the file of a vault, and what comes of it.

use std::fs;

use palyra_vault::{Belief, OpenError, Vault, VaultError};

use crate::place::{Place, bind, put, read, secret};

/// A vault with a few of everything, closed.
fn closed() -> Place {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "the value of a");
    place.put(&vault, "b", "the value of b");
    place.change(&vault, bind("a", "api.example.org"));
    place.put(&vault, "a", "another value of a");
    place
}

fn holds_everything(place: &mut Place) {
    let vault = place.open();
    assert_eq!(read(&vault, "a").as_deref(), Some("another value of a"));
    assert_eq!(read(&vault, "b").as_deref(), Some("the value of b"));
    assert_eq!(vault.describe(&secret("a")).unwrap().bindings.len(), 1);
}

#[test]
fn no_byte_of_the_file_can_be_changed() {
    let mut place = closed();
    let sound = fs::read(place.file()).unwrap();
    for at in 0..sound.len() {
        for bit in [0, 7] {
            let mut changed = sound.clone();
            changed[at] ^= 1 << bit;
            fs::write(place.file(), &changed).unwrap();
            let error = place.try_open().unwrap_err();
            assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Forked { .. }), "byte {at}: {error}");
            assert!(!error.to_string().is_empty() && !error.advice().is_empty());
            assert_eq!(fs::read(place.file()).unwrap(), changed, "nothing is repaired behind anybody's back");
        }
    }
    fs::write(place.file(), &sound).unwrap();
    holds_everything(&mut place);
}

#[test]
fn no_byte_of_the_file_can_be_changed_while_it_is_open() {
    let mut place = closed();
    let vault = place.open();
    let sound = fs::read(place.file()).unwrap();
    let right = [Some("another value of a".to_owned()), Some("the value of b".to_owned())];
    let mut noticed = 0;
    for at in 0..sound.len() {
        let mut changed = sound.clone();
        changed[at] ^= 1;
        fs::write(place.file(), &changed).unwrap();
        let found = ["a", "b"].map(|name| read(&vault, name));
        for (found, right) in found.iter().zip(&right) {
            assert!(found.is_none() || found == right, "byte {at}");
            noticed += usize::from(found.is_none());
        }
    }
    // The bytes of both values, with what sealing adds, stop one of the two each.
    assert_eq!(noticed, "another value of a".len() + "the value of b".len() + 2 * 40);
    fs::write(place.file(), &sound).unwrap();
    assert_eq!(["a", "b"].map(|name| read(&vault, name)), right);
}

#[test]
fn a_file_that_was_cut_or_has_more_than_was_written_loses_nothing_that_was_told() {
    let mut place = closed();
    let sound = fs::read(place.file()).unwrap();
    for length in 0..sound.len() {
        fs::write(place.file(), &sound[..length]).unwrap();
        let error = place.try_open().unwrap_err();
        let is_told = matches!(error, OpenError::Damaged { .. } | OpenError::RolledBack { .. });
        assert!(is_told, "cut at {length}: {error}");
    }
    // What nobody was told of may be cut off: it was being written when the daemon ended.
    for more in [&b"x"[..], &[0; 100], &sound[sound.len() - 50..]] {
        fs::write(place.file(), [&sound, more].concat()).unwrap();
        holds_everything(&mut place);
        assert_eq!(fs::read(place.file()).unwrap(), sound);
    }
}

#[test]
fn frames_cannot_change_places() {
    let mut place = Place::new();
    let vault = place.open();
    let mut ends = vec![fs::metadata(place.file()).unwrap().len() as usize];
    for name in ["a", "b", "c"] {
        place.put(&vault, name, &format!("value of {name}"));
        ends.push(fs::metadata(place.file()).unwrap().len() as usize);
    }
    drop(vault);
    let sound = fs::read(place.file()).unwrap();
    let [start, first, second, third] = ends[..] else { panic!() };
    let (head, a, b, c) = (&sound[..start], &sound[start..first], &sound[first..second], &sound[second..third]);
    for frames in [[b, a, c], [a, c, b], [c, b, a], [a, a, b], [a, b, b], [b, b, c]] {
        fs::write(place.file(), [head, &frames.concat()].concat()).unwrap();
        assert!(place.try_open().is_err());
        // Nor does an owner's word make them genuine.
        assert!(Vault::open(place.ground(), Belief::File).is_err());
    }
}

#[test]
fn values_cannot_be_swapped_even_by_somebody_who_mends_all_digests() {
    let mut place = Place::new();
    let vault = place.open();
    let mut ends = vec![fs::metadata(place.file()).unwrap().len() as usize];
    for name in ["a", "b"] {
        place.put(&vault, name, "twelve bytes");
        ends.push(fs::metadata(place.file()).unwrap().len() as usize);
    }
    drop(vault);
    let sound = fs::read(place.file()).unwrap();
    let frame = |bytes: &[u8], from: usize, to: usize| bytes[from..to - 32].to_vec();
    let (mut a, mut b) = (frame(&sound, ends[0], ends[1]), frame(&sound, ends[1], ends[2]));
    let value = 12 + 40;
    let (at_a, at_b) = (a.len() - value, b.len() - value);
    a[at_a..].swap_with_slice(&mut b[at_b..]);
    // The digests are no secret, so whoever swaps values can have them right.
    let mut file = sound[..ends[0]].to_vec();
    let mut head = palyra_types::Sha256Digest::of(&file);
    for frame in [a, b] {
        let mut digest = palyra_types::RunningDigest::default();
        digest.update(head.as_bytes());
        digest.update(&frame);
        head = digest.finish();
        file.extend([&frame[..], head.as_bytes()].concat());
    }
    fs::write(place.file(), &file).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::Forked { known: 3, .. }));
    // If even the journal were changed: the second description was sealed for what came before it, so it opens no more.
    let error = Vault::open(place.ground(), Belief::File).unwrap_err();
    assert!(matches!(error, OpenError::NotGenuine { .. }), "{error}");
}

#[test]
fn an_old_copy_is_refused_until_an_owner_says_that_it_is_meant() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "old");
    let (old, old_keys) = (fs::read(place.file()).unwrap(), fs::read_dir(place.keys()).unwrap().count());
    place.put(&vault, "a", "new");
    drop(vault);
    let newest = fs::read(place.file()).unwrap();
    fs::write(place.file(), &old).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(matches!(error, OpenError::RolledBack { found: 2, known: 3, .. }), "{error}");
    assert_eq!(fs::read(place.file()).unwrap(), old);
    fs::write(place.file(), &newest).unwrap();
    assert_eq!(read(&place.open(), "a").as_deref(), Some("new"));

    fs::write(place.file(), &old).unwrap();
    let opened = Vault::open(place.ground(), Belief::File).unwrap();
    assert!(opened.is_news);
    assert_eq!((read(&opened.vault, "a").as_deref(), old_keys), (Some("old"), 1));
}

#[test]
fn another_vault_in_its_place_is_refused() {
    let mut place = closed();
    let (mut other, known) = (closed(), place.known.unwrap());
    fs::copy(other.file(), place.file()).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(matches!(error, OpenError::Forked { known: at, .. } if at == known.generation), "{error}");
    // Also for an owner: its key is not here.
    assert!(matches!(Vault::open(place.ground(), Belief::File).unwrap_err(), OpenError::KeyMissing(_)));
    fs::remove_file(place.file()).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::Missing { .. }));
    // A journal that knows of no vault does not take one for its own.
    place.known = None;
    fs::copy(other.file(), place.file()).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::Unknown { found: 5, .. }));
    holds_everything(&mut other);
}

#[test]
fn a_file_that_is_replaced_or_cut_under_an_open_vault_takes_no_more_secrets() {
    let mut place = closed();
    let vault = place.open();
    let sound = fs::read(place.file()).unwrap();
    fs::write(place.file(), &sound[..sound.len() - 10]).unwrap();
    assert!(matches!(vault.stage(put("c", "x")), Err(VaultError::Meddled)));
    fs::write(place.file(), &sound).unwrap();
    vault.stage(put("c", "x")).unwrap().undo();

    let beside = place.file().with_extension("copy");
    fs::copy(place.file(), &beside).unwrap();
    fs::rename(&beside, place.file()).unwrap();
    // Whatever is put now would be gone with the file that nobody finds any more.
    assert!(matches!(vault.stage(put("c", "x")), Err(VaultError::Meddled)));
    assert_eq!(read(&vault, "b").as_deref(), Some("the value of b"));
}

#[test]
fn a_link_a_pipe_or_a_file_of_others_is_not_opened() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = closed();
    let beside = place.directory.path().join("elsewhere");
    fs::rename(place.file(), &beside).unwrap();
    std::os::unix::fs::symlink(&beside, place.file()).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::NotRegular(_)));
    fs::remove_file(place.file()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.file(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::NotRegular(_)));
    fs::remove_file(place.file()).unwrap();
    fs::rename(&beside, place.file()).unwrap();
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(place.try_open().unwrap_err(), OpenError::OpenToOthers(_)));
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o600)).unwrap();
    holds_everything(&mut place);
}
