//! A journal begins once: one that has vanished is not begun again under its key, and a first start that was killed is gone on with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::{fs, sync::Arc};

use palyra_journal::{Failure, Fault, JournalStore, SqliteJournal, Trouble, Trust, sqlite::DATABASE_FILE, verify};
use palyra_types::entropy::SystemEntropy;

use crate::lab::{Lab, append, copy_directory, wait};

fn open(lab: &Lab) -> Result<SqliteJournal, Trouble> {
    SqliteJournal::open(lab.path(), lab.clock.clone(), Arc::new(SystemEntropy))
}

/// The names of the files in the directory.
fn files(lab: &Lab) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(lab.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn remove(lab: &Lab, names: &[&str]) {
    for name in names {
        let _ = fs::remove_file(lab.path().join(name));
    }
}

const DATABASE: [&str; 3] = [DATABASE_FILE, "journal.db-wal", "journal.db-shm"];

#[test]
fn a_journal_that_vanished_is_not_begun_again_under_its_key() {
    let lab = Lab::new();
    append(&lab, &lab.open(), 5);
    let vanished = Err(Failure { seq: 0, fault: Fault::Vanished });
    for how in ["deleted", "cut to nothing", "emptied", "another, empty"] {
        let copy = lab.copy();
        match how {
            "deleted" => remove(&copy, &DATABASE),
            "cut to nothing" => {
                remove(&copy, &DATABASE);
                fs::write(copy.path().join(DATABASE_FILE), "").unwrap();
            }
            "emptied" => copy.harm("DELETE FROM records; DELETE FROM head"),
            _ => {
                remove(&copy, &DATABASE);
                copy.harm("CREATE TABLE other (x); DROP TABLE other");
            }
        }
        let before = files(&copy);
        for _ in 0..2 {
            assert_eq!(open(&copy).err(), Some(Trouble::Vanished(copy.path().to_owned())), "{how}");
        }
        let found = verify(copy.path(), &Trust::default(), &mut |_, _| {});
        assert!(found.is_err(), "{how}");
        if how == "deleted" {
            // Nothing was made that would be in the way of a backup.
            assert_eq!((files(&copy), found), (before, vanished.clone()));
        }
        // A backup brings it back.
        remove(&copy, &DATABASE);
        copy_directory(lab.path(), copy.path());
        assert_eq!(wait(open(&copy).unwrap().size()).unwrap(), 6, "{how}");
        // Without the old key another journal begins.
        remove(&copy, &DATABASE);
        remove(&copy, &["signing.key"]);
        drop(open(&copy).unwrap());
        assert_ne!(copy.key(), lab.key(), "{how}");
        assert_eq!(verify(copy.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 1, "{how}");
    }
}

#[test]
fn a_first_start_that_was_killed_at_any_point_is_gone_on_with() {
    let whole = Lab::new();
    drop(whole.open());
    let started = |stage: &str| {
        let lab = whole.copy();
        let begun = || fs::rename(lab.path().join("signing.key"), lab.path().join("signing.key.begun")).unwrap();
        match stage {
            "nothing" => remove(&lab, &["signing.key", "verify.key", DATABASE_FILE]),
            "an empty database" => {
                remove(&lab, &["signing.key", "verify.key"]);
                lab.harm("DELETE FROM records; DELETE FROM head");
            }
            "half a key" => {
                remove(&lab, &["verify.key", "signing.key"]);
                fs::write(lab.path().join("signing.key.begun.new"), "PRIV").unwrap();
                lab.harm("DELETE FROM records; DELETE FROM head");
            }
            "a key" => {
                begun();
                remove(&lab, &["verify.key", DATABASE_FILE]);
            }
            "a key and an empty database" => {
                begun();
                remove(&lab, &["verify.key"]);
                lab.harm("DELETE FROM records; DELETE FROM head");
            }
            "the first record" => {
                begun();
                remove(&lab, &["verify.key"]);
            }
            _ => begun(),
        }
        lab
    };
    let kept = ["a key", "a key and an empty database", "the first record", "the public key"];
    for stage in ["nothing", "an empty database", "half a key"].into_iter().chain(kept) {
        let lab = started(stage);
        if stage != "the public key" {
            // Nobody takes what is not there yet for what is lost.
            let found = verify(lab.path(), &Trust::default(), &mut |_, _| {});
            assert!(matches!(found, Err(Failure { seq: 0, fault: Fault::Absent(_) })), "{stage}: {found:?}");
        }
        append(&lab, &open(&lab).expect(stage), 2);
        assert_eq!(lab.key() == whole.key(), kept.contains(&stage), "{stage}");
        assert_eq!(wait(open(&lab).expect(stage).size()).unwrap(), 3, "{stage}");
        assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 3, "{stage}");
        assert!(!files(&lab).contains(&"signing.key.begun".to_owned()), "{stage}");
    }
}

#[test]
fn a_journal_whose_key_is_missing_gets_no_other() {
    let lab = Lab::new();
    append(&lab, &lab.open(), 5);
    let key = lab.key();
    remove(&lab, &["signing.key"]);
    let before = files(&lab);
    let expected = Trouble::Key("it is missing, and there are records that it signed".to_owned());
    assert_eq!(open(&lab).err(), Some(expected));
    assert_eq!(files(&lab), before);
    // The public key is still the one to verify with.
    assert_eq!((lab.key(), verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records), (key, 6));
}
