//! `sock_accept`: accepts a connection.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, over, probe};

probe! {
    // SAFETY: what is handed over is valid.
    over(DESCRIPTORS, |descriptor| unsafe { sock_accept(descriptor, 0, &mut 0) });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn sock_accept(descriptor: u32, flags: u32, connection: *mut u32) -> i32;
}
