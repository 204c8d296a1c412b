//! What was said can be erased, for good, while the chain stays whole.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{collections::BTreeSet, fs, path::Path, sync::atomic::AtomicBool, time::Instant};

use palyra_journal::{
    Erased, JournalStore, Keeping, Maintained, RecordKind, Retention, Selection, SqliteJournal, StoredRecord,
    Transaction, Trouble, Trust,
    body::commitment,
    state::{ApprovalRow, ApprovalState, CallRow, CallState, Change, GrantRow, Waiting},
    verify,
};
use palyra_types::{
    Sha256Digest, Timestamp, ToolName,
    id::{ApprovalId, NodeId, RunId, SessionId},
};
use rusqlite::Connection;

use crate::lab::{self, Lab, append, call, commit, pending, said, wait};

fn check(lab: &Lab) -> palyra_journal::Report {
    verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap()
}

fn records(journal: &SqliteJournal) -> Vec<StoredRecord> {
    wait(journal.records(0, usize::MAX)).unwrap()
}

/// Every file under a directory that holds these bytes.
fn files_with(directory: &Path, needle: &[u8]) -> Vec<String> {
    let holds = |bytes: &[u8]| finds(bytes, needle).next().is_some();
    files(directory).into_iter().filter(|(_, bytes)| holds(bytes)).map(|(name, _)| name).collect()
}

/// The numbers of the canaries that any file under a directory holds.
fn canaries(directory: &Path) -> BTreeSet<u64> {
    let number = |bytes: &[u8]| -> Option<u64> {
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte));
        digits.collect::<String>().parse().ok()
    };
    let needle = b"canary-";
    let files = files(directory);
    files
        .iter()
        .flat_map(|(_, bytes)| finds(bytes, needle).filter_map(|at| number(&bytes[at + needle.len()..])))
        .collect()
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

fn finds<'a>(bytes: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    (0..bytes.len()).filter(move |&at| bytes[at] == needle[0] && bytes[at..].starts_with(needle))
}

fn canary(n: u64) -> String {
    format!("{{\"canary-{n}\":\"{}\"}}", "sing ".repeat(usize::try_from(n % 13 * n % 700).unwrap()))
}

#[test]
fn an_erased_body_is_in_no_file_any_more() {
    let lab = Lab::new();
    let journal = lab.open();
    for from in (0..600).step_by(50) {
        commit(&journal, (from..from + 50).map(|n| said(&lab, n, canary(n))).collect());
    }
    drop(journal);
    let journal = lab.open_sealing();
    assert_eq!(wait(journal.maintain(lab.now())).unwrap().sealed, 256);
    assert_eq!(lab.segment_files().len(), 1);
    assert!(!files_with(lab.path(), b"canary-").is_empty());
    // Some, then all, so that rows move within their pages.
    let some = Selection::Records { first: 100, last: 399 };
    assert_eq!(wait(journal.erase(some, "asked for".to_owned())), Ok(Erased { bodies: 300, left: 0, in_log: false }));
    // The first record is the journal's own, so record 100 is canary 99.
    assert_eq!(canaries(lab.path()), (0..99).chain(399..600).collect());
    assert_eq!(check(&lab).erased, 300);
    let all = Selection::Records { first: 0, last: u64::MAX };
    assert_eq!(wait(journal.erase(all, "asked for".to_owned())), Ok(Erased { bodies: 300, left: 0, in_log: false }));
    for needle in ["canary", "sing sing"] {
        assert_eq!(files_with(lab.path(), needle.as_bytes()), Vec::<String>::new());
    }
    let report = check(&lab);
    assert_eq!((report.erased, report.unfinished, report.segments), (600, 0, 1));
    // What tells of it names exactly the records.
    let notices: Vec<_> = records(&journal)
        .into_iter()
        .filter(|stored| stored.record.kind == RecordKind::JournalErased)
        .map(|stored| serde_json::from_str::<serde_json::Value>(&stored.body.unwrap()).unwrap())
        .collect();
    assert_eq!(notices[0], serde_json::json!({ "records": [[100, 355]], "reason": "asked for" }));
    assert_eq!(notices[1], serde_json::json!({ "records": [[356, 399]], "reason": "asked for" }));
    // There is nothing left to erase, and nothing is written about it.
    let before = check(&lab).head;
    assert_eq!(wait(journal.erase(all, "again".to_owned())), Ok(Erased::default()));
    assert_eq!(check(&lab).head, before);
}

