//! Records are read in portions, beside everything else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{pin::pin, time::Duration};

use palyra_journal::{JournalStore, ReadError, RecordKind, Selection, SqliteJournal, Subject, body::commitment};
use rusqlite::Connection;

use crate::lab::{Lab, append, commit, said, wait};

/// A sealed segment, and some records more.
fn sealed(lab: &Lab) -> SqliteJournal {
    let journal = lab.open();
    append(lab, &journal, 700);
    drop(journal);
    let journal = lab.open_sealing();
    wait(journal.maintain(lab.now())).unwrap();
    assert_eq!(lab.segment_files().len(), 1);
    journal
}

#[test]
fn records_come_up_to_the_one_with_which_their_bodies_are_too_long() {
    let lab = Lab::new();
    let journal = lab.open();
    commit(&journal, (0..4).map(|n| said(&lab, n, "x".repeat(100))).collect());
    let numbers = |from, most, bytes| {
        let found = wait(journal.records_within(from, most, bytes)).unwrap();
        assert!(found.iter().all(|stored| stored.body.is_some()));
        found.iter().map(|stored| stored.record.seq).collect::<Vec<_>>()
    };
    assert_eq!(numbers(1, 9, 0), [1], "at least one");
    assert_eq!(numbers(1, 9, 99), [1]);
    assert_eq!(numbers(1, 9, 100), [1, 2], "100 bytes do not exceed 100");
    assert_eq!(numbers(1, 9, 299), [1, 2, 3]);
    assert_eq!(numbers(1, 9, usize::MAX), [1, 2, 3, 4]);
    assert_eq!(numbers(1, 2, usize::MAX), [1, 2]);
    assert_eq!(numbers(1, 0, usize::MAX), [0; 0]);
    assert_eq!(numbers(5, 9, usize::MAX), [0; 0]);
}

#[test]
fn portions_go_on_from_sealed_records_to_the_newest() {
    let lab = Lab::new();
    let journal = sealed(&lab);
    let all = wait(journal.records(0, usize::MAX)).unwrap();
    let (mut found, mut portions) = (Vec::new(), 0);
    loop {
        let portion = wait(journal.records_within(found.len() as u64, 1_000, 10_000)).unwrap();
        if portion.is_empty() {
            break;
        }
        let bytes: usize = portion.iter().rev().skip(1).map(|stored| stored.body.as_ref().unwrap().len()).sum();
        assert!(bytes <= 10_000, "{bytes}");
        found.extend(portion);
        portions += 1;
    }
    assert_eq!(found, all);
    assert!(portions > 4, "{portions}");
    let subjects = wait(journal.subjects(200, 100)).unwrap();
    let expected: Vec<(u64, RecordKind, Subject)> =
        all[200..300].iter().map(|one| (one.record.seq, one.record.kind, one.record.subject())).collect();
    assert_eq!(subjects, expected);
    assert_eq!(wait(journal.subjects(0, usize::MAX)).unwrap().len(), all.len());
}

#[test]
fn a_record_that_is_not_what_was_written_is_an_error_and_no_answer() {
    let harms = [
        "UPDATE records SET body = replace(body, 'process.run', 'fs.read') WHERE seq = 3",
        "UPDATE records SET body = '' WHERE seq = 3",
        "UPDATE records SET salt = zeroblob(32) WHERE seq = 3",
        // A byte that moved from the body into the salt hashes alike.
        "UPDATE records SET salt = CAST(salt || CAST(substr(body, 1, 1) AS BLOB) AS BLOB), body = substr(body, 2) WHERE seq = 3",
        "UPDATE records SET body = NULL WHERE seq = 3",
        "UPDATE records SET salt = NULL WHERE seq = 3",
        "UPDATE records SET hash = zeroblob(32) WHERE seq = 3",
        "UPDATE records SET record = replace(record, 'tool.proposed', 'tool.attested') WHERE seq = 3",
        "UPDATE records SET record = '{}' WHERE seq = 3",
        "DELETE FROM records WHERE seq = 3; UPDATE records SET seq = 3 WHERE seq = 4",
    ];
    for harm in harms {
        let lab = Lab::new();
        let journal = lab.open();
        append(&lab, &journal, 5);
        lab.harm(harm);
        let refused = Err(ReadError("record 3 is not what was written".to_owned()));
        assert_eq!(wait(journal.records(3, 1)), refused, "{harm}");
        assert_eq!(wait(journal.records_within(0, 9, usize::MAX)), refused, "{harm}");
        // The others are what they were.
        assert_eq!(wait(journal.records(0, 3)).unwrap().len(), 3, "{harm}");
        assert!(wait(journal.latest()).is_ok(), "{harm}");
    }
    let lab = Lab::new();
    let journal = sealed(&lab);
    Connection::open(&lab.segment_files()[0])
        .unwrap()
        .execute_batch("UPDATE records SET body = body || ' ' WHERE seq = 7")
        .unwrap();
    let refused = Err(ReadError("record 7 is not what was written".to_owned()));
    assert_eq!(wait(journal.records_within(0, 9, usize::MAX)), refused);
}

#[test]
fn whoever_holds_a_record_can_check_its_body_until_that_is_erased() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 2);
    for stored in wait(journal.records_within(0, 9, usize::MAX)).unwrap() {
        let (salt, body) = (stored.salt.unwrap(), stored.body.unwrap());
        assert_eq!(commitment(&salt, body.as_bytes()), stored.record.body);
    }
    wait(journal.erase(Selection::Records { first: 1, last: 1 }, "asked for".to_owned())).unwrap();
    let erased = wait(journal.records(1, 1)).unwrap().remove(0);
    assert_eq!((erased.salt, erased.body), (None, None));
    // What the journal says about itself is never erased.
    lab.harm("UPDATE records SET body = NULL, salt = NULL WHERE seq = 0");
    assert_eq!(wait(journal.records(0, 1)), Err(ReadError("record 0 is not what was written".to_owned())));
}

#[test]
fn nobody_waits_for_a_scan_but_who_asked_for_it() {
    let lab = Lab::new();
    let journal = sealed(&lab);
    // Reading a sealed record takes as long as this is held.
    let segment = Connection::open(&lab.segment_files()[0]).unwrap();
    segment.execute_batch("BEGIN EXCLUSIVE").unwrap();
    wait(async {
        let mut scan = pin!(journal.records_within(0, 10, usize::MAX));
        let early = tokio::time::timeout(Duration::from_millis(200), &mut scan).await;
        assert!(early.is_err(), "{early:?}");
        let size = journal.size().await.unwrap();
        assert_eq!(journal.records(size - 1, 9).await.unwrap().len(), 1);
        let early = tokio::time::timeout(Duration::from_millis(1), &mut scan).await;
        assert!(early.is_err(), "{early:?}");
        segment.execute_batch("COMMIT").unwrap();
        assert_eq!(scan.await.unwrap().len(), 10);
    });
}

#[test]
fn a_scan_that_nobody_waits_for_holds_up_neither_the_next_nor_the_end() {
    let lab = Lab::new();
    let journal = sealed(&lab);
    for _ in 0..1_000 {
        drop(journal.subjects(0, usize::MAX));
    }
    assert_eq!(wait(journal.subjects(0, 1)).unwrap().len(), 1);
    drop(journal.records_within(0, usize::MAX, usize::MAX));
    drop(journal);
    drop(lab.open());
}
