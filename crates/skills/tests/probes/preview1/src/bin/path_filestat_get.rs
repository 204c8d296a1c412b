//! `path_filestat_get`: what is known of a file.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over_paths(|descriptor, path| unsafe { path_filestat_get(descriptor, 1, path.as_ptr(), path.len(), &mut [0; 8]) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_filestat_get(descriptor: u32, flags: u32, path: *const u8, length: usize, told: *mut [u64; 8]) -> i32;
}
