//! `fd_read`: reads from a descriptor: what standard input holds, and which others there are.

#![no_std]
#![no_main]

use telling::{DESCRIPTORS, Quoted, Room, probe, tell};

probe! {
    let (mut content, mut count, mut others) = ([0; 256], 0, 0);
    let room = Room { start: content.as_mut_ptr(), length: content.len() };
    // SAFETY: room for what is read, and a place for how much that is.
    let errno = unsafe { fd_read(0, &room, 1, &mut count) };
    for descriptor in DESCRIPTORS.skip(3) {
        // SAFETY: the same.
        others += u32::from(unsafe { fd_read(descriptor, &room, 1, &mut 0) } == 0);
    }
    tell(errno, format_args!("[{},{others}]", Quoted(&content[..count])));
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn fd_read(descriptor: u32, rooms: *const Room, count: usize, read: *mut usize) -> i32;
}