#[test]
fn an_erasure_that_was_interrupted_is_finished_and_leaves_nothing_in_the_log() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 600);
    drop(journal);
    let journal = lab.open_sealing();
    assert_eq!(wait(journal.maintain(lab.now())).unwrap().sealed, 256);
    let erase = |first, last| wait(journal.erase(Selection::Records { first, last }, "asked for".to_owned()));
    assert_eq!(erase(256, 600).unwrap().bodies, 345);
    commit(&journal, (0..10).map(|n| said(&lab, n, canary(n))).collect());
    // Somebody else writes to the segment that holds record 255, so nothing can be erased there.
    let segment = Connection::open(&lab.segment_files()[0]).unwrap();
    segment.execute_batch("BEGIN IMMEDIATE").unwrap();
    let interrupted = erase(255, u64::MAX);
    assert!(matches!(interrupted, Err(Trouble::Disk(_))), "{interrupted:?}");
    assert_eq!((check(&lab).erased, check(&lab).unfinished), (355, 1));
    segment.execute_batch("ROLLBACK").unwrap();
    wait(journal.maintain(lab.now())).unwrap();
    assert_eq!((check(&lab).erased, check(&lab).unfinished), (356, 0));
    assert_eq!(files_with(lab.path(), b"canary-"), Vec::<String>::new());
}

#[test]
fn an_erased_body_cannot_be_guessed_back() {
    let lab = Lab::new();
    let journal = lab.open();
    commit(&journal, vec![said(&lab, 1, "{\"vote\":\"yes\"}".to_owned())]);
    let salt: Vec<u8> =
        lab.database().query_row("SELECT salt FROM records WHERE seq = 1", [], |row| row.get(0)).unwrap();
    wait(journal.erase(Selection::Records { first: 1, last: 1 }, "asked for".to_owned())).unwrap();
    let record = records(&journal).remove(1).record;
    // Who kept the salt can confirm the guess; nobody else can, and the journal does not have it any more.
    assert_eq!(commitment(&salt, b"{\"vote\":\"yes\"}"), record.body);
    for salt in [&[][..], &[0; 32]] {
        assert_ne!(commitment(salt, b"{\"vote\":\"yes\"}"), record.body);
    }
    assert_eq!(files_with(lab.path(), &salt), Vec::<String>::new());
}

fn state(lab: &Lab, n: u64, ended: bool) -> Vec<Change> {
    let (session, run) = (SessionId::from_parts(lab.now(), 1), RunId::from_parts(lab.now(), 2));
    let (id, document) = (ApprovalId::from_parts(lab.now(), n.into()), format!("document-{n}"));
    let add = CallRow {
        call: call(n),
        node: NodeId::from_parts(lab.now(), 1),
        session,
        run,
        waiting: Waiting::Attached,
        state: CallState::Started,
        first_seq: 0,
        last_seq: 0,
        document: document.clone(),
    };
    let question = ApprovalRow {
        id,
        call: call(n),
        session,
        principal: "agent:a".to_owned(),
        digest: Sha256Digest::of(b""),
        state: if ended { ApprovalState::Consumed } else { ApprovalState::Pending },
        document: document.clone(),
    };
    let tool = ToolName::parse("palyra.process.run").unwrap();
    let grant = GrantRow { id, session, principal: "agent:a".to_owned(), tool, ended: false, uses: 0, document };
    let mut changes = vec![
        Change::AddCall { row: add, key: None },
        Change::AddApproval { row: question, limits: pending(9, 9) },
        Change::AddGrant(grant),
    ];
    if ended {
        changes.push(Change::MoveCall { call: call(n), from: CallState::Started, to: CallState::Ended });
        changes.push(Change::EndGrant(id));
    }
    changes
}

#[test]
fn a_call_is_erased_with_its_state_once_it_is_over() {
    let lab = Lab::new();
    let journal = lab.open();
    for n in 0..4 {
        let records = vec![said(&lab, n, format!("body-{n}")), said(&lab, n, format!("body-{n} again"))];
        wait(journal.commit(Transaction { records, changes: state(&lab, n, n < 3) })).unwrap();
    }
    let erase = |n| wait(journal.erase(Selection::Call(call(n)), "asked for".to_owned())).unwrap();
    assert_eq!(erase(1), Erased { bodies: 2, left: 0, in_log: false });
    assert_eq!(erase(3), Erased { bodies: 0, left: 2, in_log: false });
    let documents = |n| {
        let id = ApprovalId::from_parts(lab.now(), u128::from(n));
        (wait(journal.call(call(n))).unwrap().unwrap().document, wait(journal.approval(id)).unwrap().unwrap().document)
    };
    assert_eq!(documents(1), (String::new(), String::new()));
    assert_eq!(documents(2), ("document-2".to_owned(), "document-2".to_owned()));
    assert_eq!(documents(3), ("document-3".to_owned(), "document-3".to_owned()));
    assert_eq!(files_with(lab.path(), b"document-1"), Vec::<String>::new());
    assert_eq!(files_with(lab.path(), b"body-1"), Vec::<String>::new());
    assert_eq!(check(&lab).erased, 2);
}

