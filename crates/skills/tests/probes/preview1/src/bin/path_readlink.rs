//! `path_readlink`: where a link leads.

#![no_std]
#![no_main]

use telling::{over_paths, probe};

probe! {
    over_paths(|descriptor, path| {
        let mut room = [0; 256];
        // SAFETY: what is handed over is valid.
        unsafe { path_readlink(descriptor, path.as_ptr(), path.len(), room.as_mut_ptr(), room.len(), &mut 0) }
    });
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn path_readlink(
        descriptor: u32,
        path: *const u8,
        length: usize,
        room: *mut u8,
        room_length: usize,
        read: *mut usize,
    ) -> i32;
}
