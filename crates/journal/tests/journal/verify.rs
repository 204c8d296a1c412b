//! Verification finds every harm that is done to a journal, and names the first bad record.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::fs;

use palyra_journal::{
    Failure, Fault, JournalKey, JournalStore, Selection, Trust, record::RecordError, sqlite::DATABASE_FILE, verify,
};
use palyra_types::entropy::SystemEntropy;
use rusqlite::{Connection, types::Value};

use crate::lab::{Lab, append, commit, record, wait};

/// 1 110 records or so: two sealed segments (0 to 255, 256 to 767), four full tiles, and erased bodies in each part.
fn journal() -> Lab {
    let lab = Lab::new();
    for count in [300, 400, 400] {
        let journal = lab.open();
        append(&lab, &journal, count);
        drop(journal);
        let journal = lab.open_sealing();
        wait(journal.maintain(lab.now())).unwrap();
    }
    let journal = lab.open();
    for (first, last) in [(10, 20), (300, 310), (900, 905), (1_050, 1_050)] {
        wait(journal.erase(Selection::Records { first, last }, "asked for".to_owned())).unwrap();
    }
    commit(&journal, vec![record(&lab, 1), record(&lab, 2)]);
    drop(journal);
    assert_eq!(lab.segment_files().len(), 2);
    lab
}

fn check(lab: &Lab) -> Result<palyra_journal::Report, Failure> {
    verify(lab.path(), &Trust::default(), &mut |_, _| {})
}

fn fault_after(lab: &Lab, sql: &str) -> (u64, Fault) {
    let copy = lab.copy();
    copy.harm(sql);
    let failure = check(&copy).expect_err(sql);
    (failure.seq, failure.fault)
}

fn fault_in_segment(lab: &Lab, position: usize, sql: &str) -> (u64, Fault) {
    let copy = lab.copy();
    Connection::open(&copy.segment_files()[position]).unwrap().execute_batch(sql).unwrap();
    let failure = check(&copy).expect_err(sql);
    (failure.seq, failure.fault)
}

#[test]
fn a_whole_journal_is_reported_with_what_it_holds() {
    let lab = journal();
    let mut heard = Vec::new();
    let report = verify(lab.path(), &Trust::default(), &mut |done, of| heard.push((done, of))).unwrap();
    assert_eq!((report.first, report.records, report.segments), (0, report.head.size, 2));
    assert_eq!((report.erased, report.unfinished, report.too_old), (11 + 11 + 6 + 1, 0, 0));
    assert_eq!(report.origin, lab.key().name());
    assert_eq!(heard, [(0, report.head.size)]);
    // With the key and a checkpoint from elsewhere, too.
    let trust = Trust { key: Some(lab.key()), checkpoints: vec![report.note.clone()] };
    assert_eq!(verify(lab.path(), &trust, &mut |_, _| {}).unwrap(), report);
}

