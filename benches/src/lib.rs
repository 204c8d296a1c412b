//! Measurements. Each figure is a ratio against a floor or a peer, taken in one run, because machines differ and are noisy.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a measurement that cannot be set up ends")]

pub mod daemon;
pub mod floor;
pub mod load;
pub mod place;
pub mod processor;
pub mod wire;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// The middle of some durations.
#[must_use]
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The middle of some figures.
#[must_use]
pub fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// How long something takes.
pub fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    let _ = work();
    begun.elapsed()
}

/// A duration in milliseconds.
#[must_use]
pub const fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Says whether each target is met; a missed one is an error. The program ends with it once what it has started is gone.
#[must_use]
pub fn judge(targets: &[(&str, bool)]) -> ExitCode {
    for (target, met) in targets {
        println!("{} {target}", if *met { "met   " } else { "MISSED" });
    }
    if targets.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
