//! `sock_send`: sends to a socket.

#![no_std]
#![no_main]

use telling::{Bytes, DESCRIPTORS, over, probe};

probe! {
    over(DESCRIPTORS, |descriptor| {
        let bytes = Bytes { start: b"x".as_ptr(), length: 1 };
        // SAFETY: what is handed over is valid.
        unsafe { sock_send(descriptor, &bytes, 1, 0, &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn sock_send(descriptor: u32, vectors: *const Bytes, count: usize, flags: u32, written: *mut usize) -> i32;
}
