//! `wasi:cli/exit`: ends the program.

#![no_std]

use component::told;
use wasi::cli::exit;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/exit-exit", generate_all });

component::probe!(|_: &str| {
    exit::exit(Err(()));
    told("still here")
});
