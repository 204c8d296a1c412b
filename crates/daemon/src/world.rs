//! What a daemon takes from the world around it: time, randomness and the addresses of hosts. Tests bring their own.

use std::sync::Arc;

use palyra_gate::{Resolve, SystemResolver};
use palyra_types::{Clock, Entropy, clock::SystemClock, entropy::SystemEntropy};

/// What a daemon takes from the world around it.
#[derive(Clone)]
pub struct World {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The addresses of hosts.
    pub resolver: Arc<dyn Resolve>,
}

impl World {
    /// The world as it is.
    #[must_use]
    pub fn real() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy),
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}
