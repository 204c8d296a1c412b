//! `proc_raise`: sends a signal to the program itself.

#![no_std]
#![no_main]

use telling::{probe, tell};

probe! {
    // SAFETY: nothing is handed over.
    tell(unsafe { proc_raise(6) }, 0);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn proc_raise(signal: u32) -> i32;
}
