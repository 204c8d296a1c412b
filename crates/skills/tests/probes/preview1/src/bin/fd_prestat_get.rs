//! `fd_prestat_get`: which directory was opened beforehand.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_prestat_get(descriptor, &mut [0; 2]) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_prestat_get(descriptor: u32, told: *mut [u32; 2]) -> i32;
}
