//! `fd_write`: writes to a descriptor. Standard output is spared, to tell with.

#![no_std]
#![no_main]

use telling::{Bytes, DESCRIPTORS, over, probe};

probe! {
    over(DESCRIPTORS.filter(|&descriptor| descriptor != 1), |descriptor| {
        let bytes = Bytes { start: b"written\n".as_ptr(), length: 8 };
        // SAFETY: what is handed over is valid.
        unsafe { fd_write(descriptor, &bytes, 1, &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_write(descriptor: u32, vectors: *const Bytes, count: usize, written: *mut usize) -> i32;
}
