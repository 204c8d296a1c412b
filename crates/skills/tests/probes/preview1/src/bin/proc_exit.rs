//! `proc_exit`: ends the program.

#![no_std]
#![no_main]

use telling::probe;

probe! {
    // SAFETY: nothing is handed over.
    unsafe { proc_exit(7) }
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn proc_exit(code: u32) -> !;
}
