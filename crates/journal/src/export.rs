//! Bundles: a range of records as JSON Lines, with all that a stranger needs to verify them.
//!
//! The first line says whose records follow and what is before them, each line after it is one record with its salt and its body, and the
//! last is the signed checkpoint with the proof that the records lead to it.
//!
//! Guarantees: a bundle is read and written one line at a time; a record that was changed, removed, added or moved is found, and named.
//! Does not: show that a body was erased for a reason when the record that tells of it is behind the end of the bundle.

use std::{
    io::{BufRead, Write},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_types::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::{
    chain::{Chain, Entry},
    checkpoint::Checkpoint,
    fault::{Failure, Fault},
    key::VerifyKey,
    proof::{ConsistencyProof, ProofError},
    record::genesis,
    sqlite::{archive::Archive, tiles::Tiles},
    tree::CompactRange,
    trust::Trust,
};

/// Which records are exported. Those that were dropped are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first record; `None` for the first that is kept.
    pub first: Option<u64>,
    /// The last record; `None` for the last there is.
    pub last: Option<u64>,
}

/// What was exported, or what a bundle holds that is what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Whose records they are.
    pub origin: String,
    /// The number of the first.
    pub first: u64,
    /// How many there are.
    pub records: u64,
    /// How many of their bodies were erased.
    pub erased: u64,
    /// The signed checkpoint that they lead to.
    pub checkpoint: Checkpoint,
}

/// Writes a bundle of the records of a journal's directory.
///
/// # Errors
/// When the journal cannot be read, has no such records, or the bundle cannot be written.
pub fn export(directory: &Path, extent: Extent, out: &mut dyn Write) -> Result<Bundle, ExportError> {
    let key = VerifyKey::load(directory).map_err(|error| ExportError::Unreadable(error.to_string()))?;
    let archive = Archive::open(directory)?;
    let note = archive.note()?.ok_or_else(|| ExportError::Unreadable("it has no signed head".to_owned()))?;
    let checkpoint = Checkpoint::open(&note, &key).map_err(|error| ExportError::Unreadable(error.to_string()))?;
    let first = extent.first.unwrap_or(0).max(archive.first());
    let last = extent.last.unwrap_or(u64::MAX).min(checkpoint.size.saturating_sub(1));
    if first > last || checkpoint.size == 0 {
        return Err(ExportError::Empty { first: archive.first(), size: checkpoint.size });
    }
    let tiles = Tiles(archive.live());
    let prev = match first.checked_sub(1) {
        None => genesis(key.name()),
        Some(before) if before < archive.first() => archive.start(key.name()).map_err(unreadable)?.1,
        Some(before) => tiles.leaf(before).map_err(unreadable)?.ok_or_else(|| unreadable("a hash is missing"))?,
    };
    let range = tiles.tree(first)?.range().roots().collect();
    let (origin, v) = (key.name().to_owned(), VERSION);
    let opening = Opening {
        format: FORMAT.to_owned(),
        v,
        origin: origin.clone(),
        key: key.text().to_owned(),
        first,
        prev,
        range,
    };
    line(out, &opening)?;
    let (mut records, mut erased) = (0, 0);
    archive.visit((first, last), |row| {
        records += 1;
        erased += u64::from(row.body.is_none());
        let salt = row.salt.map(|salt| BASE64_STANDARD.encode(salt));
        line(out, &Line { record: row.text.to_owned(), salt, body: row.body.map(str::to_owned) })
    })?;
    let size = first + records;
    let consistency = tiles.consistency(size, checkpoint.size)?.path;
    line(out, &Closing { size, checkpoint: note, consistency })?;
    out.flush()?;
    Ok(Bundle { origin, first, records, erased, checkpoint })
}

/// Verifies a bundle.
///
/// # Errors
/// The first record that is not what was written, and what is wrong with it.
pub fn verify_bundle(bundle: &mut dyn BufRead, trust: &Trust) -> Result<Bundle, Failure> {
    let mut lines = Lines { bundle, text: String::new() };
    let opening = lines.opening()?;
    let first = opening.first;
    let key = opening.key(trust)?;
    let boundary = || Failure::new(first, Fault::Boundary);
    let mut range = CompactRange::new(first, &opening.range).ok_or_else(boundary)?;
    if first == 0 && opening.prev != genesis(key.name()) {
        return Err(boundary());
    }
    let saved = trust.open(&key)?;
    let mut chain = Chain::from(first, opening.prev);
    let closing = loop {
        match lines.next(chain.next())? {
            Either::Record(Line { record, salt, body }) => {
                let salt = salt.map(|salt| BASE64_STANDARD.decode(salt)).transpose();
                let salt = salt.map_err(|_| Failure::new(chain.next(), Fault::BodyChanged))?;
                let leaf = chain.take(Entry { text: &record, salt: salt.as_deref(), body: body.as_deref() })?;
                range.push(leaf, |_, _| {});
                let differs = |point: &&Checkpoint| point.size == range.size() && point.root != range.root();
                if let Some(point) = saved.iter().find(differs) {
                    return Err(Failure::new(first, Fault::OtherHistory { signed: point.size }));
                }
            }
            Either::Closing(closing) => break closing,
        }
    };
    close(chain, &range, (&closing, &saved), &key, first)
}

