//! The registry in a file.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
    sync::Arc,
};

use palyra_access::{AccessRegistry, FileStore, OpenError, RegistryStore, StoreError, file_store::MOST_BYTES};
use palyra_types::{clock::ManualClock, entropy::SeededEntropy};

use super::lab::{at, user};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_saved_is_there_for_its_owner_alone_and_nothing_else_is_left() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let store = FileStore::open(&path).unwrap();
    assert_eq!(store.path(), path);
    assert_eq!(store.load().unwrap(), None);
    for document in [b"first".as_slice(), b"second"] {
        store.save(document).unwrap();
        assert_eq!(store.load().unwrap().as_deref(), Some(document));
    }
    assert_eq!(names(home.path()), ["access_registry.json", "access_registry.lock"]);
    assert_eq!((mode(&path), mode(&home.path().join("access_registry.lock"))), (0o600, 0o600));
}

#[test]
fn a_file_is_held_by_one_program_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let store = FileStore::open(&path).unwrap();
    let second = FileStore::open(&path).unwrap_err();
    assert!(matches!(&second, StoreError::Held(held) if *held == path));
    assert_eq!(second.advice(), "stop the other daemon first");
    drop(store);
    FileStore::open(&path).unwrap();
}

#[test]
fn a_file_that_is_not_the_owners_own_regular_private_one_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let store = FileStore::open(&path).unwrap();
    store.save(b"document").unwrap();
    for open in [0o640, 0o604, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        assert!(matches!(store.load(), Err(StoreError::OpenToOthers(_))), "{open:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(store.load().is_ok());
    // Only root gives files away.
    if fs::metadata(home.path()).unwrap().uid() == 0 {
        chown(&path, Some(65_534), None).unwrap();
        assert!(matches!(store.load(), Err(StoreError::Foreign(_))));
    }
    fs::rename(&path, home.path().join("elsewhere")).unwrap();
    symlink(home.path().join("elsewhere"), &path).unwrap();
    assert!(matches!(store.load(), Err(StoreError::NotRegular(_))), "a link");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(store.load(), Err(StoreError::NotRegular(_))), "a directory");
    fs::remove_dir(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(store.load(), Err(StoreError::NotRegular(_))), "a pipe, and nobody waits for it");
}

#[test]
fn a_file_that_is_too_large_is_neither_written_nor_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let store = FileStore::open(&path).unwrap();
    store.save(b"document").unwrap();
    let large = vec![b' '; usize::try_from(MOST_BYTES).unwrap() + 1];
    assert!(matches!(store.save(&large), Err(StoreError::TooLarge { bytes, .. }) if bytes == MOST_BYTES + 1));
    assert_eq!(store.load().unwrap().as_deref(), Some(b"document".as_slice()));
    fs::File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES * 4).unwrap();
    assert!(matches!(store.load(), Err(StoreError::TooLarge { .. })));
}

#[test]
fn what_an_interrupted_save_left_is_removed_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    for name in [".access_registry.json.new-7-0", ".access_registry.json.new-", ".other.new-7", "access_registry.json"]
    {
        fs::write(home.path().join(name), name).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let store = FileStore::open(&path).unwrap();
    assert_eq!(names(home.path()), [".other.new-7", "access_registry.json", "access_registry.lock"]);
    assert_eq!(store.load().unwrap().as_deref(), Some(b"access_registry.json".as_slice()));
}

#[test]
fn a_save_that_fails_leaves_the_document_and_no_leftovers() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let store = FileStore::open(&path).unwrap();
    // Nothing takes the place of a directory.
    fs::create_dir(&path).unwrap();
    assert!(matches!(store.save(b"document"), Err(StoreError::NotRegular(_))));
    assert_eq!(names(home.path()), ["access_registry.json", "access_registry.lock"]);
}

#[test]
fn a_path_that_names_no_file_of_a_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(FileStore::open(Path::new("/")), Err(StoreError::NoFile(_))));
    assert!(matches!(FileStore::open(&home.path().join("no/such.json")), Err(StoreError::Io { .. })));
}

#[test]
fn a_registry_that_was_founded_in_a_file_opens_from_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access_registry.json");
    let parts = || (Arc::new(ManualClock::at(at(0))), Arc::new(SeededEntropy::new(1)));
    let store = || Arc::new(FileStore::open(&path).unwrap());
    let (clock, entropy) = parts();
    assert!(matches!(AccessRegistry::open(store(), clock, entropy), Err(OpenError::Missing)));
    let (clock, entropy) = parts();
    let founded = AccessRegistry::create(store(), clock, entropy, user("ada")).unwrap();
    let state = founded.snapshot().state().clone();
    drop(founded);
    let (clock, entropy) = parts();
    let opened = AccessRegistry::open(store(), clock, entropy).unwrap();
    assert_eq!(*opened.snapshot().state(), state);
}
