//! The SQLite file of the schedule: how it is opened, what it must be, and how what is deleted leaves it.
//!
//! Guarantees: the directory and the file are for their owner alone; a file of another purpose or a later version is refused before anything is
//! written to it; one program at a time has it open, so that nothing is handed out twice; what is committed survives a power cut.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::error::ScheduleError;

/// Opens the schedule in a directory; both are made if they are not there.
pub(crate) fn open(directory: &Path) -> Result<Connection, ScheduleError> {
    let path = directory.join("schedule.sqlite");
    make_private(directory, Kind::Directory)?;
    make_private(&path, Kind::File)?;
    open_file(&path).map_err(|error| match error {
        ScheduleError::Database(cause) => match cause.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => ScheduleError::Foreign(path.clone()),
            Some(ErrorCode::DatabaseBusy) => ScheduleError::InUse,
            _ => cause.into(),
        },
        other => other,
    })
}

/// Takes what is free out of the file, and what was there out of its log.
pub(crate) fn give_back(connection: &Connection) -> Result<(), ScheduleError> {
    for pragma in ["PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"] {
        let mut statement = connection.prepare(pragma)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

fn open_file(path: &Path) -> Result<Connection, ScheduleError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // The lock that the first transaction takes is kept until the end.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // SECURITY: before anything is set that would write to a file of another purpose.
    version(&connection, path)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = usize::try_from(version(&transaction, path)?).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", known())?;
    transaction.commit()?;
    Ok(connection)
}

/// The version of the file, 0 of an empty one.
fn version(connection: &Connection, path: &Path) -> Result<i64, ScheduleError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, found) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, found, tables) {
        (0, 0, 0) => Ok(0),
        (APPLICATION, 1.., _) if found <= known() => Ok(found),
        (APPLICATION, 1.., _) => Err(ScheduleError::Newer { found, known: known() }),
        _ => Err(ScheduleError::Foreign(path.to_owned())),
    }
}

fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

/// Makes a directory or an empty file, or closes one that is there to others. A file that is there is not opened: closing it would give up
/// SQLite's locks.
fn make_private(path: &Path, kind: Kind) -> Result<(), ScheduleError> {
    let failed = |source| ScheduleError::File { path: path.to_owned(), source };
    let (made, expected, mode) = match kind {
        Kind::Directory => (DirBuilder::new().mode(0o700).create(path), "directory", 0o700),
        Kind::File => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            (made.map(drop), "file", 0o600)
        }
    };
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    let is_kind = if kind == Kind::Directory { found.is_dir() } else { found.is_file() };
    if !is_kind || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ScheduleError::NotOurs(path.to_owned(), expected));
    }
    if found.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(())
}

const BUSY: Duration = Duration::from_millis(500);

/// `Plsc`.
const APPLICATION: i64 = 0x506c_7363;

/// What makes a file of version 1 of an empty one, of version 2 of that, and so on.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE job (
        id TEXT PRIMARY KEY,
        principal TEXT NOT NULL,
        name TEXT NOT NULL,
        what TEXT NOT NULL,
        enabled INTEGER NOT NULL,
        created INTEGER NOT NULL,
        last_fired INTEGER,
        next_due INTEGER,
        last_outcome TEXT,
        failures INTEGER NOT NULL DEFAULT 0,
        missed_times INTEGER NOT NULL DEFAULT 0,
        UNIQUE (principal, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX job_due ON job (next_due) WHERE enabled;
    -- Runs that are not over: one of a job at most.
    CREATE TABLE firing (
        id TEXT PRIMARY KEY,
        job TEXT NOT NULL UNIQUE REFERENCES job (id) ON DELETE CASCADE,
        due INTEGER NOT NULL,
        fired INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Why a job does not fire, if somebody said so.
    ALTER TABLE job ADD COLUMN paused TEXT;
",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_file_and_its_directory_are_for_their_owner_alone() {
        let lab = tempfile::tempdir().unwrap();
        let directory = lab.path().join("schedule");
        for _ in 0..2 {
            drop(open(&directory).unwrap());
            let file = directory.join("schedule.sqlite");
            assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        }
    }

    #[test]
    fn one_program_at_a_time_has_it_open() {
        let lab = tempfile::tempdir().unwrap();
        let first = open(lab.path()).unwrap();
        assert!(matches!(open(lab.path()), Err(ScheduleError::InUse)));
        drop(first);
        open(lab.path()).unwrap();
    }

    #[test]
    fn what_is_no_schedule_is_refused_and_left_alone() {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join("schedule.sqlite");
        for content in ["no database".repeat(500).into_bytes(), {
            let other = lab.path().join("other.sqlite");
            Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
            fs::read(other).unwrap()
        }] {
            fs::write(&path, &content).unwrap();
            assert!(matches!(open(lab.path()), Err(ScheduleError::Foreign(_))));
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(lab.path().join("other.sqlite"), &path).unwrap();
        assert!(matches!(open(lab.path()), Err(ScheduleError::NotOurs(_, "file"))));
    }

    #[test]
    fn a_schedule_of_a_later_version_is_refused() {
        let lab = tempfile::tempdir().unwrap();
        open(lab.path()).unwrap().pragma_update(None, "user_version", 7).unwrap();
        let error = open(lab.path()).unwrap_err();
        assert_eq!(error.to_string(), "the schedule is of version 7; this program knows versions up to 2");
        assert!(!error.advice().is_empty());
    }
}
