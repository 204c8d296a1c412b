//! What skills keep for their later calls: keys and values in one SQLite file.
//!
//! Guarantees: a skill reaches the keys of its own scope, a skill in a workspace, and no others; it never keeps more than its quota, however many
//! calls it makes at once, because what is used is counted in the transaction that changes it. A change is there whole or not at all, also when
//! the program is killed.
//! Does not: decide what the quota is, or survive a power cut with the very last changes. Methods block.

mod error;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use palyra_package::KvQuota;
use palyra_types::{SkillId, WorkspaceName, visible::is_hidden};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

pub use self::error::KvError;

/// Whose keys are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KvScope {
    /// The skill.
    pub skill: SkillId,
    /// The workspace that it is called in.
    pub workspace: WorkspaceName,
}

/// How much of a scope is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// Everything that skills keep.
#[derive(Debug)]
pub struct KvStore {
    /// Changes things. One at a time.
    writer: Mutex<Connection>,
    /// Reads beside the writer, so that nobody waits for the disk who does not change anything.
    reader: Mutex<Connection>,
    /// Skills that were forgotten. What is still ending of them keeps nothing.
    gone: Mutex<BTreeSet<SkillId>>,
}

impl KvStore {
    /// Opens a file, which is made if it is not there, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be opened, or is something else.
    pub fn open(path: &Path) -> Result<Self, KvError> {
        make_private(path)?;
        let mut writer = connect(path)?;
        migrate(&mut writer)?;
        let reader = connect(path)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(Self { writer: Mutex::new(writer), reader: Mutex::new(reader), gone: Mutex::default() })
    }

    /// What is kept under a key.
    ///
    /// # Errors
    /// When it is no key, or the file cannot be read.
    pub fn get(&self, scope: &KvScope, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        check_key(key)?;
        let connection = lock(&self.reader);
        let mut statement = connection.prepare_cached(
            "SELECT value FROM entry JOIN scope ON scope.id = entry.scope WHERE skill = ?1 AND workspace = ?2 AND key = ?3",
        )?;
        let (skill, workspace) = scope.names();
        Ok(statement.query_row(params![skill, workspace, key], |row| row.get(0)).optional()?)
    }

