//! `args_get`: the arguments.

#![no_std]
#![no_main]

use telling::{Quoted, probe, tell};

probe! {
    let (mut places, mut bytes) = ([core::ptr::null_mut(); 64], [0; 2048]);
    // SAFETY: more room than the host has arguments.
    let errno = unsafe { args_get(places.as_mut_ptr(), bytes.as_mut_ptr()) };
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    tell(errno, Quoted(&bytes[..end]));
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn args_get(places: *mut *mut u8, bytes: *mut u8) -> i32;
}
