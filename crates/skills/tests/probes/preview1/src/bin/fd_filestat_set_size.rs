//! `fd_filestat_set_size`: cuts or lengthens a file.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_filestat_set_size(descriptor, 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_filestat_set_size(descriptor: u32, size: u64) -> i32;
}
