//! `fd_renumber`: gives a descriptor another number. The standard streams are spared.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS.skip(3), |descriptor| unsafe { fd_renumber(descriptor, descriptor + 1) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_renumber(descriptor: u32, other: u32) -> i32;
}
