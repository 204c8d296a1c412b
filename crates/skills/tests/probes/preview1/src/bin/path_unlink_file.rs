//! `path_unlink_file`: removes a file.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over_paths(|descriptor, path| unsafe { path_unlink_file(descriptor, path.as_ptr(), path.len()) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_unlink_file(descriptor: u32, path: *const u8, length: usize) -> i32;
}
