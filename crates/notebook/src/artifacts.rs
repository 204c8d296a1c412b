//! Files that a run made: a report, a picture, a patch.
//!
//! Guarantees: what is read is what was kept, or it is refused; equal content is stored once and goes with the last artifact that has it; a
//! scope, an author and all of them together never hold more than their limits. What a crash left half done is cleaned up at the next opening: a content is written before it is
//! referred to, and removed after.
//! Does not: look into a content, or believe its media type.

mod error;
mod media;

use std::{ops::Range, path::Path, sync::Arc};

use palyra_types::{Clock, Entropy, Sha256Digest, Timestamp};
use rusqlite::{Row, Transaction, params};
use serde::{Deserialize, Serialize};

pub use self::{
    error::ArtifactError,
    media::{MediaType, MediaTypeError},
};
use crate::{
    blobs::{Blobs, Found},
    database::{Database, Purpose, count, number},
    directory::private_directory,
    error::StoreError,
    id::ArtifactId,
    label::{check, check_without},
    page::{Page, bounded},
    scope::MemoryScope,
};

/// Most bytes of one artifact.
pub const MOST_ARTIFACT_BYTES: usize = 8 << 20;
/// Most bytes of the artifacts of one scope. Equal contents count each time.
pub const MOST_SCOPE_BYTES: u64 = 256 << 20;
/// Most artifacts of one scope.
pub const MOST_ARTIFACTS: u64 = 10_000;
/// Most bytes of the artifacts of one author, in all scopes together.
pub const MOST_AUTHOR_BYTES: u64 = 512 << 20;
/// Most artifacts of one author, in all scopes together.
pub const MOST_AUTHOR_ARTIFACTS: u64 = 20_000;
/// Most bytes of the artifacts of all authors.
pub const MOST_BYTES_IN_ALL: u64 = 4 << 30;
/// Most artifacts of all authors.
pub const MOST_ARTIFACTS_IN_ALL: u64 = 100_000;
/// Most characters of the name of an artifact.
pub const MOST_NAME_CHARS: usize = 255;

/// What is known of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Which.
    pub id: ArtifactId,
    /// Whose.
    pub scope: MemoryScope,
    /// What it is called. Not unique.
    pub name: String,
    /// What its maker says it is.
    pub media_type: MediaType,
    /// The digest of its content.
    pub sha256: Sha256Digest,
    /// Bytes of its content.
    pub size: u64,
    /// When it was kept.
    pub created: Timestamp,
    /// The principal who kept it.
    pub by: String,
}

/// What is to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewArtifact<'a> {
    /// Whose.
    pub scope: &'a MemoryScope,
    /// What it is called.
    pub name: &'a str,
    /// What it is.
    pub media_type: &'a MediaType,
    /// Its content.
    pub bytes: &'a [u8],
    /// The principal who keeps it.
    pub by: &'a str,
}

/// An artifact and its content, or the part of it that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// What is known of it.
    pub artifact: Artifact,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Every artifact, in `artifacts.sqlite` and the directory `artifacts`.
pub struct ArtifactStore {
    database: Database,
    blobs: Blobs,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl ArtifactStore {
    /// Opens the artifacts in a directory; both are made if they are not there. What a crash left half done is removed.
    ///
    /// # Errors
    /// When they cannot be opened, or are something else.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Result<Self, ArtifactError> {
        private_directory(directory)?;
        let database = Database::open(&directory.join("artifacts.sqlite"), &PURPOSE)?;
        let blobs = Blobs::open(&directory.join("artifacts"))?;
        database.write(|transaction| {
            let mut statement = transaction.prepare("SELECT DISTINCT sha256 FROM artifact")?;
            let wanted = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            blobs.keep_only(&wanted)
        })?;
        Ok(Self { database, blobs, clock, entropy })
    }

    /// Keeps an artifact.
    ///
    /// # Errors
    /// When it breaks a limit, or cannot be written. Then nothing of it is kept.
    pub fn put(&self, new: &NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        check_without("name", new.name, MOST_NAME_CHARS, "/\\")?;
        check("author", new.by, MOST_NAME_CHARS)?;
        if new.bytes.len() > MOST_ARTIFACT_BYTES {
            return Err(ArtifactError::TooLong(new.bytes.len()));
        }
        let now = self.clock.now();
        let artifact = Artifact {
            id: ArtifactId::generate(now, self.entropy.as_ref()).map_err(StoreError::from)?,
            scope: new.scope.clone(),
            name: new.name.to_owned(),
            media_type: new.media_type.clone(),
            sha256: Sha256Digest::of(new.bytes),
            size: count(new.bytes.len()),
            created: now,
            by: new.by.to_owned(),
        };
        // INVARIANT: contents are written and removed inside a transaction that writes, so by one at a time.
        self.database.write(|transaction| {
            check_usage(transaction, &artifact)?;
            self.blobs.keep(artifact.sha256, new.bytes)?;
            Ok::<_, ArtifactError>(insert(transaction, &artifact)?)
        })?;
        Ok(artifact)
    }

