//! One SQLite file: how it is opened, what it must be, and how what is deleted leaves it.
//!
//! Guarantees: a file that is no store of this purpose, or of a later version, is refused before anything is written to it; what is committed
//! survives a power cut; what is deleted is overwritten, and [`Database::give_back`] takes it out of the write-ahead log too.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::{directory::private_file, error::StoreError};

/// What a file is for.
pub(crate) struct Purpose {
    /// What it is called in errors.
    pub(crate) what: &'static str,
    /// Tells it from files of other purposes.
    pub(crate) application: i64,
    /// What makes a file of version 1 of an empty one, of version 2 of that, and so on.
    pub(crate) migrations: &'static [&'static str],
}

/// An open file: one connection that writes, and one that reads beside it.
#[derive(Debug)]
pub(crate) struct Database {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl Database {
    /// Opens a file, which is made if it is not there.
    pub(crate) fn open(path: &Path, purpose: &Purpose) -> Result<Self, StoreError> {
        private_file(path)?;
        let foreign = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => StoreError::Foreign { path: path.to_owned(), what: purpose.what },
            _ => error.into(),
        };
        let mut writer = connect(path).map_err(foreign)?;
        // SECURITY: before anything is set that would write to a file of another purpose.
        check(&writer, path, purpose)?;
        set_up(&writer).map_err(foreign)?;
        migrate(&mut writer, path, purpose)?;
        let reader = connect(path).map_err(foreign)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(Self { writer: Mutex::new(writer), reader: Mutex::new(reader) })
    }

    /// Changes something in one transaction. What fails has changed nothing.
    pub(crate) fn write<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = lock(&self.writer);
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(StoreError::from)?;
        let done = work(&transaction)?;
        transaction.commit().map_err(StoreError::from)?;
        Ok(done)
    }

    /// Reads one state of the file, whatever is written meanwhile.
    pub(crate) fn read<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = lock(&self.reader);
        let transaction = connection.transaction().map_err(StoreError::from)?;
        work(&transaction)
    }

    /// The same, until it is over: what is asked of the file then fails as interrupted.
    pub(crate) fn read_until<T, E: From<StoreError>>(
        &self,
        is_over: impl FnMut() -> bool + Send + 'static,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = lock(&self.reader);
        connection.progress_handler(STEPS, Some(is_over)).map_err(StoreError::from)?;
        let done = match connection.transaction() {
            Ok(transaction) => work(&transaction),
            Err(error) => Err(StoreError::from(error).into()),
        };
        connection.progress_handler(0, None::<fn() -> bool>).map_err(StoreError::from)?;
        done
    }

    /// Takes what is free out of the file, and what was there out of its log.
    pub(crate) fn give_back(&self) -> Result<(), StoreError> {
        let connection = lock(&self.writer);
        // Whoever reads holds pages of the log, which could not be cut off then.
        let _nobody_reads = lock(&self.reader);
        for pragma in ["PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"] {
            let mut statement = connection.prepare(pragma)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
        }
        Ok(())
    }
}

/// A count as SQLite keeps it.
pub(crate) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A length as a count.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // What is put aside for a moment is nobody's to find.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    // Before anything is written, or it is without effect.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// The version of a file of this purpose, 0 of an empty one.
fn check(connection: &Connection, path: &Path, purpose: &Purpose) -> Result<i64, StoreError> {
    let foreign = || StoreError::Foreign { path: path.to_owned(), what: purpose.what };
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let facts = pragma("application_id").and_then(|application| {
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        Ok((application, pragma("user_version")?, tables))
    });
    let (application, found, tables) = facts.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => foreign(),
        _ => error.into(),
    })?;
    let known = number(count(purpose.migrations.len()));
    match (application, found, tables) {
        (0, 0, 0) => Ok(0),
        (application, 1.., _) if application == purpose.application && found <= known => Ok(found),
        (application, 1.., _) if application == purpose.application => {
            Err(StoreError::Newer { what: purpose.what, found, known })
        }
        _ => Err(foreign()),
    }
}

/// Brings a file to the version of today, whole or not at all.
fn migrate(connection: &mut Connection, path: &Path, purpose: &Purpose) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = check(&transaction, path, purpose)?;
    let done = usize::try_from(version).unwrap_or_default();
    for migration in purpose.migrations.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", purpose.application)?;
    transaction.pragma_update(None, "user_version", number(count(purpose.migrations.len())))?;
    Ok(transaction.commit()?)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A transaction that a panic cut off was rolled back when it was dropped.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// After how many steps of SQLite it is looked at whether a read is over.
