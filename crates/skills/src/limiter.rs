//! How much memory a call may have, and all calls together, and how large tables may be.
//!
//! Guarantees: what calls have together never exceeds what they may have together; what a call had is free again when it is over. What is refused is remembered, so that a call which comes to grief over it is told the limit and not the trap that followed.
//! A skill that is refused memory and copes is no failure.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use palyra_package::SkillLimits;
use wasmtime::ResourceLimiter;

use crate::outcome::SkillFailure;

/// The memory that all calls have together.
pub(crate) struct SharedMemory {
    taken: AtomicU64,
    limit: u64,
}

impl SharedMemory {
    /// Memory that nobody has taken any of yet.
    pub(crate) const fn new(limit: u64) -> Self {
        Self { taken: AtomicU64::new(0), limit }
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|total| *total <= self.limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The memories and tables of one call.
pub(crate) struct Limiter {
    shared: Arc<SharedMemory>,
    memory_limit: u64,
    table_limit: u64,
    memory: u64,
    refused: Option<SkillFailure>,
}

impl Limiter {
    /// A limiter that has given nothing yet. A pool has bounds of its own, whatever the limits say.
    pub(crate) fn new(
        limits: &SkillLimits,
        shared: Arc<SharedMemory>,
        most_memory_bytes: u64,
        most_table_entries: u32,
    ) -> Self {
        Self {
            shared,
            memory_limit: limits.memory_bytes.min(most_memory_bytes),
            table_limit: limits.table_entries.min(u64::from(most_table_entries)),
            memory: 0,
            refused: None,
        }
    }

    /// Bytes of memory. Memories do not shrink, so this is the most that there was.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory
    }

    /// Memory of the host for what the skill hands over.
    ///
    /// # Errors
    /// When all calls together have no more.
    pub(crate) fn hand(&self, bytes: u64) -> Result<Handed, SkillFailure> {
        match self.shared.take(bytes) {
            true => Ok(Handed { shared: Arc::clone(&self.shared), bytes }),
            false => Err(SkillFailure::NoMemoryLeft { limit: self.shared.limit }),
        }
    }

    /// What was refused first.
    pub(crate) fn refused(&self) -> Option<&SkillFailure> {
        self.refused.as_ref()
    }
}

/// Memory of the host that holds what a skill handed over.
#[must_use = "it counts as long as this is there"]
pub(crate) struct Handed {
    shared: Arc<SharedMemory>,
    bytes: u64,
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.shared.give_back(self.bytes);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = wide(desired.saturating_sub(current));
        let total = self.memory.saturating_add(more);
        if total > self.memory_limit {
            self.refused.get_or_insert(SkillFailure::OutOfMemory { limit: self.memory_limit });
            return Ok(false);
        }
        // Beyond what the skill says itself it will be refused anyway, and that is no limit of ours.
        if maximum.is_none_or(|maximum| desired <= maximum) {
            if !self.shared.take(more) {
                self.refused.get_or_insert(SkillFailure::NoMemoryLeft { limit: self.shared.limit });
                return Ok(false);
            }
            self.memory = total;
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if wide(desired) > self.table_limit {
            self.refused.get_or_insert(SkillFailure::TableTooLarge { limit: self.table_limit });
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        MOST_INSTANCES
    }

    fn tables(&self) -> usize {
        MOST_TABLES
    }

    fn memories(&self) -> usize {
        MOST_MEMORIES
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.shared.give_back(self.memory);
    }
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Core instances that a skill may be made of. Python in a component needs about thirty.
pub(crate) const MOST_INSTANCES: usize = 64;
/// Tables that a skill may be made of.
pub(crate) const MOST_TABLES: usize = 16;
/// Memories that a skill may be made of.
pub(crate) const MOST_MEMORIES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(shared: &Arc<SharedMemory>) -> Limiter {
        let limits = SkillLimits { memory_bytes: 100, ..SkillLimits::default() };
        Limiter::new(&limits, Arc::clone(shared), u64::MAX, u32::MAX)
    }

    fn first_refusal(handed: &Result<Handed, SkillFailure>) -> Option<SkillFailure> {
        handed.as_ref().err().cloned()
    }

    #[test]
    fn calls_together_have_no_more_than_they_may_and_give_it_back() {
        let shared = Arc::new(SharedMemory::new(150));
        let (mut first, mut second) = (limiter(&shared), limiter(&shared));
        assert!(first.memory_growing(0, 100, None).unwrap());
        assert!(!second.memory_growing(0, 100, None).unwrap());
        assert_eq!(second.refused(), Some(&SkillFailure::NoMemoryLeft { limit: 150 }));
        drop(first);
        assert!(second.memory_growing(0, 100, None).unwrap());
        assert_eq!(first_refusal(&second.hand(51)), Some(SkillFailure::NoMemoryLeft { limit: 150 }));
        let handed = second.hand(50).ok();
        assert_eq!(shared.taken.load(Ordering::Relaxed), 150);
        drop((second, handed));
        assert_eq!(shared.taken.load(Ordering::Relaxed), 0);
    }
}