fn close(
    chain: Chain,
    range: &CompactRange,
    (closing, saved): (&Closing, &[Checkpoint]),
    key: &VerifyKey,
    first: u64,
) -> Result<Bundle, Failure> {
    let next = chain.next();
    let tally = chain.finish()?;
    if closing.size > next {
        return Err(Failure::new(next, Fault::Missing));
    }
    if closing.size < next {
        return Err(Failure::new(closing.size, Fault::Unexpected));
    }
    let checkpoint = Checkpoint::open(&closing.checkpoint, key).map_err(|_| Failure::new(first, Fault::Unsigned))?;
    let proof = ConsistencyProof { from: next, to: checkpoint.size, path: closing.consistency.clone() };
    let here = Checkpoint { size: next, root: range.root() };
    proof.check(&here, &checkpoint).map_err(|_| Failure::new(first, Fault::Unproven))?;
    if let Some(cut) = saved.iter().find(|point| point.size > checkpoint.size) {
        return Err(Failure::new(checkpoint.size, Fault::CutOff { signed: cut.size }));
    }
    // A body that is gone is accounted for by a record behind it, which a bundle that ends earlier does not hold.
    if let Some(seq) = tally.unaccounted.filter(|_| checkpoint.size == next) {
        return Err(Failure::new(seq, Fault::BodyMissing));
    }
    let origin = key.name().to_owned();
    Ok(Bundle { origin, first, records: next - first, erased: tally.erased, checkpoint })
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    format: String,
    v: u8,
    origin: String,
    key: String,
    first: u64,
    prev: Sha256Digest,
    range: Vec<Sha256Digest>,
}

impl Opening {
    /// The key to verify with: the pinned one if there is one, which the bundle's must equal then.
    fn key(&self, trust: &Trust) -> Result<VerifyKey, Failure> {
        let key = VerifyKey::parse(&self.key).map_err(|_| Failure::new(self.first, Fault::OtherKey))?;
        if trust.key.as_ref().is_some_and(|pinned| *pinned != key) {
            return Err(Failure::new(self.first, Fault::OtherKey));
        }
        if key.name() != self.origin {
            let (found, expected) = (self.origin.clone(), key.name().to_owned());
            return Err(Failure::new(self.first, Fault::OtherJournal { found, expected }));
        }
        Ok(key)
    }
}

/// A line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    record: String,
    salt: Option<String>,
    body: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Closing {
    size: u64,
    checkpoint: String,
    consistency: Vec<Sha256Digest>,
}

enum Either {
    Record(Line),
    Closing(Closing),
}

struct Lines<'a> {
    bundle: &'a mut dyn BufRead,
    text: String,
}

impl Lines<'_> {
    fn opening(&mut self) -> Result<Opening, Failure> {
        let fail = |why: &str| Failure::new(0, Fault::Bundle(why.to_owned()));
        self.read(0)?;
        let opening: Opening = serde_json::from_str(&self.text).map_err(|_| fail("its first line is no header"))?;
        if opening.format != FORMAT || opening.v != VERSION {
            return Err(fail("it is of another format or version"));
        }
        Ok(opening)
    }

    fn next(&mut self, seq: u64) -> Result<Either, Failure> {
        if self.read(seq)? == 0 {
            return Err(Failure::new(seq, Fault::Bundle("it ends without a checkpoint".to_owned())));
        }
        if let Ok(line) = serde_json::from_str(&self.text) {
            return Ok(Either::Record(line));
        }
        let closing = serde_json::from_str(&self.text)
            .map_err(|_| Failure::new(seq, Fault::Bundle("a line is no record".to_owned())))?;
        if self.read(seq)? != 0 {
            return Err(Failure::new(seq, Fault::Bundle("something follows the checkpoint".to_owned())));
        }
        Ok(Either::Closing(closing))
    }

    fn read(&mut self, seq: u64) -> Result<usize, Failure> {
        self.text.clear();
        self.bundle.read_line(&mut self.text).map_err(|error| Failure::new(seq, Fault::Bundle(error.to_string())))
    }
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Unreadable(String),
    /// There are no such records.
    #[error("there are no such records; those from {first} on are kept, and there were {size}")]
    Empty {
        /// The first record that is kept.
        first: u64,
        /// How many records there were.
        size: u64,
    },
    /// The bundle cannot be written.
    #[error("the bundle cannot be written: {0}")]
    Unwritable(#[from] std::io::Error),
}

impl ExportError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "run `palyra journal verify`",
            Self::Empty { .. } => "name records that exist",
            Self::Unwritable(_) => "check where the bundle is written to",
        }
    }
}

impl From<rusqlite::Error> for ExportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<ProofError> for ExportError {
    fn from(error: ProofError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

fn unreadable(error: impl ToString) -> ExportError {
    ExportError::Unreadable(error.to_string())
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

const FORMAT: &str = "palyra-journal-bundle";

const VERSION: u8 = 1;