#[test]
fn every_harm_done_by_sql_is_found_and_named() {
    let lab = journal();
    let size = check(&lab).unwrap().head.size;
    let last = size - 1;
    let erasing: u32 = lab
        .database()
        .query_row("SELECT min(seq) FROM records WHERE record LIKE '%journal.erased%'", [], |row| row.get(0))
        .unwrap();
    let erasing = u64::from(erasing);
    for (sql, expected) in [
        // A record whose text, hash, salt or body was changed.
        ("UPDATE records SET record = replace(record, 'tool.proposed', 'tool.attested') WHERE seq = 800".to_owned(), (800, Fault::WrongHash)),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 801".to_owned(), (801, Fault::WrongHash)),
        ("UPDATE records SET salt = zeroblob(32) WHERE seq = 802".to_owned(), (802, Fault::BodyChanged)),
        ("UPDATE records SET body = body || ' ' WHERE seq = 803".to_owned(), (803, Fault::BodyChanged)),
        // A byte that moved from the body into the salt hashes alike.
        ("UPDATE records SET salt = CAST(salt || CAST(substr(body, 1, 1) AS BLOB) AS BLOB), body = substr(body, 2) WHERE seq = 804".to_owned(), (804, Fault::BodyChanged)),
        // Spelling and numbers.
        ("UPDATE records SET record = replace(record, ',\"seq\"', ', \"seq\"') WHERE seq = 805".to_owned(), (805, Fault::Malformed(RecordError::NotCanonical))),
        ("UPDATE records SET record = replace(record, '\"v\":1', '\"v\":2') WHERE seq = 806".to_owned(), (806, Fault::Malformed(RecordError::Version(2)))),
        ("UPDATE records SET record = '{}' WHERE seq = 807".to_owned(), (807, Fault::Malformed(RecordError::Unreadable))),
        ("UPDATE records SET record = replace(record, '\"seq\":808', '\"seq\":809') WHERE seq = 808".to_owned(), (808, Fault::Misplaced { claims: 809 })),
        // Records that are gone, moved or too many.
        ("DELETE FROM records WHERE seq = 810".to_owned(), (810, Fault::Missing)),
        ("DELETE FROM records WHERE seq = 810; UPDATE records SET seq = 810 WHERE seq = 811".to_owned(), (810, Fault::Misplaced { claims: 811 })),
        ("UPDATE records SET seq = -1 WHERE seq = 812; UPDATE records SET seq = 812 WHERE seq = 813; UPDATE records SET seq = 813 WHERE seq = -1".to_owned(), (812, Fault::Misplaced { claims: 813 })),
        (format!("DELETE FROM records WHERE seq = {last}"), (last, Fault::CutOff { signed: size })),
        (format!("DELETE FROM records WHERE seq > {}", last - 20), (last - 19, Fault::CutOff { signed: size })),
        (format!("INSERT INTO records SELECT seq + 1, record, hash, salt, body FROM records WHERE seq = {last}"), (size, Fault::Unexpected)),
        ("INSERT INTO records SELECT -5, record, hash, salt, body FROM records WHERE seq = 900".to_owned(), (0, Fault::Unexpected)),
        // Bodies.
        ("UPDATE records SET body = NULL, salt = NULL WHERE seq = 820".to_owned(), (820, Fault::BodyMissing)),
        ("UPDATE records SET body = NULL WHERE seq = 821".to_owned(), (821, Fault::BodyTorn)),
        ("UPDATE records SET salt = NULL WHERE seq = 822".to_owned(), (822, Fault::BodyTorn)),
        (format!("UPDATE records SET body = NULL, salt = NULL WHERE seq = {erasing}"), (erasing, Fault::BodyMissing)),
        // The tree, the head, and what is said about the segments.
        ("UPDATE tiles SET hashes = zeroblob(8192) WHERE place = 1".to_owned(), (256, Fault::Tile)),
        ("UPDATE tiles SET root = zeroblob(32) WHERE place = 2".to_owned(), (512, Fault::Tile)),
        ("DELETE FROM tiles WHERE place = 3".to_owned(), (768, Fault::Tile)),
        ("INSERT INTO tiles SELECT place + 100, root, hashes FROM tiles WHERE place = 0".to_owned(), (size, Fault::Tile)),
        ("DELETE FROM head".to_owned(), (0, Fault::Unsigned)),
        (format!("UPDATE head SET note = replace(note, '{size}', '{last}')"), (0, Fault::Unsigned)),
        ("UPDATE head SET note = (SELECT note FROM segments WHERE first = 0)".to_owned(), (256, Fault::Unexpected)),
        ("DELETE FROM segments WHERE first = 256".to_owned(), (256, Fault::Missing)),
        ("DELETE FROM segments WHERE first = 0".to_owned(), (0, Fault::Boundary)),
        ("UPDATE segments SET note = (SELECT note FROM head) WHERE first = 256".to_owned(), (256, Fault::Boundary)),
        (
            "INSERT INTO dropped SELECT 0, 256, zeroblob(32), note FROM segments WHERE first = 0; DELETE FROM segments WHERE first = 0".to_owned(),
            (256, Fault::Boundary),
        ),
    ] {
        assert_eq!(fault_after(&lab, &sql), expected, "{sql}");
    }
}

