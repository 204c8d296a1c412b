//! `wasi:cli/stdin`: reads from standard input.

#![no_std]

use component::told;
use wasi::cli::stdin;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/stdin-read", generate_all });

component::probe!(|_: &str| { told(stdin::get_stdin().blocking_read(64).is_ok()) });
