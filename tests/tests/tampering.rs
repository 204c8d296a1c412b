//! `palyra journal verify` on a journal that a real daemon wrote and somebody changed: exit code 7, and the first bad record is named.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::fs;

use palyra_tests::daemon::{DaemonLab, tool};
use rusqlite::Connection;
use serde_json::{Value, json};

#[tokio::test]
async fn every_harm_done_to_a_journal_ends_verification_with_7_and_names_the_first_bad_record() {
    let mut lab = DaemonLab::new();
    for _ in 0..8 {
        lab.agent().propose(&tool("fs.list", json!({ "path": "." })), None).await.unwrap();
    }
    let size = lab.owner().head().await.unwrap().size;
    assert!(lab.stop().success());
    // The daemon's own last word is the last record.
    let last = size;
    let harms = [
        ("UPDATE records SET record = replace(record, 'tool.proposed', 'tool.started') WHERE seq = 4".to_owned(), 4),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 5".to_owned(), 5),
        ("UPDATE records SET salt = zeroblob(32) WHERE seq = 6".to_owned(), 6),
        ("UPDATE records SET body = replace(body, 'agent', 'owner') WHERE seq = 3".to_owned(), 3),
        ("UPDATE records SET body = NULL, salt = NULL WHERE seq = 7".to_owned(), 7),
        ("UPDATE records SET body = NULL WHERE seq = 8".to_owned(), 8),
        ("UPDATE records SET record = replace(record, ',\"seq\"', ', \"seq\"') WHERE seq = 9".to_owned(), 9),
        ("UPDATE records SET record = '{}' WHERE seq = 10".to_owned(), 10),
        ("DELETE FROM records WHERE seq = 11".to_owned(), 11),
        ("DELETE FROM records WHERE seq = 0".to_owned(), 0),
        ("UPDATE records SET seq = -1 WHERE seq = 12; UPDATE records SET seq = 12 WHERE seq = 13; UPDATE records SET seq = 13 WHERE seq = -1".to_owned(), 12),
        (format!("DELETE FROM records WHERE seq = {last}"), last),
        (format!("DELETE FROM records WHERE seq > {}", last - 5), last - 4),
        (format!("INSERT INTO records SELECT seq + 1, record, hash, salt, body FROM records WHERE seq = {last}"), last + 1),
        ("DELETE FROM head".to_owned(), 0),
        (format!("UPDATE head SET note = replace(note, '{}', '{last}')", last + 1), 0),
        ("UPDATE head SET note = replace(note, '— palyra', '— polyra')".to_owned(), 0),
        ("DROP TABLE records".to_owned(), 0),
    ];
    let whole = fs::canonicalize(lab.journal()).unwrap();
    for (sql, first) in harms {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&whole).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        Connection::open(copy.path().join("journal.db")).unwrap().execute_batch(&sql).unwrap();
        let directory = copy.path().to_str().unwrap();
        let told = lab.palyra().args(["--json", "journal", "verify", "--directory", directory]).output().unwrap();
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert_eq!(told.status.code(), Some(7), "{sql}: {text}{}", String::from_utf8_lossy(&told.stderr));
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["data"]["bad_record"], first, "{sql}: {text}");
        let told = lab.palyra().args(["journal", "verify", "--directory", directory]).output().unwrap();
        let text = String::from_utf8_lossy(&told.stdout);
        assert!(text.contains(&format!("record {first}")), "{sql}: {text}");
    }
    // A key without its database is a journal that vanished, and nothing at all is no journal.
    let copy = tempfile::tempdir().unwrap();
    let verify = || {
        let told = lab.palyra().args(["journal", "verify", "--directory"]).arg(copy.path()).output().unwrap();
        told.status.code()
    };
    assert_eq!(verify(), Some(1));
    fs::copy(whole.join("verify.key"), copy.path().join("verify.key")).unwrap();
    assert_eq!(verify(), Some(7));
    let told = lab.palyra().args(["journal", "verify"]).output().unwrap();
    assert_eq!(told.status.code(), Some(0));
}
