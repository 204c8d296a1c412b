//! The stored tree, tile by tile, at its size now or at any earlier one.
//!
//! Guarantees: a tile of an earlier size is the beginning of the same tile now, so every earlier tree can be read back; hashes that a
//! proof is made of were checked against the root.

use palyra_types::Sha256Digest;
use rusqlite::{Connection, OptionalExtension, types::Type};
use tlog_tiles::{Error, HASH_SIZE, Hash, Tile, TileHashReader, TileReader};

use super::head::{open_tile, place};
use crate::{
    checkpoint::Checkpoint,
    proof::{ConsistencyProof, InclusionProof, ProofError},
    store::ReadError,
    tree::{TILE_HEIGHT, TILE_RECORDS, Tree},
};

/// The tiles of a database.
pub(crate) struct Tiles<'a>(pub(crate) &'a Connection);

impl Tiles<'_> {
    /// Proves that a record is in the tree of this size.
    pub(crate) fn inclusion(&self, seq: u64, size: u64) -> Result<InclusionProof, ProofError> {
        self.bounds(size)?;
        if seq >= size {
            return Err(ProofError::Beyond { size });
        }
        let first = self.first()?;
        if seq < first || size < first {
            return Err(ProofError::Dropped { first });
        }
        let tile = self.entries(0, seq >> TILE_HEIGHT, seq % TILE_RECORDS + 1).map_err(read)?;
        let leaf = tile.last_chunk::<HASH_SIZE>().ok_or_else(missing)?;
        let root = self.root(size)?;
        let hashes = TileHashReader::new(size, Hash(*root.as_bytes()), self);
        InclusionProof::of(seq, size, Sha256Digest::from_bytes(*leaf), &hashes).map_err(unproven)
    }

    /// Proves that the tree of size `to` goes on from that of size `from`.
    pub(crate) fn consistency(&self, from: u64, to: u64) -> Result<ConsistencyProof, ProofError> {
        let size = self.bounds(to)?;
        if from > to {
            return Err(ProofError::Beyond { size });
        }
        let first = self.first()?;
        // Of dropped records the roots of whole tiles are kept.
        if to < first || (from < first && !from.is_multiple_of(TILE_RECORDS)) {
            return Err(ProofError::Dropped { first });
        }
        let root = self.root(to)?;
        ConsistencyProof::of(from, to, &TileHashReader::new(to, Hash(*root.as_bytes()), self)).map_err(unproven)
    }

    /// The checkpoint of the tree at this size.
    pub(crate) fn checkpoint(&self, size: u64) -> Result<Checkpoint, ProofError> {
        Ok(Checkpoint { size, root: self.root(size)? })
    }

    /// The tree as it was at this size.
    pub(crate) fn tree(&self, size: u64) -> rusqlite::Result<Tree> {
        let (mut levels, mut entries) = (Vec::new(), size);
        for level in 0_u8.. {
            if entries == 0 {
                break;
            }
            levels.push(self.entries(level, entries >> TILE_HEIGHT, entries % TILE_RECORDS)?);
            entries >>= TILE_HEIGHT;
        }
        Ok(Tree::restore(size, levels))
    }

    fn root(&self, size: u64) -> Result<Sha256Digest, ProofError> {
        Ok(self.tree(size).map_err(read)?.root())
    }

    /// How many records there are, which `size` must be within.
    fn bounds(&self, size: u64) -> Result<u64, ProofError> {
        let last: Option<i64> = self.0.query_row("SELECT max(seq) FROM records", [], |row| row.get(0)).map_err(read)?;
        let records = last.map_or(0, |last| last.unsigned_abs() + 1);
        if size == 0 || size > records { Err(ProofError::Beyond { size: records }) } else { Ok(records) }
    }

    fn first(&self) -> Result<u64, ProofError> {
        let first: Option<i64> =
            self.0.query_row("SELECT size FROM dropped", [], |row| row.get(0)).optional().map_err(read)?;
        Ok(first.map_or(0, i64::unsigned_abs))
    }

    /// The first `width` hashes of a tile.
    fn entries(&self, level: u8, index: u64, width: u64) -> rusqlite::Result<Vec<u8>> {
        let mut select = self.0.prepare_cached("SELECT hashes FROM tiles WHERE place = ?1")?;
        let full: Option<Vec<u8>> = select.query_row([place(level, index)], |row| row.get(0)).optional()?;
        let length = usize::try_from(width).unwrap_or(usize::MAX).saturating_mul(HASH_SIZE);
        let first = index << TILE_HEIGHT;
        let hashes = match full {
            Some(mut hashes) => {
                hashes.truncate(length);
                hashes
            }
            None => open_tile(self.0, level, first, first + width)?,
        };
        // What is computed from hashes relies on their length.
        if hashes.len() == length { Ok(hashes) } else { Err(incomplete()) }
    }

    /// The hash of a record, wherever its body is.
    pub(crate) fn leaf(&self, seq: u64) -> Result<Option<Sha256Digest>, ReadError> {
        let entries = self.entries(0, seq >> TILE_HEIGHT, seq % TILE_RECORDS + 1);
        let entries = entries.map_err(|error| ReadError(error.to_string()))?;
        Ok(entries.last_chunk::<HASH_SIZE>().map(|leaf| Sha256Digest::from_bytes(*leaf)))
    }
}

impl TileReader for Tiles<'_> {
    fn height(&self) -> u8 {
        TILE_HEIGHT
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let read = |tile: &Tile| {
            self.entries(tile.level(), tile.level_index(), tile.width().into())
                .map_err(|error| Error::InvalidInput(error.to_string()))
        };
        tiles.iter().map(read).collect()
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

fn read(error: rusqlite::Error) -> ProofError {
    ReadError(error.to_string()).into()
}

fn unproven(error: Error) -> ProofError {
    ReadError(error.to_string()).into()
}

fn incomplete() -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, "hashes of the tree are missing".into())
}

fn missing() -> ProofError {
    ReadError("a hash of its tree is missing".to_owned()).into()
}
