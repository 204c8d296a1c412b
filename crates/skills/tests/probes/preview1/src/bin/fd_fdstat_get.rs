//! `fd_fdstat_get`: what a descriptor is.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_fdstat_get(descriptor, &mut [0; 3]) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_fdstat_get(descriptor: u32, told: *mut [u64; 3]) -> i32;
}
