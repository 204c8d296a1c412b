//! The open database: transactions, and records linked to the end of the chain.
//!
//! Guarantees: whatever lengthens the chain signs its new head in the same transaction; files that were taken away meanwhile are noticed; of
//! a batch, what SQLite does not take is left out, and the rest is written.
//! Does not: survive trouble with the disk. Whoever holds it gives it up then, and opens the database again.

use std::{path::Path, sync::LazyLock};

use palyra_types::{Sha256Digest, id::NodeId};
use rusqlite::{Connection, ToSql};

use super::{
    apply::{Hitch, Span, Stop, apply, number},
    batch::Batch,
    files::{Files, Identity, gone},
    head::{Head, keep_tile},
    ready::{Ready, ReadyRecord},
    schema::{open_for_writing, work_log_in},
    seal::row_bytes,
};
use crate::{
    body::SALT_LENGTH,
    key::{JournalKey, VerifyKey},
    record::Record,
    store::{CommitError, Committed, Event},
    trouble::Trouble,
};

/// The open database and the end of the chain in it.
pub(super) struct Open {
    pub(super) connection: Connection,
    pub(super) head: Head,
    files: Files,
}

/// Whether a database must be there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Required,
    Optional,
}

/// What came of each transaction, and what subscribers hear.
pub(super) type Written = (Vec<Result<Committed, CommitError>>, News);

/// What became durable.
pub(super) struct News {
    node: NodeId,
    pub(super) events: Vec<Event>,
    pub(super) bytes: u64,
}

/// A row of the table of records.
struct Row<'a> {
    seq: i64,
    text: String,
    hash: Sha256Digest,
    salt: &'a [u8; SALT_LENGTH],
    body: &'a str,
}

impl Open {
    /// Opens the database of a journal.
    pub(super) fn at(path: &Path, key: &VerifyKey, existing: Existing) -> Result<Self, Trouble> {
        // SECURITY: a file that was taken away is not made anew; a fresh journal would hide that the old one is gone.
        if existing == Existing::Required && !path.exists() {
            return Err(gone());
        }
        let connection = open_for_writing(path)?;
        let head = Head::load(&connection, key)?;
        Ok(Self { connection, head, files: Files::at(path)? })
    }

    /// Writes whatever the log holds into the database itself and starts the log anew. Says whether nobody's reading prevented it.
    ///
    /// What could not be synced may be in memory and never reach the disk, however often the log is synced later; this writes it again.
    pub(super) fn start_log_anew(&self) -> Result<bool, Trouble> {
        let busy: i64 = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        Ok(busy == 0)
    }

    /// The file of the database.
    pub(super) const fn database(&self) -> Identity {
        self.files.database()
    }

    /// Whether the chain has no record yet.
    pub(super) const fn is_new(&self) -> bool {
        self.head.tree.size() == 0
    }

