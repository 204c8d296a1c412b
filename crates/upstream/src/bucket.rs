//! How many messages a server may send that nobody asked for.

use tokio::time::Instant;

/// Room for so many at once, and so many a second after that.
#[derive(Debug)]
pub(crate) struct Bucket {
    room: f64,
    since: Instant,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { room: AT_ONCE, since: Instant::now() }
    }
}

impl Bucket {
    /// Takes one more, if there is room.
    pub(crate) fn takes(&mut self) -> bool {
        let now = Instant::now();
        let refilled = now.duration_since(self.since).as_secs_f64() * A_SECOND;
        self.room = (self.room + refilled).min(AT_ONCE);
        self.since = now;
        let is_taken = self.room >= 1.0;
        if is_taken {
            self.room -= 1.0;
        }
        is_taken
    }
}

const AT_ONCE: f64 = 2_000.0;

const A_SECOND: f64 = 100.0;
