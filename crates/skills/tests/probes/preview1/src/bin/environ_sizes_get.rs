//! `environ_sizes_get`: how many variables of the environment there are, and how many bytes they take.

#![no_std]
#![no_main]

use telling::{Numbers, probe, tell};

probe! {
    let (mut count, mut bytes) = (0, 0);
    // SAFETY: two places for numbers.
    let errno = unsafe { environ_sizes_get(&mut count, &mut bytes) };
    let mut seen = Numbers::none();
    seen.push(count);
    seen.push(bytes);
    tell(errno, seen);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn environ_sizes_get(count: *mut u32, bytes: *mut u32) -> i32;
}
