//! `poll_oneoff`: waits until standard input can be read.

#![no_std]
#![no_main]

use telling::{probe, tell};

/// What is waited for, as WASI takes it.
#[repr(C)]
struct Subscription {
    user: u64,
    /// 0 is a clock, 1 is something to read.
    kind: u64,
    /// The clock or the descriptor.
    which: u64,
    timeout: u64,
    precision: u64,
    flags: u64,
}

probe! {
    let waited_for = Subscription { user: 7, kind: 1, which: 0, timeout: 0, precision: 0, flags: 0 };
    let (mut happened, mut count) = ([0; 4], 0);
    // SAFETY: one subscription, and room for one event.
    let errno = unsafe { poll_oneoff(&waited_for, &mut happened, 1, &mut count) };
    tell(errno, count);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn poll_oneoff(waited_for: *const Subscription, happened: *mut [u64; 4], count: usize, events: *mut usize) -> i32;
}
