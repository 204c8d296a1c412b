//! Old records are sealed, the oldest are dropped, and whatever is left verifies, wherever it was interrupted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{fs, time::Instant};

use palyra_journal::{
    Checkpoint, Extent, Failure, Fault, JournalStore, Keeping, ProofError, RecordKind, Report, Rotation, Selection,
    SqliteJournal, Transaction, Trust, export,
    sqlite::DATABASE_FILE,
    state::{CallRow, CallState, Change, Charge, RunRow, Waiting},
    verify, verify_bundle,
};
use palyra_types::id::{CallId, RunId, SessionId};

use crate::lab::{Lab, append, commit, copy_directory, record, wait};

fn check(lab: &Lab) -> Result<Report, Failure> {
    verify(lab.path(), &Trust::default(), &mut |_, _| {})
}

fn head(journal: &SqliteJournal) -> Checkpoint {
    Checkpoint::open(&wait(journal.checkpoint()).unwrap(), journal.key().public()).unwrap()
}

const SMALL: Keeping = Keeping {
    rotation: Rotation { segment_bytes: 200_000, keep_bytes: 800_000 },
    retention: palyra_journal::Retention { bodies_for: None },
};

#[test]
fn a_journal_that_goes_on_for_long_stays_within_its_bounds_and_verifies() {
    let lab = Lab::new();
    let journal = lab.open_keeping(SMALL);
    let mut saved = Vec::new();
    for _ in 0..12 {
        append(&lab, &journal, 300);
        wait(journal.maintain(lab.now())).unwrap();
        saved.push(wait(journal.checkpoint()).unwrap());
    }
    let report = check(&lab).unwrap();
    assert!(report.first > 0 && report.first.is_multiple_of(256), "{report:?}");
    assert!(report.segments >= 2, "{report:?}");
    let sealed: u64 = lab.segment_files().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(sealed < 800_000, "{sealed}");
    // Saved checkpoints are checked as far as the records reach.
    let trust = Trust { key: Some(lab.key()), checkpoints: saved };
    let trusted = verify(lab.path(), &trust, &mut |_, _| {}).unwrap();
    assert!(trusted.too_old > 0 && trusted.too_old < 12, "{trusted:?}");
    // Records, proofs and bundles come from wherever the records are.
    let records = wait(journal.records(0, usize::MAX)).unwrap();
    let numbers: Vec<_> = records.iter().map(|stored| stored.record.seq).collect();
    assert_eq!(numbers, (report.first..report.head.size).collect::<Vec<_>>());
    let some = wait(journal.records(report.first + 100, 700)).unwrap();
    assert_eq!(some, records[100..800]);
    let head = head(&journal);
    for stored in records.iter().step_by(97) {
        let proof = wait(journal.inclusion(stored.record.seq, head.size)).unwrap();
        assert_eq!(proof.leaf, stored.hash);
        proof.check(&head).unwrap();
    }
    let dropped = Err(ProofError::Dropped { first: report.first });
    assert_eq!(wait(journal.inclusion(report.first - 1, head.size)), dropped);
    assert!(matches!(wait(journal.consistency(report.first - 1, head.size)), Err(ProofError::Dropped { .. })));
    for from in [report.first - 256, report.first, report.first + 1, report.first + 700] {
        assert!(wait(journal.consistency(from, head.size)).is_ok(), "from {from}");
    }
    let mut out = Vec::new();
    let bundle = export(lab.path(), Extent::default(), &mut out).unwrap();
    assert_eq!((bundle.first, bundle.records), (report.first, report.records));
    assert_eq!(verify_bundle(&mut out.as_slice(), &Trust::default()), Ok(bundle));
    // What is dropped tells so, in what is left.
    let last = records.iter().rfind(|stored| stored.record.kind == RecordKind::JournalDropped).unwrap();
    let said: serde_json::Value = serde_json::from_str(last.body.as_ref().unwrap()).unwrap();
    assert_eq!(said["last"], report.first - 1);
    assert!(said["checkpoint"].as_str().unwrap().contains(&format!("\n{}\n", report.first)));
    // It opens again and goes on.
    drop(journal);
    let journal = lab.open_keeping(SMALL);
    append(&lab, &journal, 5);
    assert_eq!(check(&lab).unwrap().head.size, report.head.size + 5);
}

