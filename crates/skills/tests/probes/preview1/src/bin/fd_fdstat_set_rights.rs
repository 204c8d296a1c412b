//! `fd_fdstat_set_rights`: changes the rights of a descriptor.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_fdstat_set_rights(descriptor, u64::MAX, u64::MAX) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_fdstat_set_rights(descriptor: u32, base: u64, inheriting: u64) -> i32;
}