#[test]
fn bodies_are_kept_as_long_as_is_configured() {
    let lab = Lab::new();
    let journal = lab.open_keeping(Keeping { retention: Retention { bodies_for: Some(30) }, ..Keeping::default() });
    let day = 24 * 60 * 60 * 1_000;
    for _ in 0..40 {
        append(&lab, &journal, 3);
        lab.clock.advance(day);
    }
    // The wall clock was set back for a moment.
    let now = lab.now();
    lab.clock.set_wall(Timestamp::from_unix_millis(now.unix_millis() - 35 * i64::from(day)));
    append(&lab, &journal, 1);
    lab.clock.set_wall(now);
    let maintain = || wait(journal.maintain(lab.now())).unwrap();
    assert_eq!(maintain(), Maintained { erased: 10 * 3 + 1, sealed: 0, dropped: 0 });
    assert_eq!(maintain(), Maintained::default());
    lab.clock.advance(day);
    assert_eq!(maintain(), Maintained { erased: 3, sealed: 0, dropped: 0 });
    assert_eq!(check(&lab).erased, 34);
    assert!(!files_with(lab.path(), b"retention").is_empty());
    // By hand, everything before a time.
    let before = Selection::Before(lab.now());
    let erased = wait(journal.erase(before, "asked for".to_owned())).unwrap();
    assert_eq!(erased, Erased { bodies: 121 - 34, left: 0, in_log: false });
}

#[test]
fn what_ends_after_its_records_were_erased_loses_its_document_with_age() {
    let lab = Lab::new();
    let journal = lab.open_keeping(Keeping { retention: Retention { bodies_for: Some(30) }, ..Keeping::default() });
    for n in 0..2 {
        wait(
            journal
                .commit(Transaction { records: vec![said(&lab, n, "x".to_owned())], changes: state(&lab, n, false) }),
        )
        .unwrap();
    }
    lab.clock.advance(31 * 24 * 60 * 60 * 1_000);
    assert_eq!(wait(journal.maintain(lab.now())).unwrap().erased, 0);
    let end = Change::MoveCall { call: call(1), from: CallState::Started, to: CallState::Ended };
    wait(journal.commit(Transaction { records: Vec::new(), changes: vec![end] })).unwrap();
    assert_eq!(wait(journal.maintain(lab.now())).unwrap().erased, 1);
    let document = |n| wait(journal.call(call(n))).unwrap().unwrap().document;
    assert_eq!((document(0), document(1)), ("document-0".to_owned(), String::new()));
    // The question was left open; it is over later, and goes then.
    let id = ApprovalId::from_parts(lab::at_start(), 1);
    assert_eq!(wait(journal.approval(id)).unwrap().unwrap().document, "document-1");
    let to = ApprovalState::Expired;
    let over = Change::MoveApproval { id, from: ApprovalState::Pending, to, document: None };
    wait(journal.commit(Transaction { records: Vec::new(), changes: vec![over, Change::EndGrant(id)] })).unwrap();
    wait(journal.maintain(lab.now())).unwrap();
    assert_eq!(files_with(lab.path(), b"document-1"), Vec::<String>::new());
}

#[test]
fn erasing_a_lot_does_not_keep_the_writer_waiting() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 4_000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = Selection::Records { first: 0, last: 4_000 };
            assert_eq!(wait(journal.erase(all, "asked for".to_owned())).unwrap().bodies, 4_000);
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut waited = Vec::new();
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            let start = Instant::now();
            append(&lab, &journal, 1);
            waited.push(start.elapsed());
        }
        waited.sort();
        println!("{} commits meanwhile, the slowest took {:?}", waited.len(), waited.last());
        // Nobody waits for all of it; a single step is some milliseconds, on a machine that does other things besides.
        let typical = waited.get(waited.len() / 2).copied().unwrap_or_default();
        assert!(typical.as_millis() < 100, "{typical:?}");
    });
    assert_eq!(check(&lab).erased, 4_000);
}