#[test]
fn every_harm_done_to_a_segment_is_found_and_named() {
    let lab = journal();
    for (position, sql, expected) in [
        (
            0,
            "UPDATE records SET record = replace(record, 'tool', 'tooI') WHERE seq = 7",
            (7, Fault::Malformed(RecordError::Unreadable)),
        ),
        (0, "UPDATE records SET body = NULL, salt = NULL WHERE seq = 30", (30, Fault::BodyMissing)),
        (0, "DELETE FROM records WHERE seq = 255", (255, Fault::Missing)),
        (0, "DELETE FROM records WHERE seq = 0", (0, Fault::Missing)),
        (
            0,
            "INSERT INTO records SELECT 256, record, hash, salt, body FROM records WHERE seq = 255",
            (256, Fault::Unexpected),
        ),
        (1, "UPDATE records SET body = 'x' WHERE seq = 700", (700, Fault::BodyChanged)),
        (1, "UPDATE boundary SET prev = zeroblob(32)", (256, Fault::Boundary)),
        (1, "UPDATE boundary SET roots = zeroblob(32)", (256, Fault::Boundary)),
        (1, "UPDATE boundary SET last = 768", (256, Fault::Boundary)),
        (1, "UPDATE boundary SET note = replace(note, 'a', 'b')", (256, Fault::Boundary)),
    ] {
        assert_eq!(fault_in_segment(&lab, position, sql), expected, "{sql}");
    }
    let copy = lab.copy();
    fs::remove_file(&copy.segment_files()[1]).unwrap();
    assert_eq!(check(&copy), Err(Failure { seq: 256, fault: Fault::SegmentMissing }));
    let copy = lab.copy();
    fs::remove_file(copy.path().join(DATABASE_FILE)).unwrap();
    assert_eq!(check(&copy), Err(Failure { seq: 0, fault: Fault::Vanished }));
    for key in ["verify.key", "signing.key"] {
        assert_eq!(check(&copy), Err(Failure { seq: 0, fault: Fault::Vanished }), "{key}");
        fs::remove_file(copy.path().join(key)).unwrap();
    }
    assert!(matches!(check(&copy), Err(Failure { seq: 0, fault: Fault::Absent(_) })));
}

/// Somebody without the key writes records again so that all of them link and hash, and the tree fits as well.
#[test]
fn records_written_again_without_the_key_are_found() {
    let lab = journal();
    let copy = lab.copy();
    copy.harm("UPDATE records SET record = replace(record, 'tool.proposed', 'tool.attested') WHERE seq = 1100");
    let database = copy.database();
    let mut prev: Option<String> = None;
    let rows: Vec<(i64, String)> = database
        .prepare("SELECT seq, record FROM records WHERE seq >= 1100 ORDER BY seq")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (seq, text) in rows {
        let old = palyra_journal::Record::parse(&text).unwrap().prev.to_hex();
        let text = prev.map_or(text.clone(), |prev| text.replace(&old, &prev));
        let hash = palyra_journal::Record::hash(&text);
        database
            .execute("UPDATE records SET record = ?2, hash = ?3 WHERE seq = ?1", (seq, &text, hash.as_bytes()))
            .unwrap();
        prev = Some(hash.to_hex());
    }
    drop(database);
    let size = check(&lab).unwrap().head.size;
    assert_eq!(check(&copy), Err(Failure { seq: 768, fault: Fault::OtherHistory { signed: size } }));
}