    /// What is known of an artifact, without its content.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn about(&self, id: ArtifactId) -> Result<Option<Artifact>, ArtifactError> {
        self.database.read(|transaction| Ok(find(transaction, id)?))
    }

    /// An artifact and its content, or the bytes of it from the first on and before the last of a range. What is beyond the end is left out.
    ///
    /// # Errors
    /// When the range begins behind the content, the content was changed or is gone, or cannot be read.
    pub fn get(&self, id: ArtifactId, range: Option<Range<u64>>) -> Result<Option<Content>, ArtifactError> {
        // Should the artifact be deleted between the row and the content, it is looked for once more.
        let read = |artifact: &Artifact| {
            self.blobs.read(artifact.sha256, usize::try_from(artifact.size).unwrap_or(usize::MAX))
        };
        let Some(artifact) = self.about(id)? else { return Ok(None) };
        let bytes = match read(&artifact)? {
            Found::Whole(bytes) => bytes,
            Found::Changed => return Err(ArtifactError::Changed(id)),
            Found::Missing if self.about(id)?.is_none() => return Ok(None),
            Found::Missing => return Err(ArtifactError::Missing(id)),
        };
        let Some(range) = range else { return Ok(Some(Content { artifact, bytes })) };
        if range.start > artifact.size || range.start > range.end {
            return Err(ArtifactError::Range { start: range.start, end: range.end, size: artifact.size });
        }
        let place = |at: u64| usize::try_from(at.min(artifact.size)).unwrap_or(usize::MAX);
        let bytes = bytes.get(place(range.start)..place(range.end)).unwrap_or_default().to_vec();
        Ok(Some(Content { artifact, bytes }))
    }

    /// The artifacts of a scope, oldest first, from behind one on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(
        &self,
        scope: &MemoryScope,
        after: Option<ArtifactId>,
        limit: usize,
    ) -> Result<Page<Artifact, ArtifactId>, ArtifactError> {
        let limit = bounded(limit);
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let artifacts = self.database.read(|transaction| {
            let sql = "SELECT * FROM artifact WHERE scope = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut rows = statement.query(params![scope.to_string(), after, number(count(limit + 1))])?;
            let mut artifacts = Vec::new();
            while let Some(row) = rows.next()? {
                artifacts.push(artifact(row)?);
            }
            Ok::<_, StoreError>(artifacts)
        })?;
        Ok(Page::of(artifacts, limit, |last| last.id))
    }

    /// The scopes that hold something: how many artifacts, and how many bytes.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn scopes(&self) -> Result<Vec<(MemoryScope, u64, u64)>, ArtifactError> {
        let scopes = self.database.read(|transaction| {
            let sql = "SELECT scope, count(*), sum(size) FROM artifact GROUP BY scope ORDER BY scope";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            let mut scopes = Vec::new();
            while let Some(row) = rows.next()? {
                let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
                let scope = MemoryScope::parse(&row.get::<_, String>(0)?).map_err(damaged)?;
                scopes.push((scope, count(1)?, count(2)?));
            }
            Ok::<_, StoreError>(scopes)
        })?;
        Ok(scopes)
    }

    /// Deletes an artifact, and its content if no other has it. Says whether there was one.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub fn delete(&self, id: ArtifactId) -> Result<bool, ArtifactError> {
        let gone = self.forget("DELETE FROM artifact WHERE id = ?1 RETURNING sha256", &id.to_string())?;
        Ok(gone > 0)
    }

    /// Deletes everything of a scope. Says how many artifacts there were.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub fn purge(&self, scope: &MemoryScope) -> Result<u64, ArtifactError> {
        self.forget("DELETE FROM artifact WHERE scope = ?1 RETURNING sha256", &scope.to_string())
    }

    fn forget(&self, sql: &str, which: &str) -> Result<u64, ArtifactError> {
        let digests = self.database.write(|transaction| {
            let mut statement = transaction.prepare(sql)?;
            let digests: Vec<String> = statement.query_map([which], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok::<_, StoreError>(digests)
        })?;
        // INVARIANT: only after the references are gone for good, and while nobody can make a new one.
        self.database.write(|transaction| {
            let mut used = transaction.prepare_cached("SELECT 1 FROM artifact WHERE sha256 = ?1 LIMIT 1")?;
            for digest in &digests {
                if !used.exists([digest])? {
                    self.blobs.remove(Sha256Digest::parse(digest).map_err(damaged)?)?;
                }
            }
            Ok::<_, StoreError>(())
        })?;
        if !digests.is_empty() {
            self.database.give_back()?;
        }
        Ok(count(digests.len()))
    }
}

