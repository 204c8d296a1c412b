//! `fd_filestat_set_times`: changes the times of an open file.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_filestat_set_times(descriptor, 0, 0, 5) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_filestat_set_times(descriptor: u32, accessed: u64, modified: u64, flags: u32) -> i32;
}
