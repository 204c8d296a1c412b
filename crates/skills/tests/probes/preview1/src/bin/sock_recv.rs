//! `sock_recv`: receives from a socket.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, Room, over, probe};

probe! {
    over(DESCRIPTORS, |descriptor| {
        let mut content = [0_u8; 64];
        let room = Room { start: content.as_mut_ptr(), length: content.len() };
        // SAFETY: what is handed over is valid.
        unsafe { sock_recv(descriptor, &room, 1, 0, &mut 0, &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn sock_recv(
        descriptor: u32,
        rooms: *const Room,
        count: usize,
        flags: u32,
        read: *mut usize,
        told: *mut u32,
    ) -> i32;
}
