//! How code is compiled and run: the one configuration that the compiler child and every pool share.
//!
//! Guarantees: what was compiled under another version or another configuration has another fingerprint. The same input gives the same
//! output wherever it runs: NaNs have one form, relaxed SIMD has one meaning, and there are no threads.
//! Refuses: Winch, which saves compile time that nobody waits for and costs speed on every call.

use std::{
    hash::{Hash, Hasher},
    sync::OnceLock,
};

use palyra_package::Metering;
use palyra_types::{RunningDigest, Sha256Digest};
use wasmtime::{Config, Engine, OptLevel, Strategy};

/// The stack of a skill. Its host functions have the rest of [`FIBER_STACK_BYTES`].
const WASM_STACK_BYTES: usize = 512 << 10;
const FIBER_STACK_BYTES: usize = 2 << 20;

/// A memory of 32 bits cannot reach beyond this, so the code needs no bounds checks. The pages in between are never touched and cost nothing
/// but addresses.
pub(crate) const MEMORY_RESERVATION: u64 = 4 << 30;
const MEMORY_GUARD: u64 = 32 << 20;

/// The version of wasmtime, for people. The fingerprint's digest covers it as well.
const WASMTIME: &str = "48.0.8";

/// Goes up when what stands around wasmtime changes what an artifact is: the adapter for core modules, or how they are adapted.
const REVISION: u32 = 1;

/// Wasmtime's version and everything in the configuration that changes code.
pub(crate) fn fingerprint(metering: Metering) -> &'static str {
    static EPOCH: OnceLock<String> = OnceLock::new();
    static FUEL: OnceLock<String> = OnceLock::new();
    let kept = match metering {
        Metering::Epoch => &EPOCH,
        Metering::Fuel => &FUEL,
    };
    kept.get_or_init(|| {
        let digest = match Engine::new(&compiling(metering)) {
            Ok(engine) => {
                let mut hasher = DigestHasher(RunningDigest::default());
                engine.precompile_compatibility_hash().hash(&mut hasher);
                hasher.0.finish()
            }
            // Nothing compiles or loads where no engine can be made.
            Err(_) => Sha256Digest::of(b"none"),
        };
        format!("wasmtime {WASMTIME}, revision {REVISION}, {metering}, {digest}")
    })
}

/// For the compiler: everything that changes code.
pub(crate) fn compiling(metering: Metering) -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_component_model(true)
        .wasm_memory64(false)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        .memory_reservation(MEMORY_RESERVATION)
        .memory_guard_size(MEMORY_GUARD)
        .memory_may_move(false)
        .memory_init_cow(true)
        .consume_fuel(metering == Metering::Fuel)
        // SECURITY: fuel bounds what is computed, and not how long that takes. Little code can have the engine copy much, so whatever is counted,
        // a clock makes it give its thread back.
        .epoch_interruption(true);
    config
}

/// Feeds a hash into a digest, which stays the same from run to run.
struct DigestHasher(RunningDigest);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_people_read_is_the_one_that_is_built() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{WASMTIME}\"\n")));
    }

    #[test]
    fn the_two_ways_of_metering_have_different_fingerprints() {
        assert_ne!(fingerprint(Metering::Epoch), fingerprint(Metering::Fuel));
    }
}