#[test]
fn a_segment_that_was_deleted_cannot_pass_for_a_dropped_one() {
    let lab = Lab::new();
    let journal = lab.open_sealing();
    append(&lab, &journal, 1_600);
    wait(journal.maintain(lab.now())).unwrap();
    drop(journal);
    let report = check(&lab).unwrap();
    let last: i64 =
        lab.database().query_row("SELECT last FROM segments ORDER BY first LIMIT 1", [], |row| row.get(0)).unwrap();
    // Everything is done as the journal itself would do it, but for the record that it would sign.
    let prev: Vec<u8> = {
        let hashes: Vec<u8> = lab
            .database()
            .query_row("SELECT hashes FROM tiles WHERE place = ?1", [last >> 8], |row| row.get(0))
            .unwrap();
        hashes[hashes.len() - 32..].to_vec()
    };
    lab.database()
        .execute(
            "INSERT OR REPLACE INTO dropped SELECT 0, last + 1, ?1, note FROM segments ORDER BY first LIMIT 1",
            [prev],
        )
        .unwrap();
    lab.harm("DELETE FROM segments WHERE first = (SELECT min(first) FROM segments)");
    assert_eq!(report.first, 0);
    let first = u64::try_from(last).unwrap() + 1;
    assert_eq!(check(&lab), Err(Failure { seq: first, fault: Fault::Undropped }));
}

/// Makes a journal as it is at some point.
type Make<'a> = Box<dyn Fn() -> Lab + 'a>;

/// Each step of sealing and dropping is cut off, as a crash would, and the journal opened again.
#[test]
fn a_crash_between_any_two_steps_leaves_a_journal_that_verifies_and_goes_on() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 1_000);
    drop(journal);
    let before = lab.copy();
    let journal = lab.open_sealing();
    wait(journal.maintain(lab.now())).unwrap();
    drop(journal);
    let after = lab.copy();
    let name = after.segment_files()[0].file_name().unwrap().to_owned();
    let segment = |lab: &Lab| lab.path().join("segments").join(&name);
    let sealed_rows = |lab: &Lab| {
        // The rows that were removed from the live database are put back, from here on.
        let database = lab.database();
        database.execute("ATTACH ?1 AS segment", [segment(lab).display().to_string()]).unwrap();
        move |from: i64| {
            let sql = "INSERT INTO records SELECT * FROM segment.records WHERE seq >= ?1";
            database.execute(sql, [from]).unwrap();
        }
    };
    let points: [(&str, Make<'_>); 7] = [
        ("nothing was done", Box::new(|| before.copy())),
        (
            "the segment is half written",
            Box::new(|| {
                let lab = before.copy();
                fs::create_dir(lab.path().join("segments")).unwrap();
                let bytes = fs::read(segment(&after)).unwrap();
                fs::write(segment(&lab).with_extension("new"), &bytes[..bytes.len() / 2]).unwrap();
                lab
            }),
        ),
        (
            "the segment is written, and not named yet",
            Box::new(|| {
                let lab = before.copy();
                copy_directory(&after.path().join("segments"), &lab.path().join("segments"));
                lab
            }),
        ),
        (
            "the segment is named, and no row removed",
            Box::new(|| {
                let lab = after.copy();
                sealed_rows(&lab)(0);
                lab
            }),
        ),
        (
            "some rows are removed",
            Box::new(|| {
                let lab = after.copy();
                sealed_rows(&lab)(300);
                lab
            }),
        ),
        (
            "the segment is dropped, and its file is there",
            Box::new(|| {
                let lab = after.copy();
                let kept = fs::read(segment(&lab)).unwrap();
                let dropping = Keeping { rotation: Rotation { keep_bytes: 1, ..SMALL.rotation }, ..SMALL };
                wait(lab.open_keeping(dropping).maintain(lab.now())).unwrap();
                assert!(!segment(&lab).exists());
                fs::write(segment(&lab), kept).unwrap();
                lab
            }),
        ),
        (
            "an erasure is announced, and not carried out in the segment",
            Box::new(|| {
                let lab = after.copy();
                let kept = fs::read(segment(&lab)).unwrap();
                let erased = Selection::Records { first: 7, last: 8 };
                wait(lab.open().erase(erased, "asked for".to_owned())).unwrap();
                fs::write(segment(&lab), kept).unwrap();
                lab.harm("INSERT INTO erasures VALUES (7, 8)");
                assert_eq!(check(&lab).unwrap().unfinished, 2);
                lab
            }),
        ),
    ];
    for (point, make) in points {
        let lab = make();
        let found = check(&lab).unwrap_or_else(|failure| panic!("{point}: {failure}"));
        let journal = lab.open_sealing();
        append(&lab, &journal, 10);
        wait(journal.maintain(lab.now())).unwrap();
        let report = check(&lab).unwrap_or_else(|failure| panic!("{point}: {failure}"));
        assert!(report.head.size >= found.head.size + 10, "{point}");
        assert_eq!(report.unfinished, 0, "{point}");
        let live: i64 = lab.database().query_row("SELECT min(seq) FROM records", [], |row| row.get(0)).unwrap();
        let end: Option<i64> =
            lab.database().query_row("SELECT max(last) FROM segments", [], |row| row.get(0)).unwrap();
        let dropped: Option<i64> =
            lab.database().query_row("SELECT max(size) FROM dropped", [], |row| row.get(0)).unwrap();
        assert_eq!(Some(live), end.map(|end| end + 1).or(dropped), "{point}");
        let named = usize::try_from(report.segments).unwrap();
        assert_eq!(lab.segment_files().len(), named, "{point}: {:?}", lab.segment_files());
    }
}