const STEPS: i32 = 1_000;

const BUSY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const OLD: Purpose =
        Purpose { what: "store of tests", application: 7, migrations: &["CREATE TABLE one (a) STRICT"] };
    const NEW: Purpose = Purpose {
        what: "store of tests",
        application: 7,
        migrations: &["CREATE TABLE one (a INTEGER) STRICT", "CREATE TABLE two (b INTEGER) STRICT"],
    };
    const FIRST: Purpose =
        Purpose { what: "store of tests", application: 7, migrations: &["CREATE TABLE one (a INTEGER) STRICT"] };
    const OTHER: Purpose = Purpose { what: "store of others", application: 8, migrations: NEW.migrations };

    fn rows(database: &Database, table: &str) -> Result<i64, StoreError> {
        database.read(|t| Ok(t.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?))
    }

    #[test]
    fn an_older_file_is_brought_up_and_keeps_what_it_holds() {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join("store.sqlite");
        let database = Database::open(&path, &FIRST).unwrap();
        let insert = |t: &Transaction<'_>| Ok::<_, StoreError>(t.execute("INSERT INTO one VALUES (1)", [])?);
        database.write(insert).unwrap();
        drop(database);
        let database = Database::open(&path, &NEW).unwrap();
        assert_eq!((rows(&database, "one").unwrap(), rows(&database, "two").unwrap()), (1, 0));
    }

    #[test]
    fn a_later_file_and_one_of_another_purpose_are_refused_and_left_alone() {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join("store.sqlite");
        drop(Database::open(&path, &NEW).unwrap());
        let before = fs::read(&path).unwrap();
        let newer = Database::open(&path, &FIRST).unwrap_err();
        assert_eq!(newer.to_string(), "the store of tests is of version 2; this program knows versions up to 1");
        assert!(matches!(Database::open(&path, &OTHER), Err(StoreError::Foreign { what: "store of others", .. })));
        assert_eq!(fs::read(&path).unwrap(), before);
        assert!(!newer.advice().is_empty());
    }

    #[test]
    fn what_is_no_database_is_refused_and_left_alone() {
        let lab = tempfile::tempdir().unwrap();
        for content in ["a".repeat(10_000), "short".to_owned()] {
            let path = lab.path().join("notes.txt");
            fs::write(&path, &content).unwrap();
            assert!(matches!(Database::open(&path, &NEW), Err(StoreError::Foreign { .. })));
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_the_file_as_it_was() {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join("store.sqlite");
        // A STRICT table without types is refused by SQLite.
        assert!(matches!(Database::open(&path, &OLD), Err(StoreError::Database(_))));
        assert_eq!(rows(&Database::open(&path, &NEW).unwrap(), "two").unwrap(), 0);
    }

    #[test]
    fn a_read_that_is_over_fails_and_the_next_one_does_not() {
        let lab = tempfile::tempdir().unwrap();
        let database = Database::open(&lab.path().join("store.sqlite"), &NEW).unwrap();
        let endless = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT count(*) FROM n";
        let mut looks = 0;
        let is_over = move || {
            looks += 1;
            looks > 3
        };
        let read = database.read_until(is_over, |t| Ok::<i64, StoreError>(t.query_row(endless, [], |row| row.get(0))?));
        let StoreError::Database(why) = read.unwrap_err() else { panic!("another error") };
        assert_eq!(why.sqlite_error_code(), Some(ErrorCode::OperationInterrupted));
        let most =
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000) SELECT count(*) FROM n";
        let read = database.read(|t| Ok::<i64, StoreError>(t.query_row(most, [], |row| row.get(0))?));
        assert_eq!(read.unwrap(), 100_000);
    }

    #[test]
    fn what_fails_in_the_middle_of_a_change_changed_nothing() {
        let lab = tempfile::tempdir().unwrap();
        let database = Database::open(&lab.path().join("store.sqlite"), &NEW).unwrap();
        let failed = database.write(|t| {
            t.execute("INSERT INTO one VALUES (1)", []).map_err(StoreError::from)?;
            Err::<(), _>(StoreError::Damaged { what: "test", why: String::new() })
        });
        assert!(failed.is_err());
        assert_eq!(rows(&database, "one").unwrap(), 0);
    }
}
