//! Chance that can be had again: what comes of a seed is the same each time, the seed is printed, and `PALYRA_SEED` gives it back.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::print_stdout,
    reason = "a seed that is none ends the test"
)]

/// Numbers that are the same for the same seed.
pub struct Random(u64);

impl Random {
    /// With the seed that `PALYRA_SEED` names, or one that is another in each process.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let given = std::env::var("PALYRA_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or(0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id()));
        println!("PALYRA_SEED={seed}");
        Self(seed)
    }

    /// With this seed.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 31
    }

    /// The next number, made smaller than this one.
    pub const fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}
