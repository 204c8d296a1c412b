//! `fd_prestat_dir_name`: what a directory that was opened beforehand is called.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    over(DESCRIPTORS, |descriptor| {
        let mut name = [0; 256];
        // SAFETY: what is handed over is valid.
        unsafe { fd_prestat_dir_name(descriptor, name.as_mut_ptr(), name.len()) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_prestat_dir_name(descriptor: u32, name: *mut u8, length: usize) -> i32;
}
