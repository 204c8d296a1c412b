//! `wasi:cli/stderr`: writes to standard error.

#![no_std]

use component::told;
use wasi::cli::stderr;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/stderr-write", generate_all });

component::probe!(|_: &str| { told(stderr::get_stderr().blocking_write_and_flush(b"a line\n").is_ok()) });
