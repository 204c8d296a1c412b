//! `clock_res_get`: how fine the clock on the wall is.

#![no_std]
#![no_main]

use telling::{probe, tell};

probe! {
    let mut resolution = 0;
    // SAFETY: a place for a number.
    let errno = unsafe { clock_res_get(0, &mut resolution) };
    tell(errno, resolution);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_res_get(clock: u32, resolution: *mut u64) -> i32;
}
