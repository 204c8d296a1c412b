//! `fd_datasync`: has the content of a file stored.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_datasync(descriptor) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_datasync(descriptor: u32) -> i32;
}