    /// Keeps a value under a key, in the place of what was there.
    ///
    /// # Errors
    /// When it is no key, it would be more than the quota, or the file cannot be written. Then what was there stays.
    pub fn set(&self, scope: &KvScope, quota: KvQuota, key: &str, value: &[u8]) -> Result<(), KvError> {
        check_key(key)?;
        let mut connection = lock(&self.writer);
        if lock(&self.gone).contains(&scope.skill) {
            return Err(KvError::Gone);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (id, used) = scope_of(&transaction, scope)?;
        let before = size_of(&transaction, id, key)?;
        let next = KvUsage {
            bytes: used.bytes.saturating_sub(before.unwrap_or_default()).saturating_add(taken(key, value.len())),
            entries: used.entries.saturating_add(u64::from(before.is_none())),
        };
        // What is over the quota since that was lowered may shrink, and may not grow.
        if next.bytes > quota.bytes && next.bytes > used.bytes {
            return Err(KvError::TooManyBytes { wanted: next.bytes, quota: quota.bytes });
        }
        if next.entries > quota.entries && next.entries > used.entries {
            return Err(KvError::TooManyEntries { quota: quota.entries });
        }
        transaction
            .prepare_cached(
                "INSERT INTO entry (scope, key, value) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
            )?
            .execute(params![id, key, value])?;
        keep_usage(&transaction, id, next)?;
        Ok(transaction.commit()?)
    }

    /// Forgets a key. Says whether there was something.
    ///
    /// # Errors
    /// When it is no key, or the file cannot be written.
    pub fn delete(&self, scope: &KvScope, key: &str) -> Result<bool, KvError> {
        check_key(key)?;
        let mut connection = lock(&self.writer);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some((id, used)) = find_scope(&transaction, scope)? else { return Ok(false) };
        let Some(before) = size_of(&transaction, id, key)? else { return Ok(false) };
        transaction.prepare_cached("DELETE FROM entry WHERE scope = ?1 AND key = ?2")?.execute(params![id, key])?;
        let next = KvUsage { bytes: used.bytes.saturating_sub(before), entries: used.entries.saturating_sub(1) };
        keep_usage(&transaction, id, next)?;
        transaction.commit()?;
        Ok(true)
    }

    /// The keys that begin so, in the order of their bytes.
    ///
    /// # Errors
    /// When it is no beginning of a key, there are too many, or the file cannot be read.
    pub fn keys(&self, scope: &KvScope, prefix: &str) -> Result<Vec<String>, KvError> {
        if !prefix.is_empty() {
            check_key(prefix)?;
        }
        let connection = lock(&self.reader);
        let mut statement = connection.prepare_cached(
            "SELECT key FROM entry JOIN scope ON scope.id = entry.scope WHERE skill = ?1 AND workspace = ?2 AND key >= ?3 ORDER BY key",
        )?;
        let (skill, workspace) = scope.names();
        let mut rows = statement.query(params![skill, workspace, prefix])?;
        let (mut keys, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            let key: String = row.get(0)?;
            if !key.starts_with(prefix) {
                break;
            }
            bytes = bytes.saturating_add(key.len());
            if bytes > MOST_LISTED_BYTES {
                return Err(KvError::TooManyKeys { most: MOST_LISTED_BYTES });
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// How much of a scope is used.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn usage(&self, scope: &KvScope) -> Result<KvUsage, KvError> {
        let mut connection = lock(&self.reader);
        let transaction = connection.transaction()?;
        Ok(find_scope(&transaction, scope)?.map(|(_, used)| used).unwrap_or_default())
    }

    /// Forgets everything that a skill keeps, in every workspace. Says how many entries there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forget(&self, skill: &SkillId) -> Result<u64, KvError> {
        let mut connection = lock(&self.writer);
        // INVARIANT: under the writer's lock, so that a call of it that is still ending keeps nothing behind this.
        lock(&self.gone).insert(skill.clone());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let gone = transaction.execute(
            "DELETE FROM entry WHERE scope IN (SELECT id FROM scope WHERE skill = ?1)",
            params![skill.as_str()],
        )?;
        transaction.execute("DELETE FROM scope WHERE skill = ?1", params![skill.as_str()])?;
        transaction.commit()?;
        if gone > 0 {
            give_back(&connection)?;
        }
        Ok(u64::try_from(gone).unwrap_or(u64::MAX))
    }

    /// Lets a skill keep something again that was forgotten, because it is installed again.
    pub fn welcome(&self, skill: &SkillId) {
        lock(&self.gone).remove(skill);
    }

    /// Forgets what all skills keep but these. A skill that was removed while the machine went down has left something.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn keep_only(&self, skills: &BTreeSet<SkillId>) -> Result<(), KvError> {
        let known: Vec<String> = {
            let connection = lock(&self.reader);
            let mut asked = connection.prepare("SELECT DISTINCT skill FROM scope")?;
            asked.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
        };
        let mut others =
            known.iter().filter_map(|name| SkillId::parse(name).ok()).filter(|skill| !skills.contains(skill));
        others.try_for_each(|skill| self.forget(&skill).map(|_| ()))
    }
}

impl KvScope {
    fn names(&self) -> (&str, &str) {
        (self.skill.as_str(), self.workspace.as_str())
    }
}

/// The scope and what it uses, if there ever was anything in it.
fn find_scope(transaction: &Transaction<'_>, scope: &KvScope) -> Result<Option<(i64, KvUsage)>, KvError> {
    let mut statement =
        transaction.prepare_cached("SELECT id, bytes, entries FROM scope WHERE skill = ?1 AND workspace = ?2")?;
    let (skill, workspace) = scope.names();
    let found = statement.query_row(params![skill, workspace], |row| {
        let (bytes, entries): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, KvUsage { bytes: bytes.unsigned_abs(), entries: entries.unsigned_abs() }))
    });
    Ok(found.optional()?)
}

