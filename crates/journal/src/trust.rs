//! What is known from elsewhere about a journal: its key, and checkpoints that were saved.
//!
//! Guarantees: where a key is pinned, no other is believed; a saved checkpoint counts only if that key signed it.

use crate::{
    checkpoint::Checkpoint,
    fault::{Failure, Fault},
    key::{KeyError, VerifyKey},
};

/// What is known from elsewhere about a journal. Nothing is a valid answer, and proves the least.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// The key that must have signed the journal. Without it, the key in the directory is believed.
    pub key: Option<VerifyKey>,
    /// Signed checkpoints that were saved elsewhere.
    pub checkpoints: Vec<String>,
}

impl Trust {
    /// The key to verify with: the pinned one if there is one, which the one that was found must equal then.
    pub(crate) fn key_of(&self, found: Result<VerifyKey, KeyError>) -> Result<VerifyKey, Failure> {
        match (&self.key, found) {
            (None, Ok(key)) => Ok(key),
            (None, Err(error)) => Err(Failure::new(0, Fault::Absent(error.to_string()))),
            (Some(pinned), Ok(key)) if *pinned == key => Ok(key),
            (Some(_), Ok(_) | Err(KeyError::Malformed)) => Err(Failure::new(0, Fault::OtherKey)),
            // A directory without its public key is as good as one with it, for whoever has the key.
            (Some(pinned), Err(_)) => Ok(pinned.clone()),
        }
    }

    /// The saved checkpoints.
    pub(crate) fn open(&self, key: &VerifyKey) -> Result<Vec<Checkpoint>, Failure> {
        let open = |note: &String| Checkpoint::open(note, key).map_err(|_| Failure::new(0, Fault::SavedUnsigned));
        self.checkpoints.iter().map(open).collect()
    }
}

/// The signed checkpoints that the records must pass through, smallest first.
pub(crate) struct Landmarks(Vec<Checkpoint>);

impl Landmarks {
    pub(crate) fn new(mut points: Vec<Checkpoint>) -> Self {
        points.sort_by_key(|point| point.size);
        Self(points)
    }

    /// The size of the largest.
    pub(crate) fn last(&self) -> u64 {
        self.0.last().map_or(0, |point| point.size)
    }

    /// Forgets those that the records which are kept cannot show, and says how many.
    pub(crate) fn skip_before(&mut self, first: u64) -> u64 {
        let before = self.0.len();
        self.0.retain(|point| point.size >= first);
        u64::try_from(before - self.0.len()).unwrap_or(u64::MAX)
    }

    /// The size of one that is larger than this.
    pub(crate) fn beyond(&self, size: u64) -> Option<u64> {
        Some(self.last()).filter(|&saved| saved > size)
    }

    pub(crate) fn add(&mut self, head: Checkpoint) {
        self.0.push(head);
    }

    pub(crate) fn at(&self, size: u64) -> impl Iterator<Item = &Checkpoint> {
        let first = self.0.partition_point(|point| point.size < size);
        self.0.iter().skip(first).take_while(move |point| point.size == size)
    }
}
