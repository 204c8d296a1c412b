//! `wasi:cli/exit`: ends the program with a number.

#![no_std]

use component::told;
use wasi::cli::exit;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/exit-exit-with-code", generate_all });

component::probe!(|_: &str| {
    exit::exit_with_code(7);
    told("still here")
});
