//! How much one call of a skill may use.
//!
//! Guarantees: every limit has a value; the smaller of what a skill asks for and what the operator allows is what holds.

use serde::{Deserialize, Serialize};

/// How much one call of a skill may use. Each limit ends the call with an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillLimits {
    /// How the work of its instructions is counted.
    pub metering: Metering,
    /// With `fuel`: units of it, about one for each instruction.
    pub fuel: u64,
    /// With `epoch`: milliseconds that it may compute, waiting not counted.
    pub cpu_ms: u64,
    /// Milliseconds that it may take, waiting counted, except for the time that people take to answer.
    pub wall_ms: u64,
    /// Bytes of all its memories together.
    pub memory_bytes: u64,
    /// Entries of each of its tables.
    pub table_entries: u64,
    /// Bytes of its answer.
    pub output_bytes: u64,
    /// Calls of the host, all together.
    pub host_calls: u64,
    /// Bytes that it may hand to the host in one call, and have it allocate.
    pub host_bytes: u64,
    /// Bytes of log lines, and of what it writes to standard output and standard error.
    pub log_bytes: u64,
}

palyra_types::words! {
    /// How the work of instructions is counted.
    pub enum Metering ("metering") {
        /// By time: a clock ticks, and code looks at it. Runs differ by what else the machine does.
        Epoch = "epoch",
        /// By instructions: each run of the same input counts the same.
        Fuel = "fuel",
    }
}

impl Default for SkillLimits {
    fn default() -> Self {
        Self {
            metering: Metering::Epoch,
            fuel: 10_000_000_000,
            cpu_ms: 5_000,
            wall_ms: 30_000,
            memory_bytes: 64 << 20,
            table_entries: 100_000,
            output_bytes: 1 << 20,
            host_calls: 10_000,
            host_bytes: 16 << 20,
            log_bytes: 64 << 10,
        }
    }
}

impl SkillLimits {
    /// The smaller of each. How work is counted stays as it is here.
    #[must_use]
    pub fn within(self, most: Self) -> Self {
        Self {
            metering: self.metering,
            fuel: self.fuel.min(most.fuel),
            cpu_ms: self.cpu_ms.min(most.cpu_ms),
            wall_ms: self.wall_ms.min(most.wall_ms),
            memory_bytes: self.memory_bytes.min(most.memory_bytes),
            table_entries: self.table_entries.min(most.table_entries),
            output_bytes: self.output_bytes.min(most.output_bytes),
            host_calls: self.host_calls.min(most.host_calls),
            host_bytes: self.host_bytes.min(most.host_bytes),
            log_bytes: self.log_bytes.min(most.log_bytes),
        }
    }

    /// Whether a call could do anything at all within them.
    ///
    /// # Errors
    /// When one of them leaves no room.
    pub const fn check(&self) -> Result<(), LimitsError> {
        match self {
            Self { fuel: 0, .. } => Err(LimitsError::Zero("fuel")),
            Self { cpu_ms: 0, .. } => Err(LimitsError::Zero("cpu_ms")),
            Self { wall_ms: 0, .. } => Err(LimitsError::Zero("wall_ms")),
            Self { memory_bytes: 0, .. } => Err(LimitsError::Zero("memory_bytes")),
            Self { output_bytes: 0, .. } => Err(LimitsError::Zero("output_bytes")),
            Self { host_bytes: 0, .. } => Err(LimitsError::Zero("host_bytes")),
            _ => Ok(()),
        }
    }
}

/// Why limits make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Nothing could run.
    #[error("`{0}` is zero, so that nothing could run")]
    Zero(&'static str),
}

impl LimitsError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "leave it out, which gives it a value that most skills do well with"
    }
}
