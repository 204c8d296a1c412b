//! `fd_seek`: moves within a file.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_seek(descriptor, 0, 1, &mut 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_seek(descriptor: u32, offset: i64, whence: u32, place: *mut u64) -> i32;
}
