//! A journal in a directory of its own, with a clock that tests own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use palyra_journal::{
    Body, Committed, JournalStore, Keeping, NewRecord, RecordKind, Rotation, SqliteJournal, Subject, Transaction,
    VerifyKey, sqlite::DATABASE_FILE, state::PendingLimits,
};
use palyra_types::{
    Clock, Timestamp,
    clock::ManualClock,
    entropy::SystemEntropy,
    id::{CallId, RunId, SessionId},
};
use rusqlite::Connection;
use tempfile::TempDir;

pub const START: i64 = 1_800_000_000_000;

pub fn at_start() -> Timestamp {
    Timestamp::from_unix_millis(START)
}

pub struct Lab {
    pub directory: TempDir,
    pub clock: Arc<ManualClock>,
}

impl Lab {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_millis(START)));
        Self { directory: tempfile::tempdir().unwrap(), clock }
    }

    /// A laboratory in a directory that somebody else tidies up.
    pub fn within(directory: &Path) -> Self {
        Self { directory: tempfile::tempdir_in(directory).unwrap(), ..Self::new() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn open(&self) -> SqliteJournal {
        self.open_keeping(Keeping::default())
    }

    pub fn open_keeping(&self, keeping: Keeping) -> SqliteJournal {
        SqliteJournal::open_keeping(self.path(), keeping, self.clock.clone(), Arc::new(SystemEntropy)).unwrap()
    }

    /// Opens the journal so that it seals whenever it can.
    pub fn open_sealing(&self) -> SqliteJournal {
        self.open_keeping(Keeping {
            rotation: Rotation { segment_bytes: 1, ..Rotation::default() },
            ..Keeping::default()
        })
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn key(&self) -> VerifyKey {
        VerifyKey::load(self.path()).unwrap()
    }

    /// A copy of the directory as it is, to do harm to.
    pub fn copy(&self) -> Self {
        let copy = Self { directory: tempfile::tempdir().unwrap(), clock: self.clock.clone() };
        copy_directory(self.path(), copy.path());
        copy
    }

    pub fn database(&self) -> Connection {
        Connection::open(self.path().join(DATABASE_FILE)).unwrap()
    }

    /// Does harm by SQL, and works it into the database file.
    pub fn harm(&self, sql: &str) {
        let database = self.database();
        database.execute_batch(sql).unwrap();
        drop(database);
    }

    pub fn segment_files(&self) -> Vec<PathBuf> {
        let Ok(files) = fs::read_dir(self.path().join("segments")) else { return Vec::new() };
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }
}

pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A record about a call of this number.
pub fn record(lab: &Lab, n: u64) -> NewRecord {
    said(lab, n, format!("{{\"tool\":\"process.run\",\"n\":{n},\"text\":\"{}\"}}", "some words ".repeat(9)))
}

/// A record about a call of this number, with this body.
pub fn said(lab: &Lab, n: u64, body: String) -> NewRecord {
    let subject = Subject {
        session: Some(SessionId::from_parts(lab.now(), 1)),
        run: Some(RunId::from_parts(lab.now(), 2)),
        call: Some(call(n)),
        approval: None,
    };
    let body = Body::new(body, &SystemEntropy).unwrap();
    NewRecord { kind: RecordKind::ToolProposed, subject, time: lab.now(), body }
}

pub fn call(n: u64) -> CallId {
    CallId::from_parts(Timestamp::from_unix_millis(START), n.into())
}

pub fn wait<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(answer)
}

pub fn commit(journal: &SqliteJournal, records: Vec<NewRecord>) -> Committed {
    wait(journal.commit(Transaction { records, changes: Vec::new() })).unwrap()
}

/// Appends this many records, some at a time.
pub fn append(lab: &Lab, journal: &SqliteJournal, count: u64) {
    for from in (0..count).step_by(100) {
        commit(journal, (from..count.min(from + 100)).map(|n| record(lab, n)).collect());
    }
}

/// Bounds of so many pending questions in all and of one principal.
pub fn pending(most: u64, most_of_one: u64) -> PendingLimits {
    PendingLimits { most, most_of_one, most_bytes_of_one: 1 << 20 }
}
