//! Randomness as a parameter: an [`Entropy`] is passed in, so that tests own it.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

/// Where unpredictable bytes come from.
pub trait Entropy: Send + Sync {
    /// Fills the buffer.
    ///
    /// # Errors
    /// When there is no randomness to be had. Nothing may go on with a buffer that was not filled.
    fn fill(&self, buffer: &mut [u8]) -> Result<(), NoEntropy>;
}

/// The operating system gave no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no randomness")]
pub struct NoEntropy;

/// The randomness of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), NoEntropy> {
        getrandom::fill(buffer).map_err(|_| NoEntropy)
    }
}

/// Bytes that follow from a seed, for tests. Predictable, so never for anything that must not be guessed.
#[derive(Debug, Default)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// Bytes that follow from this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), NoEntropy> {
        for chunk in buffer.chunks_mut(32) {
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            let bytes = Sha256::digest(count.to_be_bytes());
            chunk.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fills_differ_and_a_seed_repeats_them() {
        let bytes = |entropy: &dyn Entropy| {
            let mut buffer = [0; 40];
            entropy.fill(&mut buffer).unwrap();
            buffer
        };
        assert_ne!(bytes(&SystemEntropy), bytes(&SystemEntropy));
        let (one, other) = (SeededEntropy::new(1), SeededEntropy::new(1));
        assert_eq!(bytes(&one), bytes(&other));
        assert_ne!(bytes(&one), bytes(&one));
    }
}
