//! `clock_time_get`: the time, of the clock that never goes back, in nanoseconds.

#![no_std]
#![no_main]

use telling::{probe, tell};

probe! {
    let mut time = 0;
    // SAFETY: a place for a number.
    let errno = unsafe { clock_time_get(1, 1, &mut time) };
    tell(errno, time);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> i32;
}
