//! `fd_advise`: says how a file is going to be used.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_advise(descriptor, 0, 1, 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_advise(descriptor: u32, offset: u64, length: u64, advice: u32) -> i32;
}