/// The scope and what it uses, made if it is not there.
fn scope_of(transaction: &Transaction<'_>, scope: &KvScope) -> Result<(i64, KvUsage), KvError> {
    if let Some(found) = find_scope(transaction, scope)? {
        return Ok(found);
    }
    let (skill, workspace) = scope.names();
    transaction
        .prepare_cached("INSERT INTO scope (skill, workspace, bytes, entries) VALUES (?1, ?2, 0, 0)")?
        .execute(params![skill, workspace])?;
    Ok((transaction.last_insert_rowid(), KvUsage::default()))
}

/// The bytes that a key and its value take, if there is something.
fn size_of(transaction: &Transaction<'_>, scope: i64, key: &str) -> Result<Option<u64>, KvError> {
    let mut statement = transaction.prepare_cached("SELECT length(value) FROM entry WHERE scope = ?1 AND key = ?2")?;
    let length: Option<i64> = statement.query_row(params![scope, key], |row| row.get(0)).optional()?;
    Ok(length.map(|length| length.unsigned_abs().saturating_add(taken(key, 0))))
}

fn keep_usage(transaction: &Transaction<'_>, scope: i64, usage: KvUsage) -> Result<(), KvError> {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    transaction.prepare_cached("UPDATE scope SET bytes = ?2, entries = ?3 WHERE id = ?1")?.execute(params![
        scope,
        number(usage.bytes),
        number(usage.entries)
    ])?;
    Ok(())
}

fn taken(key: &str, value: usize) -> u64 {
    u64::try_from(key.len().saturating_add(value)).unwrap_or(u64::MAX)
}

fn check_key(key: &str) -> Result<(), KvError> {
    if key.is_empty() || key.len() > MOST_KEY_BYTES || key.chars().any(is_hidden) {
        return Err(KvError::Key(key.to_owned()));
    }
    Ok(())
}

/// Makes the file before SQLite does, so that nobody else can open it in between.
fn make_private(path: &Path) -> Result<(), KvError> {
    use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
    let failed = |errno: rustix::io::Errno| KvError::File { path: path.to_owned(), source: errno.into() };
    let own = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open(path, flags, own).map_err(failed)?;
    if fstat(&file).map_err(failed)?.st_mode & 0o077 != 0 {
        fchmod(&file, own).map_err(failed)?;
    }
    Ok(())
}

fn connect(path: &Path) -> Result<Connection, KvError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Before anything is written, or it is without effect: what is forgotten leaves the file.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(connection)
}

/// Takes what is free out of the file, and what was there out of its log.
fn give_back(connection: &Connection) -> Result<(), KvError> {
    for pragma in ["PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"] {
        let mut statement = connection.prepare(pragma)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

/// Makes the tables of a new file, and refuses those of another time or purpose.
fn migrate(connection: &mut Connection) -> Result<(), KvError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let application: i64 = transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version, tables) {
        (APPLICATION, VERSION, _) => Ok(()),
        (0, 0, 0) => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(transaction.commit()?)
        }
        (APPLICATION, version, _) => Err(KvError::Version(version)),
        _ => Err(KvError::Foreign),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A transaction that a panic cut off was rolled back when it was dropped.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const TABLES: &str = "
    CREATE TABLE scope (
        id INTEGER PRIMARY KEY,
        skill TEXT NOT NULL,
        workspace TEXT NOT NULL,
        bytes INTEGER NOT NULL CHECK (bytes >= 0),
        entries INTEGER NOT NULL CHECK (entries >= 0),
        UNIQUE (skill, workspace)
    ) STRICT;
    CREATE TABLE entry (
        scope INTEGER NOT NULL REFERENCES scope (id),
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (scope, key)
    ) STRICT;
";

/// `Plkv`.
const APPLICATION: i64 = 0x506c_6b76;
const VERSION: i64 = 1;
const MOST_KEY_BYTES: usize = 512;
/// The most bytes of keys that are listed at once: 16 MiB.
const MOST_LISTED_BYTES: usize = 16 << 20;
const BUSY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
