//! `fd_pwrite`: writes somewhere into a file.

#![no_std]
#![no_main]

use telling::{Bytes, DESCRIPTORS, over, probe};

probe! {
    over(DESCRIPTORS, |descriptor| {
        let bytes = Bytes { start: b"x".as_ptr(), length: 1 };
        // SAFETY: what is handed over is valid.
        unsafe { fd_pwrite(descriptor, &bytes, 1, 0, &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_pwrite(descriptor: u32, vectors: *const Bytes, count: usize, offset: u64, written: *mut usize) -> i32;
}