#[test]
fn a_record_exchanged_with_its_hash_is_told_from_the_one_after_it() {
    let lab = journal();
    for (seq, change, expected) in [
        (1_101, ("tool.proposed", "tool.attested"), (1_101, Fault::Replaced)),
        (1_102, ("\"prev\":\"", "\"prev\":\"0"), (1_102, Fault::Unlinked)),
    ] {
        let copy = lab.copy();
        let database = copy.database();
        let text: String =
            database.query_row("SELECT record FROM records WHERE seq = ?1", [seq], |row| row.get(0)).unwrap();
        let mut text = text.replace(change.0, change.1);
        if change.0.starts_with('"') {
            // The digest keeps its length.
            let end = text.find("\"prev\":\"").unwrap() + "\"prev\":\"".len() + 64;
            text.remove(end);
        }
        let hash = palyra_journal::Record::hash(&text);
        database
            .execute("UPDATE records SET record = ?2, hash = ?3 WHERE seq = ?1", (seq, &text, hash.as_bytes()))
            .unwrap();
        drop(database);
        let failure = check(&copy).unwrap_err();
        assert_eq!((failure.seq, failure.fault), expected);
    }
}

#[test]
fn a_journal_that_was_cut_off_and_signed_again_is_found_by_a_saved_checkpoint() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 50);
    drop(journal);
    let early = lab.copy();
    let journal = lab.open();
    append(&lab, &journal, 50);
    let saved = wait(journal.checkpoint()).unwrap();
    drop(journal);
    let trust = |note: &String| Trust { key: Some(lab.key()), checkpoints: vec![note.clone()] };
    assert_eq!(verify(lab.path(), &trust(&saved), &mut |_, _| {}).unwrap().records, 101);
    // The earlier state is a good journal, and too short; gone on from, it is another history.
    assert!(check(&early).is_ok());
    let failure = verify(early.path(), &trust(&saved), &mut |_, _| {}).unwrap_err();
    assert_eq!(failure, Failure { seq: 51, fault: Fault::CutOff { signed: 101 } });
    let journal = early.open();
    append(&early, &journal, 80);
    drop(journal);
    assert!(check(&early).is_ok());
    let failure = verify(early.path(), &trust(&saved), &mut |_, _| {}).unwrap_err();
    assert_eq!(failure, Failure { seq: 0, fault: Fault::OtherHistory { signed: 101 } });
    // An older saved checkpoint narrows it down.
    let older = check(&Lab { directory: early.copy().directory, clock: lab.clock.clone() }).unwrap().note;
    assert!(verify(early.path(), &trust(&older), &mut |_, _| {}).is_ok());
}

#[test]
fn an_exchanged_journal_or_key_is_found() {
    let (one, other) = (Lab::new(), Lab::new());
    for lab in [&one, &other] {
        let journal = lab.open();
        append(lab, &journal, 5);
    }
    let pinned = Trust { key: Some(one.key()), checkpoints: Vec::new() };
    // The database alone, the whole directory, and the public key alone.
    let copy = one.copy();
    fs::copy(other.path().join(DATABASE_FILE), copy.path().join(DATABASE_FILE)).unwrap();
    let swapped = Fault::OtherJournal { found: other.key().name().to_owned(), expected: one.key().name().to_owned() };
    assert_eq!(check(&copy), Err(Failure { seq: 0, fault: swapped.clone() }));
    assert_eq!(verify(copy.path(), &pinned, &mut |_, _| {}), Err(Failure { seq: 0, fault: swapped }));
    assert!(check(&other).is_ok());
    let failure = verify(other.path(), &pinned, &mut |_, _| {}).unwrap_err();
    assert_eq!(failure, Failure { seq: 0, fault: Fault::OtherKey });
    let copy = one.copy();
    let (same_name, _) = JournalKey::generate(one.key().name(), &SystemEntropy).unwrap();
    fs::write(copy.path().join("verify.key"), same_name.public().text()).unwrap();
    assert_eq!(check(&copy), Err(Failure { seq: 0, fault: Fault::Unsigned }));
    // A saved checkpoint of another journal is no evidence.
    let note = check(&other).unwrap().note;
    let failure = verify(one.path(), &Trust { key: None, checkpoints: vec![note] }, &mut |_, _| {}).unwrap_err();
    assert_eq!(failure, Failure { seq: 0, fault: Fault::SavedUnsigned });
}