impl std::fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactStore").finish_non_exhaustive()
    }
}

fn check_usage(transaction: &Transaction<'_>, new: &Artifact) -> Result<(), ArtifactError> {
    let (artifacts, bytes) = with(transaction, new, "WHERE scope = ?1", Some(&new.scope.to_string()))?;
    if artifacts > MOST_ARTIFACTS {
        return Err(ArtifactError::TooMany);
    }
    if bytes > MOST_SCOPE_BYTES {
        return Err(ArtifactError::TooManyBytes(bytes));
    }
    // SECURITY: whoever opens sessions without end has scopes without end, so limits of scopes alone are none.
    let (artifacts, bytes) = with(transaction, new, "WHERE by = ?1", Some(&new.by))?;
    if artifacts > MOST_AUTHOR_ARTIFACTS || bytes > MOST_AUTHOR_BYTES {
        return Err(ArtifactError::AuthorFull { author: new.by.clone(), artifacts, bytes });
    }
    let (artifacts, bytes) = with(transaction, new, "", None)?;
    if artifacts > MOST_ARTIFACTS_IN_ALL || bytes > MOST_BYTES_IN_ALL {
        return Err(ArtifactError::Full { artifacts, bytes });
    }
    Ok(())
}

/// How many artifacts and bytes there would be of some kind with a new one.
fn with(
    transaction: &Transaction<'_>,
    new: &Artifact,
    kind: &'static str,
    which: Option<&str>,
) -> Result<(u64, u64), StoreError> {
    let mut statement =
        transaction.prepare_cached(&format!("SELECT count(*), coalesce(sum(size), 0) FROM artifact {kind}"))?;
    let (artifacts, bytes): (i64, i64) =
        statement.query_row(rusqlite::params_from_iter(which), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((artifacts.unsigned_abs().saturating_add(1), bytes.unsigned_abs().saturating_add(new.size)))
}

fn insert(transaction: &Transaction<'_>, artifact: &Artifact) -> Result<(), StoreError> {
    let sql = "INSERT INTO artifact (id, scope, name, media_type, sha256, size, created, by)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    transaction.prepare_cached(sql)?.execute(params![
        artifact.id.to_string(),
        artifact.scope.to_string(),
        artifact.name,
        artifact.media_type.as_str(),
        artifact.sha256.to_hex(),
        number(artifact.size),
        artifact.created.unix_millis(),
        artifact.by,
    ])?;
    Ok(())
}

fn find(transaction: &Transaction<'_>, id: ArtifactId) -> Result<Option<Artifact>, StoreError> {
    let mut statement = transaction.prepare_cached("SELECT * FROM artifact WHERE id = ?1")?;
    let mut rows = statement.query([id.to_string()])?;
    rows.next()?.map(artifact).transpose()
}

fn artifact(row: &Row<'_>) -> Result<Artifact, StoreError> {
    let text = |name: &str| row.get::<_, String>(name);
    Ok(Artifact {
        id: ArtifactId::parse(&text("id")?).map_err(damaged)?,
        scope: MemoryScope::parse(&text("scope")?).map_err(damaged)?,
        name: text("name")?,
        media_type: MediaType::parse(&text("media_type")?).map_err(damaged)?,
        sha256: Sha256Digest::parse(&text("sha256")?).map_err(damaged)?,
        size: row.get::<_, i64>("size")?.unsigned_abs(),
        created: Timestamp::from_unix_millis(row.get("created")?),
        by: text("by")?,
    })
}

fn damaged(why: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: "store of artifacts", why: why.to_string() }
}

const PURPOSE: Purpose = Purpose {
    what: "store of artifacts",
    // `Plar`.
    application: 0x506c_6172,
    migrations: &[
        "
        CREATE TABLE artifact (
            id TEXT PRIMARY KEY,
            scope TEXT NOT NULL,
            name TEXT NOT NULL,
            media_type TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            size INTEGER NOT NULL CHECK (size >= 0),
            created INTEGER NOT NULL,
            by TEXT NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX artifact_listed ON artifact (scope, id, size);
        CREATE INDEX artifact_content ON artifact (sha256);
    ",
        "
        CREATE INDEX artifact_author ON artifact (by, size);
    ",
    ],
};

#[cfg(test)]
mod tests;
