//! The open database: transactions, and records linked to the end of the chain.
//!
//! Guarantees: whatever lengthens the chain signs its new head in the same transaction; files that were taken away meanwhile are noticed.
//! Does not: survive a failure. Whoever holds it gives it up then, and opens the database again.

use std::path::Path;

use palyra_types::{Sha256Digest, id::NodeId};
use rusqlite::{Connection, params};

use super::{
    apply::{Span, Stop, apply, number},
    files::{Files, Identity, gone},
    head::{Head, keep_tile},
    schema::open_for_writing,
    seal::row_bytes,
};
use crate::{
    key::{JournalKey, VerifyKey},
    record::{NewRecord, Record},
    store::{Committed, Event, Transaction},
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
pub(super) type Written = (Vec<Result<Committed, crate::state::Conflict>>, News);

/// What became durable.
pub(super) struct News {
    pub(super) node: NodeId,
    pub(super) events: Vec<Event>,
    pub(super) bytes: u64,
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

    /// Writes a batch in one transaction.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        key: &JournalKey,
        transactions: &[Transaction],
        recovered: Option<NewRecord>,
    ) -> Result<Written, Trouble> {
        self.transaction(key, |open| {
            let mut news = News { node, events: Vec::new(), bytes: 0 };
            if let Some(record) = recovered {
                open.append(&record, &mut news)?;
            }
            let outcomes = transactions.iter().map(|transaction| open.perform(transaction, &mut news));
            Ok((outcomes.collect::<Result<_, _>>()?, news))
        })
    }

    /// Does something in one database transaction, and signs the head if the chain grew.
    pub(super) fn transaction<T>(
        &mut self,
        key: &JournalKey,
        work: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        self.files.check()?;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let before = self.head.tree.size();
        let done = work(self)?;
        if self.head.tree.size() != before {
            let note = self.head.checkpoint().sign(key).map_err(|error| Trouble::Key(error.to_string()))?;
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO head (only, note) VALUES (0, ?1)")?
                .execute([note])?;
        }
        self.connection.execute_batch("COMMIT")?;
        // Whoever took the files away during the commit took it along.
        self.files.check()?;
        Ok(done)
    }

    fn perform(
        &mut self,
        transaction: &Transaction,
        news: &mut News,
    ) -> Result<Result<Committed, crate::state::Conflict>, Trouble> {
        let first = self.head.tree.size();
        let count = u64::try_from(transaction.records.len()).unwrap_or(u64::MAX);
        let span = Span { first, last: (first + count).saturating_sub(1) };
        // A single change that fails has changed nothing; several need a point to go back to.
        let several = transaction.changes.len() > 1;
        if several {
            self.connection.execute_batch("SAVEPOINT changes")?;
        }
        for change in &transaction.changes {
            match apply(&self.connection, change, span) {
                Ok(()) => {}
                Err(Stop::Trouble(trouble)) => return Err(trouble),
                Err(Stop::Conflict(conflict)) => {
                    if several {
                        self.connection.execute_batch("ROLLBACK TO changes; RELEASE changes")?;
                    }
                    return Ok(Err(conflict));
                }
            }
        }
        if several {
            self.connection.execute_batch("RELEASE changes")?;
        }
        let hashes = transaction.records.iter().map(|record| self.append(record, news));
        Ok(Ok(Committed { first_seq: first, hashes: hashes.collect::<Result<_, Trouble>>()? }))
    }

    /// Links a record to the chain and writes it.
    pub(super) fn append(&mut self, new: &NewRecord, news: &mut News) -> Result<Sha256Digest, Trouble> {
        let record = Record::link(new, self.head.tree.size(), self.head.last);
        let text = record.canonical();
        let hash = Record::hash(&text);
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO records (seq, record, hash, salt, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        insert.execute(params![number(record.seq), text, hash.as_bytes(), new.body.salt(), new.body.text()])?;
        let mut kept = Ok(());
        self.head.tree.push(hash, |tile| {
            if kept.is_ok() {
                kept = keep_tile(&self.connection, &tile);
            }
        });
        kept?;
        self.head.last = hash;
        news.events.push(Event { node: news.node, seq: record.seq, kind: new.kind, subject: new.subject });
        news.bytes += u64::try_from(row_bytes(&text, Some(new.body.text()))).unwrap_or(u64::MAX);
        Ok(hash)
    }
}
