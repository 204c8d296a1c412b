//! The Merkle tree of RFC 6962 over the records, grown one leaf at a time.
//!
//! Guarantees: adding a leaf costs one node hash on average and finding the root a few, however many records there are; full tiles (256
//! hashes, as in C2SP tlog-tiles) come out as they fill, so that proofs need no other memory.
//! Does not: keep tiles or make proofs. The store keeps them, [`proof`](crate::proof) reads them.

use palyra_types::Sha256Digest;
use tlog_tiles::{EMPTY_HASH, HASH_SIZE, Hash, Tile, node_hash, record_hash};

/// The height of a tile: 2^8 hashes.
pub const TILE_HEIGHT: u8 = 8;

/// The hashes in a full tile.
pub const TILE_WIDTH: usize = 1 << TILE_HEIGHT;

/// The records under a full tile of the lowest level.
pub const TILE_RECORDS: u64 = 1 << TILE_HEIGHT;

/// The leaf hash of RFC 6962: `SHA-256(0x00 ‖ bytes)`.
#[must_use]
pub fn leaf_hash(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest::from_bytes(record_hash(bytes).0)
}

/// A tile that just became full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullTile {
    /// Its level: level 0 holds leaves, level 1 the roots of level 0's tiles, and so on.
    pub level: u8,
    /// Its place within the level.
    pub index: u64,
    /// Its 256 hashes.
    pub hashes: Vec<u8>,
    /// Their root.
    pub root: Sha256Digest,
}

/// The roots of the perfect subtrees that make up a tree: enough to add leaves and to find the root, not enough to prove anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CompactRange {
    size: u64,
    /// Largest first, each with its height.
    peaks: Vec<(u32, Hash)>,
}

impl CompactRange {
    /// The range over the first `size` leaves, from its roots, largest subtree first. `None` if there is another number of them.
    #[must_use]
    pub fn new(size: u64, roots: &[Sha256Digest]) -> Option<Self> {
        let heights = (0..u64::BITS).rev().filter(|height| size >> height & 1 == 1);
        let peaks: Vec<_> = heights.zip(roots).map(|(height, root)| (height, Hash(*root.as_bytes()))).collect();
        let expected = usize::try_from(size.count_ones()).ok()?;
        (roots.len() == expected && peaks.len() == expected).then_some(Self { size, peaks })
    }

    /// How many leaves there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the subtrees, largest first.
    pub fn roots(&self) -> impl Iterator<Item = Sha256Digest> {
        self.peaks.iter().map(|&(_, root)| Sha256Digest::from_bytes(root.0))
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Sha256Digest {
        let fold =
            |right: Option<Hash>, &(_, left): &(u32, Hash)| Some(right.map_or(left, |right| node_hash(left, right)));
        Sha256Digest::from_bytes(self.peaks.iter().rev().fold(None, fold).unwrap_or(EMPTY_HASH).0)
    }

    /// Adds a leaf, and hands each subtree that it completes to `joined`, with its height.
    pub fn push(&mut self, leaf: Sha256Digest, mut joined: impl FnMut(u32, Sha256Digest)) {
        let (mut height, mut hash) = (0_u32, Hash(*leaf.as_bytes()));
        self.size += 1;
        while let Some((_, left)) = self.peaks.pop_if(|&mut (left_height, _)| left_height == height) {
            hash = node_hash(left, hash);
            height += 1;
            joined(height, Sha256Digest::from_bytes(hash.0));
        }
        self.peaks.push((height, hash));
    }
}

/// The right edge of the tree: all that is needed to go on, and to keep tiles as they fill.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    range: CompactRange,
    /// For each level the hashes of the tile that is not full yet.
    open: Vec<Vec<u8>>,
}

impl Tree {
    /// A tree of this size, from the hashes of the tiles that are not full yet, level by level.
    #[must_use]
    pub fn restore(size: u64, open: Vec<Vec<u8>>) -> Self {
        let mut peaks = Vec::new();
        for (level, hashes) in open.iter().enumerate().rev() {
            let level = u32::try_from(level).unwrap_or(u32::MAX);
            let mut rest = hashes.as_slice();
            while !rest.is_empty() {
                let width = 1_usize << (rest.len() / HASH_SIZE).max(1).ilog2();
                let (subtree, right) = rest.split_at((width * HASH_SIZE).min(rest.len()));
                peaks.push((level * u32::from(TILE_HEIGHT) + width.ilog2(), Tile::subtree_hash(subtree)));
                rest = right;
            }
        }
        Self { range: CompactRange { size, peaks }, open }
    }

