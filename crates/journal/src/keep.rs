//! How long what is said is kept, how much of it, and what is erased at request.
//!
//! Guarantees: nothing leaves the journal without a record that tells of it; what is about the journal itself, and what belongs to a call
//! that is not over, is not erased.

use palyra_types::{Timestamp, id::CallId};

/// How long and how much a journal keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keeping {
    /// When records are sealed and dropped.
    pub rotation: Rotation,
    /// When bodies are erased.
    pub retention: Retention,
}

/// When records are sealed, and when sealed ones are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Once the live records take more than this, the older ones are sealed in a segment.
    pub segment_bytes: u64,
    /// Once all records take more than this, the oldest segments are dropped.
    pub keep_bytes: u64,
}

impl Default for Rotation {
    /// Segments of 256 MiB, and 4 GiB in all.
    fn default() -> Self {
        Self { segment_bytes: 256 << 20, keep_bytes: 4 << 30 }
    }
}

/// When bodies are erased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// After this many days; `None` for never.
    pub bodies_for: Option<u32>,
}

impl Retention {
    /// Bodies from before this time are erased.
    #[must_use]
    pub fn erase_before(self, now: Timestamp) -> Option<Timestamp> {
        let millis = i64::from(self.bodies_for?).saturating_mul(DAY);
        Some(Timestamp::from_unix_millis(now.unix_millis().saturating_sub(millis)))
    }
}

/// Which bodies are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// Those of the records from the first to the last, both included.
    Records {
        /// The first record.
        first: u64,
        /// The last record.
        last: u64,
    },
    /// Those of every record about a call.
    Call(CallId),
    /// Those of every record from before a time.
    Before(Timestamp),
}

/// What an erasure did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// How many bodies were erased.
    pub bodies: u64,
    /// How many were left, because their call is not over.
    pub left: u64,
    /// Whether their bytes are in the write-ahead log still, because somebody reads the journal. They go when nobody does.
    pub in_log: bool,
}

/// What maintenance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// How many bodies were erased because of their age.
    pub erased: u64,
    /// How many records were sealed.
    pub sealed: u64,
    /// How many records were dropped.
    pub dropped: u64,
}

/// Milliseconds of a day.
pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;
