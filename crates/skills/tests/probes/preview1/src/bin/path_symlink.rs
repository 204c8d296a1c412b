//! `path_symlink`: makes a link that leads to a file.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

probe! {
    over_paths(|descriptor, path| {
        let new = "link.txt";
        // SAFETY: what is handed over is valid.
        unsafe { path_symlink(path.as_ptr(), path.len(), descriptor, new.as_ptr(), new.len()) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_symlink(path: *const u8, length: usize, descriptor: u32, new: *const u8, new_length: usize) -> i32;
}
