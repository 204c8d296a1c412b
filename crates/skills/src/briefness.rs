//! Whether the calls of a skill are usually over within a slice.
//!
//! Guarantees: a skill that took longer is tried again only after a number of other calls, so that it takes next to nothing from others.

use std::sync::atomic::{AtomicU32, Ordering};

/// What is known about how long calls of one skill take.
#[derive(Default)]
pub(crate) struct Briefness {
    /// How many calls have to pass before it counts as brief again.
    wait: AtomicU32,
}

impl Briefness {
    /// Whether the next call is expected to be over soon. Each time that this is asked is a call.
    pub(crate) fn is_brief(&self) -> bool {
        let passed = self.wait.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |wait| wait.checked_sub(1));
        passed.is_err()
    }

    /// A call took longer.
    pub(crate) fn was_long(&self) {
        self.wait.store(PASSED, Ordering::Relaxed);
    }
}

const PASSED: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_that_took_long_is_not_tried_again_at_once() {
        let briefness = Briefness::default();
        assert!(briefness.is_brief() && briefness.is_brief());
        briefness.was_long();
        assert!((0..PASSED).all(|_| !briefness.is_brief()));
        assert!(briefness.is_brief());
    }
}