    /// Writes a batch in one database transaction, and says what came of each transaction in it.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        key: &JournalKey,
        batch: &mut Batch<'_>,
        recovered: Option<&ReadyRecord>,
    ) -> Result<Written, Trouble> {
        let together = self.transaction(key, |open| open.perform_together(node, batch, recovered));
        let written = match together {
            // One of them is to blame, and the others shall not suffer for it.
            Err(Hitch::Refused(_)) => self.transaction(key, |open| open.perform_apart(node, batch, recovered)),
            written => written,
        };
        Ok(written?)
    }

    /// Writes a record of the journal about itself, and does what it tells of.
    pub(super) fn keep(
        &mut self,
        node: NodeId,
        key: &JournalKey,
        record: &ReadyRecord,
        work: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<News, Hitch> {
        self.transaction(key, |open| {
            work(&open.connection)?;
            let mut news = News::of(node);
            open.append(Some(record), &mut news)?;
            Ok(news)
        })
    }

    /// Does something in one database transaction, and signs the head if the chain grew.
    ///
    /// What is refused leaves everything as it was; after trouble nobody knows.
    pub(super) fn transaction<T>(
        &mut self,
        key: &JournalKey,
        work: impl FnOnce(&mut Self) -> Result<T, Hitch>,
    ) -> Result<T, Hitch> {
        self.check_files()?;
        self.execute("BEGIN IMMEDIATE").map_err(Trouble::from)?;
        let done = match self.work_and_sign(key, work) {
            Err(Hitch::Refused(why)) => {
                self.execute("ROLLBACK").map_err(Trouble::from)?;
                self.head = Head::load(&self.connection, key.public())?;
                return Err(Hitch::Refused(why));
            }
            done => done?,
        };
        self.execute("COMMIT").map_err(Trouble::from)?;
        // Whoever took the files away during the commit took it along.
        self.check_files()?;
        Ok(done)
    }

    /// Whether the database and its log are still there.
    fn check_files(&self) -> Result<(), Trouble> {
        self.files.check().inspect_err(|_| {
            // Of a log that was deleted only what is open is left, and this is the last occasion to save what it holds.
            if self.files.is_database_there() {
                let _ = work_log_in(&self.connection);
            }
        })
    }

    fn work_and_sign<T>(
        &mut self,
        key: &JournalKey,
        work: impl FnOnce(&mut Self) -> Result<T, Hitch>,
    ) -> Result<T, Hitch> {
        let before = self.head.tree.size();
        let done = work(self)?;
        if self.head.tree.size() != before {
            let note = self.head.checkpoint().sign(key).map_err(|error| Trouble::Key(error.to_string()))?;
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO head (only, note) VALUES (0, ?1)")?
                .execute([note])?;
        }
        Ok(done)
    }

    fn perform_together(
        &mut self,
        node: NodeId,
        batch: &mut Batch<'_>,
        recovered: Option<&ReadyRecord>,
    ) -> Result<Written, Hitch> {
        let (mut outcomes, mut news) = (Vec::new(), News::of(node));
        self.append(recovered, &mut news)?;
        let mut position = 0;
        loop {
            let Some(chunk) = batch.chunk(position) else {
                if batch.gather() {
                    continue;
                }
                return Ok((outcomes, news));
            };
            let mut rows = Vec::new();
            for ready in chunk {
                outcomes.push(self.perform(ready, &mut rows, &mut news)?);
            }
            self.insert(&rows)?;
            position += 1;
        }
    }

    /// As [`Self::perform_together`], with a point to go back to before each transaction.
    fn perform_apart(
        &mut self,
        node: NodeId,
        batch: &Batch<'_>,
        recovered: Option<&ReadyRecord>,
    ) -> Result<Written, Hitch> {
        let (mut outcomes, mut news) = (Vec::new(), News::of(node));
        self.append(recovered, &mut news)?;
        for ready in batch.all() {
            let (head, events, bytes) = (self.head.clone(), news.events.len(), news.bytes);
            self.execute("SAVEPOINT one")?;
            let mut rows = Vec::new();
            let performed = self.perform(ready, &mut rows, &mut news);
            match performed.and_then(|outcome| Ok(self.insert(&rows).map(|()| outcome)?)) {
                Ok(outcome) => outcomes.push(outcome),
                Err(Hitch::Refused(why)) => {
                    self.execute("ROLLBACK TO one")?;
                    self.head = head;
                    news.events.truncate(events);
                    news.bytes = bytes;
                    outcomes.push(Err(Trouble::Refused(why).into()));
                }
                Err(trouble) => return Err(trouble),
            }
            self.execute("RELEASE one")?;
        }
        Ok((outcomes, news))
    }

    /// Applies the changes of a transaction, and links its records.
    fn perform<'a>(
        &mut self,
        ready: &'a Ready,
        rows: &mut Vec<Row<'a>>,
        news: &mut News,
    ) -> Result<Result<Committed, CommitError>, Hitch> {
        let first = self.head.tree.size();
        let count = u64::try_from(ready.records.len()).unwrap_or(u64::MAX);
        let span = Span { first, last: (first + count).saturating_sub(1) };
        // A single change that fails has changed nothing; several need a point to go back to.
        let several = ready.changes.len() > 1;
        if several {
            self.execute("SAVEPOINT changes")?;
        }
        for change in &ready.changes {
            match apply(&self.connection, change, span) {
                Ok(()) => {}
                Err(Stop::Hitch(hitch)) => return Err(hitch),
                Err(Stop::Conflict(conflict)) => {
                    if several {
                        self.execute("ROLLBACK TO changes")?;
                        self.execute("RELEASE changes")?;
                    }
                    return Ok(Err(conflict.into()));
                }
            }
        }
        if several {
            self.execute("RELEASE changes")?;
        }
        let hashes = ready.records.iter().map(|record| {
            let row = self.link(record, news)?;
            let hash = row.hash;
            rows.push(row);
            Ok(hash)
        });
        Ok(Ok(Committed { first_seq: first, hashes: hashes.collect::<Result<_, Hitch>>()? }))
    }

    /// Links a record to the chain.
    fn link<'a>(&mut self, record: &'a ReadyRecord, news: &mut News) -> Result<Row<'a>, Hitch> {
        let seq = self.head.tree.size();
        let text = record.draft.link(seq, self.head.last);
        let hash = Record::hash(&text);
        let mut kept = Ok(());
        self.head.tree.push(hash, |tile| {
            if kept.is_ok() {
                kept = keep_tile(&self.connection, &tile);
            }
        });
        kept?;
        self.head.last = hash;
        self.head.heed(&self.connection, record.time)?;
        let body = record.body.text();
        news.events.push(Event { node: news.node, seq, kind: record.kind, subject: record.subject });
        news.bytes += u64::try_from(row_bytes(&text, Some(body))).unwrap_or(u64::MAX);
        Ok(Row { seq: number(seq), text, hash, salt: record.body.salt(), body })
    }

    /// Links a record, if there is one, to the chain and writes it.
    fn append(&mut self, record: Option<&ReadyRecord>, news: &mut News) -> Result<(), Hitch> {
        let row = record.map(|record| self.link(record, news)).transpose()?;
        Ok(self.insert(row.as_slice())?)
    }

    /// Writes rows, many in one statement where there are many.
    fn insert(&self, rows: &[Row<'_>]) -> rusqlite::Result<()> {
        let (many, few) = rows.as_chunks::<ROWS>();
        for rows in many {
            let values = rows.iter().flat_map(Row::values);
            self.connection.prepare_cached(&INSERT_MANY)?.execute(rusqlite::params_from_iter(values))?;
        }
        for row in few {
            self.connection.prepare_cached(INSERT)?.execute(row.values().as_slice())?;
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl News {
    const fn of(node: NodeId) -> Self {
        Self { node, events: Vec::new(), bytes: 0 }
    }
}

impl Row<'_> {
    fn values(&self) -> [&dyn ToSql; 5] {
        [&self.seq, &self.text, self.hash.as_bytes(), self.salt, &self.body]
    }
}

/// How many rows one statement writes.
const ROWS: usize = 16;

const INSERT: &str = "INSERT INTO records (seq, record, hash, salt, body) VALUES (?, ?, ?, ?, ?)";

static INSERT_MANY: LazyLock<String> = LazyLock::new(|| format!("{INSERT}{}", ", (?, ?, ?, ?, ?)".repeat(ROWS - 1)));
