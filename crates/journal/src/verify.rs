//! Verifies a journal's directory without the daemon, or beside it.
//!
//! Guarantees: reads one moment of the journal, in constant memory, and changes nothing; a single byte that differs from what was written,
//! in any value that the chain keeps, is found, and the first bad record is named. With a key that was pinned elsewhere an exchanged
//! journal is found, with a checkpoint that was saved elsewhere also one that was cut off and signed again.
//! Does not: judge the state tables. They follow from the records, and the gate refuses what does not fit.

use std::path::Path;

use palyra_types::Sha256Digest;
use tlog_tiles::HASH_SIZE;

use crate::{
    chain::{Chain, Entry},
    checkpoint::Checkpoint,
    fault::{Failure, Fault},
    key::{SIGNING_KEY_FILE, VERIFY_KEY_FILE, VerifyKey},
    record::Record,
    sqlite::{
        DATABASE_FILE,
        archive::{Archive, Boundary, Segment, StoredRow},
    },
    tree::{FullTile, TILE_HEIGHT, TILE_RECORDS, TILE_WIDTH, Tree},
    trust::{Landmarks, Trust},
};

/// What a journal holds that is what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose journal it is.
    pub origin: String,
    /// The first record that is kept; those before it were dropped.
    pub first: u64,
    /// How many records were checked.
    pub records: u64,
    /// How many of their bodies were erased.
    pub erased: u64,
    /// How many bodies are still there although a record tells of their erasure: it was interrupted, and the daemon goes on with it.
    pub unfinished: u64,
    /// How many sealed segments there are.
    pub segments: u64,
    /// What the signed head says.
    pub head: Checkpoint,
    /// The signed head.
    pub note: String,
    /// How many of the saved checkpoints are older than the records that are kept, and therefore show nothing.
    pub too_old: u64,
}

/// Verifies the journal in a directory. `progress` hears how many of how many records were checked, every now and then.
///
/// # Errors
/// The first record that is not what was written, and what is wrong with it.
pub fn verify(directory: &Path, trust: &Trust, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Failure> {
    let mut before = None;
    loop {
        match verify_once(directory, trust, progress) {
            // Bodies may be erased in a segment while an earlier moment of the live database is read. The record that tells of it was there
            // before they were missing, so a later moment has it: look again. A body that is missing twice is missing.
            Err(Failure { seq, fault: Fault::BodyMissing }) if before != Some(seq) => before = Some(seq),
            outcome => return outcome,
        }
    }
}

fn verify_once(directory: &Path, trust: &Trust, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Failure> {
    // A key gets its name when its journal has a record, so one without a database has lost it.
    let is_there = |file: &str| directory.join(file).exists();
    if !is_there(DATABASE_FILE) && (is_there(VERIFY_KEY_FILE) || is_there(SIGNING_KEY_FILE)) {
        return Err(Failure::new(0, Fault::Vanished));
    }
    let key = trust.key_of(VerifyKey::load(directory))?;
    let archive = Archive::open(directory).map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen) => Failure::new(0, Fault::Absent(error.to_string())),
        _ => unreadable(0, &error),
    })?;
    let note = archive.note().map_err(|error| unreadable(0, &error))?.ok_or(Failure::new(0, Fault::Unsigned))?;
    let head = open_head(&note, &key)?;
    let mut landmarks = Landmarks::new(trust.open(&key)?);
    let too_old = landmarks.skip_before(archive.first());
    if let Some(saved) = landmarks.beyond(head.size) {
        return Err(Failure::new(head.size, Fault::CutOff { signed: saved }));
    }
    landmarks.add(head.clone());
    let mut audit = Audit::begin(&archive, &key, landmarks, progress)?;
    for segment in archive.segments() {
        audit.segment(segment, &key)?;
    }
    audit.live()?;
    let (tally, records) = audit.finish(&head)?;
    Ok(Report {
        origin: key.name().to_owned(),
        first: archive.first(),
        records,
        erased: tally.erased,
        unfinished: tally.unfinished,
        segments: u64::try_from(archive.segments().len()).unwrap_or(u64::MAX),
        head,
        note,
        too_old,
    })
}

