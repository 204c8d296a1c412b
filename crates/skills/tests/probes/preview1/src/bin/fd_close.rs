//! `fd_close`: closes a descriptor. Standard output is spared, to tell with.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS.filter(|&descriptor| descriptor != 1), |descriptor| unsafe { fd_close(descriptor) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_close(descriptor: u32) -> i32;
}