#[test]
fn a_row_that_was_sealed_and_not_removed_is_verified_too() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 700);
    drop(journal);
    let rows = lab.copy();
    let journal = lab.open_sealing();
    wait(journal.maintain(lab.now())).unwrap();
    drop(journal);
    let database = lab.database();
    database.execute("ATTACH ?1 AS old", [rows.path().join(DATABASE_FILE).display().to_string()]).unwrap();
    database.execute_batch("INSERT INTO records SELECT * FROM old.records WHERE seq BETWEEN 100 AND 255").unwrap();
    drop(database);
    assert!(check(&lab).is_ok());
    for (sql, fault) in [
        ("UPDATE records SET body = 'x' WHERE seq = 200", Fault::BodyChanged),
        ("UPDATE records SET body = NULL, salt = NULL WHERE seq = 200", Fault::BodyMissing),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 200", Fault::WrongHash),
    ] {
        let copy = lab.copy();
        copy.harm(sql);
        assert_eq!(check(&copy), Err(Failure { seq: 200, fault }));
    }
}

#[test]
fn sealing_goes_by_itself_and_does_not_hold_up_the_writer() {
    let lab = Lab::new();
    let journal =
        lab.open_keeping(Keeping { rotation: Rotation { segment_bytes: 250_000, ..Rotation::default() }, ..SMALL });
    let mut waited = Vec::new();
    for n in 0..1_300 {
        let start = Instant::now();
        commit(&journal, vec![record(&lab, n)]);
        waited.push(start.elapsed());
    }
    let patience = Instant::now();
    while lab.segment_files().is_empty() && patience.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!lab.segment_files().is_empty());
    waited.sort();
    println!("median {:?}, slowest {:?}", waited[waited.len() / 2], waited[waited.len() - 1]);
    drop(journal);
    let report = check(&lab).unwrap();
    assert!(report.head.size >= 1_302 && report.segments >= 1, "{report:?}");
}

#[test]
fn state_that_ended_before_the_live_records_is_pruned() {
    let lab = Lab::new();
    let journal = lab.open();
    let row = |n: u64, state| CallRow {
        call: CallId::from_parts(lab.now(), n.into()),
        node: journal.node(),
        session: SessionId::from_parts(lab.now(), 1),
        run: RunId::from_parts(lab.now(), u128::from(n % 2)),
        waiting: Waiting::Attached,
        state,
        first_seq: 0,
        last_seq: 0,
        document: String::new(),
    };
    for n in 0..2_u64 {
        let (limits, used) = (Charge { calls: 9, wall_ms: 9, output_bytes: 9 }, Charge::default());
        let run = RunRow {
            run: RunId::from_parts(lab.now(), n.into()),
            session: SessionId::from_parts(lab.now(), 1),
            principal: "agent:a".to_owned(),
            limits,
            used,
        };
        wait(journal.commit(Transaction { records: Vec::new(), changes: vec![Change::AddRun(run)] })).unwrap();
    }
    for n in 0..6 {
        let state = if n == 3 { CallState::Started } else { CallState::Ended };
        let changes = vec![Change::AddCall { row: row(n, state), key: None }];
        wait(journal.commit(Transaction { records: vec![record(&lab, n)], changes })).unwrap();
    }
    append(&lab, &journal, 700);
    drop(journal);
    let journal = lab.open_sealing();
    let count = |table: &str| -> i64 {
        lab.database().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    // What ended lately stays.
    assert_eq!(wait(journal.maintain(lab.now())).unwrap().sealed, 256);
    assert_eq!((count("calls"), count("runs")), (6, 2));
    lab.clock.advance(3 * 24 * 60 * 60 * 1_000);
    wait(journal.maintain(lab.now())).unwrap();
    assert_eq!((count("calls"), count("runs")), (1, 2));
    lab.clock.advance(30 * 24 * 60 * 60 * 1_000);
    wait(journal.maintain(lab.now())).unwrap();
    assert_eq!((count("calls"), count("runs")), (1, 1));
    assert_eq!(wait(journal.calls_in(CallState::Started)).unwrap().len(), 1);
}
