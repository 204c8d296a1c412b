//! `sock_shutdown`: ends one direction of a socket.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { sock_shutdown(descriptor, 3) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn sock_shutdown(descriptor: u32, how: u32) -> i32;
}
