//! The tables, and how a connection is set up to keep them.
//!
//! Guarantees: a connection for reading changes nothing, and works in a directory that cannot be written when nobody writes there.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, config::DbConfig};

/// Opens the database for writing, and makes it if there is none.
pub(super) fn open_for_writing(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "page_size", PAGE)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    // FULL syncs the write-ahead log at every commit: what is acknowledged survives a power cut.
    connection.pragma_update(None, "synchronous", "full")?;
    // What is erased is overwritten, not only unlinked.
    connection.pragma_update_and_check(None, "secure_delete", "on", |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", WAL_PAGES, |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", "off")?;
    keep_plans(&connection)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(TABLES)?;
    }
    if version <= 1 {
        connection.execute_batch(TABLES_OF_KEYS)?;
    }
    if version <= 2 {
        connection.execute_batch(TABLE_OF_THE_VAULT)?;
    }
    Ok(connection)
}

/// Opens the database for reading only.
pub(crate) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    keep_plans(&connection)?;
    Ok(connection)
}

/// Prepares each statement once. Without the planner's guarantee SQLite plans some of them anew for every value that is bound.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Opens the database to work its write-ahead log in.
pub(super) fn open_for_checkpointing(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_millis(20))?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

/// Works what is in the write-ahead log into the database, as far as nobody reads it.
pub(super) fn work_log_in(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Makes the database of a segment, which nobody reads before it is whole.
pub(super) fn create_segment(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE)?;
    connection.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "off")?;
    // A page that was split must not keep what moved to the other half, or erasing would miss it later.
    connection.pragma_update_and_check(None, "secure_delete", "on", |_| Ok(()))?;
    connection.execute_batch(SEGMENT_TABLES)?;
    Ok(connection)
}

/// Opens the database of a segment to erase bodies in it.
pub(super) fn open_segment_for_erasing(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update_and_check(None, "secure_delete", "on", |_| Ok(()))?;
    Ok(connection)
}

/// The size of a page of a new database. A decision with its reasons takes 2 kB, and smaller pages hold two of them at best: a quarter of
/// the file would be empty. A database keeps the size that it was made with.
const PAGE: i64 = 8_192;

/// How far the write-ahead log grows before the writer itself works it into the database: 16 MiB. The keeper does so earlier.
const WAL_PAGES: i64 = 2_000;

/// All in one transaction, so that a database is there whole or not at all. Ids are ULIDs, so indexes over them grow at their end.
pub(super) const TABLES: &str = "
BEGIN;
CREATE TABLE records (
    seq    INTEGER PRIMARY KEY,
    record TEXT NOT NULL,
    hash   BLOB NOT NULL,
    salt   BLOB,
    body   TEXT
) STRICT;
CREATE TABLE tiles (
    place  INTEGER PRIMARY KEY,  -- level * 2^56 + index
    root   BLOB NOT NULL,
    hashes BLOB NOT NULL         -- empty at level 0 once its records were dropped
) STRICT;
CREATE TABLE head (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    note TEXT NOT NULL
) STRICT;
CREATE TABLE latest (              -- the latest time of any record, once a later one said an earlier time
    only INTEGER PRIMARY KEY CHECK (only = 0),
    time INTEGER NOT NULL
) STRICT;
CREATE TABLE segments (           -- sealed records, each segment in a file of its own
    first INTEGER PRIMARY KEY,
    last  INTEGER NOT NULL,
    note  TEXT NOT NULL            -- the signed checkpoint behind its last record
) STRICT;
CREATE TABLE dropped (             -- what was before the first record that is kept
    only INTEGER PRIMARY KEY CHECK (only = 0),
    size INTEGER NOT NULL,
    prev BLOB NOT NULL,
    note TEXT NOT NULL
) STRICT;
CREATE TABLE erasures (            -- announced, and not carried out in the segments yet
    first INTEGER PRIMARY KEY,
    last  INTEGER NOT NULL
) STRICT;
CREATE TABLE calls (
    call      TEXT PRIMARY KEY,
    node      TEXT NOT NULL,
    session   TEXT NOT NULL,
    run       TEXT NOT NULL,
    waiting   TEXT NOT NULL,
    state     TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    document  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_open ON calls (state, call) WHERE state <> 'ended';
CREATE TABLE approvals (
    id        TEXT PRIMARY KEY,
    call      TEXT NOT NULL,
    session   TEXT NOT NULL,
    principal TEXT NOT NULL,
    digest    BLOB NOT NULL,
    state     TEXT NOT NULL,
    bytes     INTEGER NOT NULL,  -- of the document as it was asked
    document  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_call ON approvals (call);
CREATE INDEX approvals_open ON approvals (state, id) WHERE state IN ('pending', 'approved');
CREATE INDEX approvals_digest ON approvals (digest) WHERE state = 'pending';
CREATE INDEX approvals_principal ON approvals (principal, bytes) WHERE state = 'pending';
CREATE TABLE grants (
    id        TEXT PRIMARY KEY,
    session   TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool      TEXT NOT NULL,
    ended     INTEGER NOT NULL,
    uses      INTEGER NOT NULL,
    document  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_open ON grants (session, principal, tool) WHERE ended = 0;
CREATE TABLE runs (
    run          TEXT PRIMARY KEY,
    session      TEXT NOT NULL,
    principal    TEXT NOT NULL,
    calls        INTEGER NOT NULL,
    wall_ms      INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    most_calls        INTEGER NOT NULL,
    most_wall_ms      INTEGER NOT NULL,
    most_output_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE postures (
    tool    TEXT NOT NULL,
    layer   TEXT NOT NULL,
    key     TEXT NOT NULL,
    posture TEXT NOT NULL,
    PRIMARY KEY (tool, layer, key)
) STRICT, WITHOUT ROWID;
PRAGMA application_id = 1346460481;
PRAGMA user_version = 1;
COMMIT;
";

/// What came with the second version: the keys of calls, each for a day.
const TABLES_OF_KEYS: &str = "
BEGIN;
CREATE TABLE call_keys (
    principal TEXT NOT NULL,
    key       TEXT NOT NULL,
    body      BLOB NOT NULL,
    call      TEXT NOT NULL,
    time      INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_keys_time ON call_keys (time);
PRAGMA user_version = 2;
COMMIT;
";

/// What came with the third version: how far the vault is.
const TABLE_OF_THE_VAULT: &str = "
BEGIN;
CREATE TABLE vault (
    only       INTEGER PRIMARY KEY CHECK (only = 0),
    generation INTEGER NOT NULL,
    digest     BLOB NOT NULL
) STRICT;
PRAGMA user_version = 3;
COMMIT;
";

/// A segment says itself where it belongs: which records, what is before them, and the signed checkpoint behind them.
const SEGMENT_TABLES: &str = "
CREATE TABLE records (
    seq    INTEGER PRIMARY KEY,
    record TEXT NOT NULL,
    hash   BLOB NOT NULL,
    salt   BLOB,
    body   TEXT
) STRICT;
CREATE TABLE boundary (
    only  INTEGER PRIMARY KEY CHECK (only = 0),
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    prev  BLOB NOT NULL,
    roots BLOB NOT NULL,
    note  TEXT NOT NULL
) STRICT;
PRAGMA application_id = 1346460499;
PRAGMA user_version = 1;
";
