//! `path_filestat_set_times`: changes the times of a file.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over_paths(|descriptor, path| unsafe { path_filestat_set_times(descriptor, 1, path.as_ptr(), path.len(), 0, 0, 5) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_filestat_set_times(
        descriptor: u32,
        flags: u32,
        path: *const u8,
        length: usize,
        accessed: u64,
        modified: u64,
        which: u32,
    ) -> i32;
}
