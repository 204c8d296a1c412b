//! `fd_fdstat_set_flags`: changes how a descriptor is used.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { fd_fdstat_set_flags(descriptor, 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_fdstat_set_flags(descriptor: u32, flags: u32) -> i32;
}
