//! `fd_filestat_get`: what is known of an open file.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_filestat_get(descriptor, &mut [0; 8]) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_filestat_get(descriptor: u32, told: *mut [u64; 8]) -> i32;
}
