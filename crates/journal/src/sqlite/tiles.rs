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
        let first: Option<i64> = self
            .0
            .query_row("SELECT size FROM dropped WHERE only = 0", [], |row| row.get(0))
            .optional()
            .map_err(read)?;
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

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use rusqlite::params;
    use sha2::Sha256;

    use super::{
        super::{head::keep_tile, schema::TABLES},
        *,
    };
    use crate::tree::leaf_hash;

    /// A tree of which only the hashes are kept, beside another implementation of the same tree.
    struct Both {
        connection: Connection,
        tree: Tree,
        other: MemoryBackedTree<Sha256, Vec<u8>>,
    }

    impl Both {
        fn new() -> Self {
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(TABLES).unwrap();
            connection.execute_batch("BEGIN").unwrap();
            Self { connection, tree: Tree::default(), other: MemoryBackedTree::new() }
        }

        fn grow(&mut self, size: u64) {
            while self.tree.size() < size {
                let seq = self.tree.size();
                let leaf = leaf_hash(&seq.to_be_bytes());
                self.connection
                    .prepare_cached("INSERT INTO records (seq, record, hash) VALUES (?1, '', ?2)")
                    .unwrap()
                    .execute(params![i64::try_from(seq).unwrap(), leaf.as_bytes()])
                    .unwrap();
                self.tree.push(leaf, |tile| keep_tile(&self.connection, &tile).unwrap());
                self.other.push(seq.to_be_bytes().to_vec());
            }
        }
    }

    fn bytes(path: &[Sha256Digest]) -> Vec<u8> {
        path.iter().flat_map(|hash| *hash.as_bytes()).collect()
    }

    const SIZES: &[u64] =
        &[1, 2, 3, 4, 5, 7, 8, 100, 255, 256, 257, 300, 511, 512, 513, 1_000, 4_096, 65_535, 65_536, 65_537, 65_800];

    #[test]
    fn proofs_are_those_of_another_implementation_at_every_size() {
        let mut both = Both::new();
        for (position, &size) in SIZES.iter().enumerate() {
            both.grow(size);
            let tiles = Tiles(&both.connection);
            let now = tiles.checkpoint(size).unwrap();
            assert_eq!(now.root.as_bytes().as_slice(), both.other.root().as_bytes().as_slice(), "size {size}");
            for seq in [0, 1, size / 3, size / 2, 255, 256, 65_535, size - 1].into_iter().filter(|&seq| seq < size) {
                let proof = tiles.inclusion(seq, size).unwrap();
                let other = both.other.prove_inclusion(usize::try_from(seq).unwrap());
                assert_eq!(bytes(&proof.path), other.as_bytes(), "record {seq} in {size}");
                proof.check(&now).unwrap();
            }
            for &from in SIZES.iter().take(position + 1) {
                let proof = tiles.consistency(from, size).unwrap();
                let then = tiles.checkpoint(from).unwrap();
                proof.check(&then, &now).unwrap();
                if from < size {
                    let other = both.other.prove_consistency(usize::try_from(size - from).unwrap());
                    assert_eq!(bytes(&proof.path), other.as_bytes(), "{from} to {size}");
                    // A proof in the tree as it was then is the same as the proof that was made then.
                    tiles.inclusion(from - 1, from).unwrap().check(&then).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_proof_of_something_else_is_refuted() {
        let mut both = Both::new();
        both.grow(700);
        let tiles = Tiles(&both.connection);
        let (then, now) = (tiles.checkpoint(300).unwrap(), tiles.checkpoint(700).unwrap());
        let included = tiles.inclusion(5, 700).unwrap();
        let consistent = tiles.consistency(300, 700).unwrap();
        let elsewhere = InclusionProof { seq: 6, ..included.clone() };
        let shorter = InclusionProof { path: included.path[1..].to_vec(), ..included.clone() };
        let other_leaf = InclusionProof { leaf: leaf_hash(b"x"), ..included.clone() };
        for proof in [elsewhere, shorter, other_leaf] {
            assert_eq!(proof.check(&now), Err(ProofError::Refuted));
        }
        assert_eq!(included.check(&then), Err(ProofError::Refuted));
        assert_eq!(consistent.check(&now, &then), Err(ProofError::Refuted));
        assert_eq!(consistent.check(&Checkpoint { root: now.root, ..then.clone() }, &now), Err(ProofError::Refuted));
        let forged = ConsistencyProof { path: Vec::new(), ..consistent.clone() };
        assert_eq!(forged.check(&then, &now), Err(ProofError::Refuted));
        let nothing = ConsistencyProof { from: 300, to: 300, path: Vec::new() };
        assert_eq!(nothing.check(&then, &Checkpoint { size: 300, root: now.root }), Err(ProofError::Refuted));
        // As documents they survive.
        let text = serde_json::to_string(&included).unwrap();
        assert_eq!(serde_json::from_str::<InclusionProof>(&text).unwrap(), included);
        assert_eq!(tiles.inclusion(700, 700), Err(ProofError::Beyond { size: 700 }));
        assert_eq!(tiles.inclusion(0, 701), Err(ProofError::Beyond { size: 700 }));
        assert_eq!(tiles.consistency(5, 701), Err(ProofError::Beyond { size: 700 }));
    }

    #[test]
    fn where_hashes_are_missing_or_wrong_there_is_no_proof() {
        for harm in [
            "UPDATE tiles SET hashes = zeroblob(8192) WHERE place = 0",
            "UPDATE tiles SET hashes = zeroblob(8191) WHERE place = 0",
            "DELETE FROM tiles WHERE place = 1",
            "UPDATE tiles SET root = zeroblob(33) WHERE place = 1",
            "DELETE FROM records WHERE seq = 699",
        ] {
            let mut both = Both::new();
            both.grow(701);
            both.connection.execute_batch(harm).unwrap();
            let proof = Tiles(&both.connection).inclusion(5, 701);
            let refuted = proof.as_ref().map_or(true, |proof| {
                let root = Sha256Digest::from_bytes((*both.other.root().as_bytes()).into());
                proof.check(&Checkpoint { size: 701, root }).is_err()
            });
            assert!(refuted, "{harm}: {proof:?}");
        }
    }
}
