//! `clock_time_get`: the time, of the clock on the wall, in milliseconds.

#![no_std]
#![no_main]

use telling::{probe, tell};

probe! {
    let mut time = 0;
    // SAFETY: a place for a number.
    let errno = unsafe { clock_time_get(0, 1, &mut time) };
    tell(errno, time / 1_000_000);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> i32;
}
