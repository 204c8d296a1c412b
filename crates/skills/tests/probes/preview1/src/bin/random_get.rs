//! `random_get`: bytes that cannot be guessed.

#![no_std]
#![no_main]

use telling::{Numbers, probe, tell};

probe! {
    let mut bytes = [0; 4];
    // SAFETY: room for what is asked for.
    let errno = unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) };
    let mut seen = Numbers::none();
    bytes.iter().for_each(|&byte| seen.push(u32::from(byte)));
    tell(errno, seen);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(bytes: *mut u8, length: usize) -> i32;
}