#[test]
fn a_journal_is_verified_while_it_is_written() {
    let lab = Lab::new();
    let journal = lab.open();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| append(&lab, &journal, 2_000));
        let mut sizes = Vec::new();
        while !writing.is_finished() {
            sizes.push(check(&lab).unwrap().head.size);
        }
        assert!(sizes.is_sorted());
    });
    assert_eq!(check(&lab).unwrap().records, 2_001);
}

#[test]
fn a_body_that_is_missing_is_found_however_fast_the_journal_grows() {
    let lab = Lab::new();
    let journal = lab.open();
    append(&lab, &journal, 10);
    lab.harm("UPDATE records SET salt = NULL, body = NULL WHERE seq = 7");
    let mut attempts = 0;
    let failure = verify(lab.path(), &Trust::default(), &mut |_, _| {
        attempts += 1;
        if attempts < 20 {
            commit(&journal, vec![record(&lab, 1)]);
        }
    });
    assert_eq!((failure, attempts), (Err(Failure { seq: 7, fault: Fault::BodyMissing }), 2));
}

/// A flipped byte either is in space that holds nothing, or is found.
#[test]
fn no_flipped_byte_changes_what_a_journal_says_unnoticed() {
    let lab = journal();
    let mut files = lab.segment_files();
    files.extend([lab.path().join(DATABASE_FILE), lab.path().join("verify.key")]);
    let before = contents(&lab).unwrap();
    // More, and others, at request: `FLIPS=5000 SEED=7`.
    let asked = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let mut random = asked("SEED").unwrap_or(88_172_645_463_325_252);
    let rounds = usize::try_from(asked("FLIPS").unwrap_or(320)).unwrap();
    let (mut found, mut harmless) = (0, 0);
    for round in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let path = &files[round % files.len()];
        let mut bytes = fs::read(path).unwrap();
        let at = usize::try_from(random >> 8).unwrap() % bytes.len();
        let flip = 1_u8 << (random & 7);
        bytes[at] ^= flip;
        fs::write(path, &bytes).unwrap();
        match check(&lab) {
            Err(_) => found += 1,
            Ok(_) => {
                assert_eq!(contents(&lab).as_ref(), Some(&before), "byte {at} of {}", path.display());
                harmless += 1;
            }
        }
        bytes[at] ^= flip;
        fs::write(path, &bytes).unwrap();
    }
    println!("{found} of {rounds} flips found, {harmless} harmless");
    assert!(found > rounds / 2, "{found} found, {harmless} harmless");
    assert!(check(&lab).is_ok());
}

/// Everything that the chain keeps.
fn contents(lab: &Lab) -> Option<Vec<Vec<Value>>> {
    let mut all = vec![vec![Value::Text(fs::read_to_string(lab.path().join("verify.key")).ok()?.trim().to_owned())]];
    let live = lab.database();
    for sql in [
        "SELECT * FROM records",
        "SELECT * FROM tiles",
        "SELECT * FROM head",
        "SELECT * FROM segments",
        "SELECT * FROM dropped",
    ] {
        all.extend(rows(&live, sql)?);
    }
    for path in lab.segment_files().iter().filter(|path| path.extension().is_some_and(|ending| ending == "db")) {
        let segment = Connection::open(path).ok()?;
        for sql in ["SELECT * FROM records", "SELECT * FROM boundary"] {
            all.extend(rows(&segment, sql)?);
        }
    }
    Some(all)
}

fn rows(database: &Connection, sql: &str) -> Option<Vec<Vec<Value>>> {
    let mut select = database.prepare(sql).ok()?;
    let columns = select.column_count();
    let rows = select.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).ok()?;
    rows.collect::<Result<_, _>>().ok()
}
