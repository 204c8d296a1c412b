//! `wasi:filesystem/types`: opens a file below a directory that it was never given, by guessing its handle.

#![no_std]

use core::mem::ManuallyDrop;

use component::told;
use wasi::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/descriptor-open-at", generate_all });

component::probe!(|input: &str| {
    // SAFETY: none. The handle is made up, and the host has to say so.
    let root = ManuallyDrop::new(unsafe { Descriptor::from_handle(1) });
    told(root.open_at(PathFlags::empty(), input, OpenFlags::CREATE, DescriptorFlags::READ).is_ok())
});
