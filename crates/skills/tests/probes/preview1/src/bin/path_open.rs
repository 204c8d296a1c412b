//! `path_open`: opens a file, to read and to write.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

/// To read, to seek, to write.
const RIGHTS: u64 = 0b100_0110;

probe! {
    // SAFETY: what is handed over is valid.
    over_paths(|descriptor, path| unsafe { path_open(descriptor, 1, path.as_ptr(), path.len(), 0, RIGHTS, RIGHTS, 0, &mut 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_open(
        descriptor: u32,
        lookup: u32,
        path: *const u8,
        length: usize,
        how: u32,
        rights: u64,
        inheriting: u64,
        flags: u32,
        opened: *mut u32,
    ) -> i32;
}
