//! `wasi:filesystem/preopens`: the directories that were opened beforehand.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;

use component::told;
use wasi::filesystem::preopens;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/preopens-get-directories", generate_all });

component::probe!(|_: &str| {
    let directories = preopens::get_directories();
    told(directories.into_iter().map(|(_, name)| name).collect::<Vec<_>>())
});