fn open_head(note: &str, key: &VerifyKey) -> Result<Checkpoint, Failure> {
    Checkpoint::open(note, key).map_err(|_| {
        let found = note.lines().next().unwrap_or_default();
        if found == key.name() {
            return Failure::new(0, Fault::Unsigned);
        }
        let (found, expected) = (found.to_owned(), key.name().to_owned());
        Failure::new(0, Fault::OtherJournal { found, expected })
    })
}

/// The verification of a directory, as far as it is.
struct Audit<'a> {
    archive: &'a Archive,
    chain: Chain,
    tree: Tree,
    landmarks: Landmarks,
    /// The records before this one are those of a signed checkpoint.
    vouched: u64,
    /// The stored hashes of the bottom tile that is being filled.
    tile: Vec<u8>,
    tiles: u64,
    /// How many records the head says there are.
    size: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Audit<'a> {
    fn begin(
        archive: &'a Archive,
        key: &VerifyKey,
        landmarks: Landmarks,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Result<Self, Failure> {
        let first = archive.first();
        let boundary = || Failure::new(first, Fault::Boundary);
        let (tree, last) = archive.start(key.name()).map_err(|_| boundary())?;
        if let Some(dropped) = archive.dropped() {
            let signed = Checkpoint::open(&dropped.note, key).map_err(|_| boundary())?;
            if signed != (Checkpoint { size: first, root: tree.root() }) || !first.is_multiple_of(TILE_RECORDS) {
                return Err(boundary());
            }
        }
        let size = landmarks.last();
        let (chain, tile) = (Chain::from(first, last), Vec::new());
        let mut audit = Self { archive, chain, tree, landmarks, vouched: first, tile, tiles: 0, size, progress };
        audit.tiles = audit.dropped_tiles()?;
        audit.pass()?;
        Ok(audit)
    }

    /// Checks the tiles over dropped records: the bottom is gone but for the roots, and all above it follows from those.
    fn dropped_tiles(&self) -> Result<u64, Failure> {
        let (mut entries, mut count) = (self.archive.first(), 0);
        for level in 0_u8.. {
            let full = entries >> TILE_HEIGHT;
            if full == 0 {
                break;
            }
            for index in 0..full {
                let first = (index << TILE_HEIGHT) << (u32::from(level) * u32::from(TILE_HEIGHT));
                let stored = self.stored_tile(level, index, first)?;
                let expected = if level == 0 {
                    Vec::new()
                } else {
                    let first = index << TILE_HEIGHT;
                    self.archive
                        .entries(level, first, first + TILE_RECORDS)
                        .map_err(|error| unreadable(first, &error))?
                };
                let root_of = |hashes: &[u8]| tlog_tiles::Tile::subtree_hash(hashes).0;
                let fits = match stored.hashes.len() {
                    0 => level == 0 && stored.root.len() == HASH_SIZE,
                    // A bottom tile that was not cleared yet.
                    TILE_BYTES if level == 0 => root_of(&stored.hashes) == *stored.root,
                    TILE_BYTES => stored.hashes == expected && root_of(&expected) == *stored.root,
                    _ => false,
                };
                if !fits {
                    return Err(Failure::new(first, Fault::Tile));
                }
                count += 1;
            }
            entries = full;
        }
        Ok(count)
    }

    fn stored_tile(&self, level: u8, index: u64, seq: u64) -> Result<crate::sqlite::archive::StoredTile, Failure> {
        let tile = self.archive.tile(level, index).map_err(|error| unreadable(seq, &error))?;
        tile.ok_or(Failure::new(seq, Fault::Tile))
    }

    fn segment(&mut self, segment: &Segment, key: &VerifyKey) -> Result<(), Failure> {
        let first = self.chain.next();
        if segment.first != first || segment.last < first || !(segment.last + 1).is_multiple_of(TILE_RECORDS) {
            return Err(Failure::new(first, Fault::Boundary));
        }
        if segment.is_missing() {
            return Err(Failure::new(first, Fault::SegmentMissing));
        }
        let said = segment.boundary().map_err(|error| unreadable(first, &error))?;
        let roots = self.tree.range().roots().flat_map(|root| *root.as_bytes()).collect();
        let (last, prev) = (segment.last, self.chain.last().as_bytes().to_vec());
        if said != (Boundary { first, last, prev, roots, note: segment.note.clone() }) {
            return Err(Failure::new(first, Fault::Boundary));
        }
        let boundary = Checkpoint::open(&segment.note, key).map_err(|_| Failure::new(first, Fault::Boundary))?;
        if boundary.size != last + 1 {
            return Err(Failure::new(first, Fault::Boundary));
        }
        segment
            .visit_all(|row| {
                if self.chain.next() > last {
                    Err(Failure::new(last + 1, Fault::Unexpected).into())
                } else {
                    self.row(row)
                }
            })
            .map_err(|stop: Stop| stop.at(self.chain.next()))?;
        if self.chain.next() != last + 1 {
            return Err(Failure::new(self.chain.next(), Fault::Missing));
        }
        if self.tree.root() != boundary.root {
            return Err(Failure::new(self.vouched, Fault::OtherHistory { signed: boundary.size }));
        }
        self.vouched = boundary.size;
        Ok(())
    }

    fn live(&mut self) -> Result<(), Failure> {
        let (archive, first) = (self.archive, self.chain.next());
        archive.visit_live(first, |row| self.row(row)).map_err(|stop: Stop| stop.at(self.chain.next()))?;
        let mut at = 0;
        archive
            .visit_sealed_in_live(first, |row| {
                at = row.seq.unsigned_abs();
                self.sealed_copy(&row).map_err(Stop::from)
            })
            .map_err(|stop: Stop| stop.at(at))
    }

    /// Checks a row that is next in the chain.
    fn row(&mut self, row: StoredRow<'_>) -> Result<(), Stop> {
        let seq = self.chain.next();
        match u64::try_from(row.seq) {
            Ok(found) if found == seq => {}
            Ok(found) if found > seq => return Err(Failure::new(seq, Fault::Missing).into()),
            _ => return Err(Failure::new(seq, Fault::Unexpected).into()),
        }
        if seq >= self.size {
            return Err(Failure::new(seq, Fault::Unexpected).into());
        }
        let hash = self.chain.take(Entry { text: row.text, salt: row.salt, body: row.body })?;
        if row.hash != hash.as_bytes() {
            return Err(Failure::new(seq, Fault::WrongHash).into());
        }
        self.leaf(seq, hash)?;
        self.pass()?;
        if seq.is_multiple_of(PROGRESS_EVERY) {
            (self.progress)(seq, self.size);
        }
        Ok(())
    }

    /// Puts a leaf into the tree, and compares with what is stored of the tree.
    fn leaf(&mut self, seq: u64, hash: Sha256Digest) -> Result<(), Failure> {
        let (index, within) = (seq >> TILE_HEIGHT, usize::try_from(seq % TILE_RECORDS).unwrap_or(0));
        if within == 0 {
            self.tile =
                if index < self.size >> TILE_HEIGHT { self.stored_tile(0, index, seq)?.hashes } else { Vec::new() };
        }
        if index < self.size >> TILE_HEIGHT {
            let at = within * HASH_SIZE;
            if self.tile.get(at..at + HASH_SIZE) != Some(hash.as_bytes().as_slice()) {
                return Err(Failure::new(seq, Fault::Tile));
            }
        }
        let mut full = Vec::new();
        self.tree.push(hash, |tile| full.push(tile));
        full.iter().try_for_each(|tile| self.full_tile(tile))
    }

    fn full_tile(&mut self, tile: &FullTile) -> Result<(), Failure> {
        let first = tile.index << ((u32::from(tile.level) + 1) * u32::from(TILE_HEIGHT));
        let stored = self.stored_tile(tile.level, tile.index, first)?;
        if stored.hashes != tile.hashes || stored.root != tile.root.as_bytes() {
            return Err(Failure::new(first, Fault::Tile));
        }
        self.tiles += 1;
        Ok(())
    }

    /// Compares with every signed checkpoint of the size that was reached.
    fn pass(&mut self) -> Result<(), Failure> {
        let size = self.tree.size();
        let mut points = self.landmarks.at(size).peekable();
        if points.peek().is_none() {
            return Ok(());
        }
        let root = self.tree.root();
        if points.any(|point| point.root != root) {
            return Err(Failure::new(self.vouched, Fault::OtherHistory { signed: size }));
        }
        self.vouched = size;
        Ok(())
    }

    /// Checks a row that was sealed and not removed from the live database yet. The segment's row is in the tree already.
    fn sealed_copy(&mut self, row: &StoredRow<'_>) -> Result<(), Failure> {
        let seq = u64::try_from(row.seq).map_err(|_| Failure::new(0, Fault::Unexpected))?;
        let fail = |fault| Err(Failure::new(seq, fault));
        if seq < self.archive.first() {
            return fail(Fault::Unexpected);
        }
        let record = Record::parse(row.text).map_err(|error| Failure::new(seq, Fault::Malformed(error)))?;
        if record.seq != seq {
            return fail(Fault::Misplaced { claims: record.seq });
        }
        let hash = Record::hash(row.text);
        if row.hash != hash.as_bytes() {
            return fail(Fault::WrongHash);
        }
        let (index, within) = (seq >> TILE_HEIGHT, usize::try_from(seq % TILE_RECORDS).unwrap_or(0) * HASH_SIZE);
        let tile = self.stored_tile(0, index, seq)?;
        if tile.hashes.get(within..within + HASH_SIZE) != Some(hash.as_bytes().as_slice()) {
            return fail(Fault::Tile);
        }
        self.chain.check_body(&record, Entry { text: row.text, salt: row.salt, body: row.body })
    }

    fn finish(self, head: &Checkpoint) -> Result<(crate::chain::Tally, u64), Failure> {
        let (next, first) = (self.chain.next(), self.archive.first());
        if next < head.size {
            return Err(Failure::new(next, Fault::CutOff { signed: head.size }));
        }
        if self.archive.tile_count().map_err(|error| unreadable(next, &error))? != self.tiles {
            return Err(Failure::new(next, Fault::Tile));
        }
        // SECURITY: without this, whoever can delete files could pass a deleted segment off as a dropped one.
        if self.chain.dropped() < first {
            return Err(Failure::new(first, Fault::Undropped));
        }
        let tally = self.chain.finish()?;
        match tally.unaccounted {
            Some(seq) => Err(Failure::new(seq, Fault::BodyMissing)),
            None => Ok((tally, next - first)),
        }
    }
}

/// What ends a pass over rows: a fault, or a row that cannot be read.
enum Stop {
    Failure(Failure),
    Sqlite(rusqlite::Error),
}

impl Stop {
    fn at(self, seq: u64) -> Failure {
        match self {
            Self::Failure(failure) => failure,
            Self::Sqlite(error) => unreadable(seq, &error),
        }
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

fn unreadable(seq: u64, error: &rusqlite::Error) -> Failure {
    Failure::new(seq, Fault::Unreadable(error.to_string()))
}

/// The length of a full tile.
const TILE_BYTES: usize = TILE_WIDTH * HASH_SIZE;

/// How often progress is told.
const PROGRESS_EVERY: u64 = 8_192;
