//! `wasi:io/poll`: whether standard input can be read.

#![no_std]

use component::told;
use wasi::cli::stdin;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/poll-ready", generate_all });

component::probe!(|_: &str| {
    let stream = stdin::get_stdin();
    let readable = stream.subscribe();
    told(readable.ready())
});