    /// How many leaves there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.range.size()
    }

    /// The root of the tree as it is now.
    #[must_use]
    pub fn root(&self) -> Sha256Digest {
        self.range.root()
    }

    /// The roots that make up the tree as it is now.
    #[must_use]
    pub const fn range(&self) -> &CompactRange {
        &self.range
    }

    /// Adds a leaf, and hands each tile that it fills to `full`.
    pub fn push(&mut self, leaf: Sha256Digest, mut full: impl FnMut(FullTile)) {
        let Self { range, open } = self;
        let size = range.size() + 1;
        place(open, 0, leaf);
        range.push(leaf, |height, root| {
            // A subtree of height 8 is a full tile of level 0, one of height 16 a full tile of level 1, …; its root goes one level up.
            if !height.is_multiple_of(TILE_HEIGHT.into()) {
                return;
            }
            let level = height / u32::from(TILE_HEIGHT) - 1;
            let filled = usize::try_from(level).ok().and_then(|level| open.get_mut(level));
            let hashes = filled
                .map(|hashes| std::mem::replace(hashes, Vec::with_capacity(TILE_WIDTH * HASH_SIZE)))
                .unwrap_or_default();
            let index = (size >> height) - 1;
            full(FullTile { level: u8::try_from(level).unwrap_or(u8::MAX), index, hashes, root });
            place(open, level + 1, root);
        });
    }
}

/// Puts a hash into the open tile of its level.
fn place(open: &mut Vec<Vec<u8>>, level: u32, hash: Sha256Digest) {
    let position = usize::try_from(level).unwrap_or(usize::MAX);
    while open.len() <= position {
        open.push(Vec::with_capacity(TILE_WIDTH * HASH_SIZE));
    }
    if let Some(open) = open.get_mut(position) {
        open.extend_from_slice(hash.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use tlog_tiles::{Error, HashReader, stored_hashes_for_record_hash, tree_hash};

    use super::*;

    /// Keeps every hash that the library says to keep.
    #[derive(Default)]
    struct Everything(Vec<Hash>);

    impl HashReader for Everything {
        fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, Error> {
            indexes.iter().map(|&at| Ok(self.0[usize::try_from(at).unwrap()])).collect()
        }
    }

    #[test]
    fn the_root_and_the_tiles_are_those_of_the_reference_at_every_size() {
        let (mut tree, mut reference, mut tiles) = (Tree::default(), Everything::default(), Vec::new());
        assert_eq!(tree.root().as_bytes(), &EMPTY_HASH.0);
        for n in 0..66_000_u64 {
            let leaf = leaf_hash(&n.to_be_bytes());
            tree.push(leaf, |tile| tiles.push(tile));
            let kept = stored_hashes_for_record_hash(n, Hash(*leaf.as_bytes()), &reference).unwrap();
            reference.0.extend(kept);
            if n < 600 || n % 997 == 0 || n == 65_535 || n == 65_536 {
                assert_eq!(tree.root().as_bytes(), &tree_hash(n + 1, &reference).unwrap().0, "size {}", n + 1);
                let restored = Tree::restore(tree.size(), tree.open.clone());
                assert_eq!(restored.range, tree.range, "size {}", n + 1);
                let roots: Vec<_> = tree.range().roots().collect();
                assert_eq!(CompactRange::new(n + 1, &roots).as_ref(), Some(tree.range()), "size {}", n + 1);
            }
        }
        assert_eq!(tiles.len(), 257 + 1);
        for tile in &tiles {
            let expected = Tile::new(TILE_HEIGHT, tile.level, tile.index, 256, false).read_data(&reference).unwrap();
            assert_eq!(tile.hashes, expected, "level {} index {}", tile.level, tile.index);
            assert_eq!(Tile::subtree_hash(&tile.hashes).0, *tile.root.as_bytes());
        }
    }
}
