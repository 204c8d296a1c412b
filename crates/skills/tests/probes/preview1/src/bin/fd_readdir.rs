//! `fd_readdir`: what is in a directory.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    over(DESCRIPTORS, |descriptor| {
        let mut room = [0; 512];
        // SAFETY: what is handed over is valid.
        unsafe { fd_readdir(descriptor, room.as_mut_ptr(), room.len(), 0, &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_readdir(descriptor: u32, room: *mut u8, length: usize, cookie: u64, read: *mut usize) -> i32;
}
