//! What a daemon that ends anywhere leaves, and what the next one makes of it.

use std::fs;

use palyra_vault::{OpenError, VaultChange};

use crate::place::{Place, put, read, secret};

/// Everything in the directories of a vault.
fn state(place: &Place) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let all = ["vault", "keys"].map(|name| place.directory.path().join(name));
    let files = all.iter().flat_map(|directory| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn restore(place: &Place, state: &[(std::path::PathBuf, Vec<u8>)]) {
    use std::os::unix::fs::PermissionsExt;
    for name in ["vault", "keys"] {
        for entry in fs::read_dir(place.directory.path().join(name)).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    for (path, bytes) in state {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn an_addition_is_there_whether_the_journal_heard_of_it_or_not() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "x");
    let staged = vault.stage(put("b", "y")).unwrap();
    let (after, on_disk) = (staged.after(), state(&place));
    drop((staged, vault));
    for heard in [false, true] {
        restore(&place, &on_disk);
        let known = place.known;
        if heard {
            place.known = Some(after);
        }
        let opened = place.try_open().unwrap();
        assert_eq!(opened.is_news, !heard);
        assert_eq!((read(&opened.vault, "a").as_deref(), read(&opened.vault, "b").as_deref()), (Some("x"), Some("y")));
        assert_eq!(opened.vault.head(), after);
        place.known = known;
    }
}

#[test]
fn every_beginning_of_an_addition_is_cut_off() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "x");
    let before = fs::metadata(place.file()).unwrap().len() as usize;
    let staged = vault.stage(put("b", "y")).unwrap();
    let whole = fs::read(place.file()).unwrap();
    drop((staged, vault));
    for length in before..whole.len() {
        fs::write(place.file(), &whole[..length]).unwrap();
        let opened = place.try_open().unwrap();
        assert!(!opened.is_news);
        assert_eq!((read(&opened.vault, "a").as_deref(), read(&opened.vault, "b")), (Some("x"), None));
        assert_eq!(fs::metadata(place.file()).unwrap().len() as usize, before);
    }
}

#[test]
fn a_file_that_was_written_anew_takes_its_place_when_the_journal_knows_it() {
    for change in [|| VaultChange::RotateKey, || VaultChange::Remove { secret: secret("b"), version: None }] {
        let mut place = Place::new();
        let vault = place.open();
        place.put(&vault, "a", "x");
        place.put(&vault, "b", "y");
        let staged = vault.stage(change()).unwrap();
        let (after, on_disk) = (staged.after(), state(&place));
        drop((staged, vault));
        let is_removed = matches!(change(), VaultChange::Remove { .. });
        for heard in [false, true] {
            restore(&place, &on_disk);
            assert!(place.next().exists());
            let known = place.known;
            if heard {
                place.known = Some(after);
            }
            let opened = place.try_open().unwrap();
            assert!(!opened.is_news && !place.next().exists());
            assert_eq!(Some(opened.vault.head()), place.known);
            assert_eq!(read(&opened.vault, "a").as_deref(), Some("x"));
            assert_eq!(read(&opened.vault, "b").is_none(), heard && is_removed);
            drop(opened);
            assert_eq!(Some(place.open().head()), place.known, "it stays in its place");
            place.known = known;
        }
    }
}

#[test]
fn a_file_beside_that_is_not_whole_is_not_taken() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "x");
    let staged = vault.stage(VaultChange::RotateKey).unwrap();
    let (after, on_disk, next) = (staged.after(), state(&place), fs::read(place.next()).unwrap());
    drop((staged, vault));
    place.known = Some(after);
    for length in 0..next.len() {
        restore(&place, &on_disk);
        fs::write(place.next(), &next[..length]).unwrap();
        let error = place.try_open().unwrap_err();
        assert!(matches!(error, OpenError::RolledBack { found: 2, known: 3, .. }), "{length}: {error}");
    }
}

#[test]
fn keys_that_a_crash_has_left_are_forgotten() {
    let mut place = Place::new();
    let vault = place.open();
    place.put(&vault, "a", "x");
    let keys = |place: &Place| fs::read_dir(place.keys()).unwrap().count();
    assert_eq!(keys(&place), 1);
    // Before the journal knew of it: the new one is of no use.
    drop((vault.stage(VaultChange::RotateKey).unwrap(), vault));
    assert_eq!(keys(&place), 2);
    let vault = place.open();
    assert_eq!((keys(&place), vault.key_number()), (1, 1));
    // After that: the old one is not.
    let staged = vault.stage(VaultChange::RotateKey).unwrap();
    place.known = Some(staged.after());
    drop((staged, vault));
    let vault = place.open();
    assert_eq!((keys(&place), vault.key_number()), (1, 2));
    assert_eq!(vault.get(&secret("a")).unwrap().value.expose(), b"x");
}

#[test]
fn a_vault_that_was_made_and_never_told_of_is_taken_as_new() {
    let mut place = Place::new();
    let vault = place.open();
    let head = vault.head();
    drop(vault);
    place.known = None;
    let opened = place.try_open().unwrap();
    assert!(opened.is_news);
    assert_eq!(opened.vault.head(), head);
}
