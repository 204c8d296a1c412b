//! `fd_allocate`: makes room in a file.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_allocate(descriptor, 0, 1) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_allocate(descriptor: u32, offset: u64, length: u64) -> i32;
}
