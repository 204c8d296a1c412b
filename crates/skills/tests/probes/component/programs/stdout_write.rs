//! `wasi:cli/stdout`: writes to standard output.

#![no_std]

use component::told;
use wasi::cli::stdout;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/stdout-write", generate_all });

component::probe!(|_: &str| { told(stdout::get_stdout().blocking_write_and_flush(b"a line\n").is_ok()) });
