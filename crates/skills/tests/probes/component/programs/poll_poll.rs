//! `wasi:io/poll`: waits until one of several things happens, of which there is one: that standard input can be read.

#![no_std]

use component::told;
use wasi::cli::stdin;
use wasi::io::poll;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/poll-poll", generate_all });

component::probe!(|_: &str| {
    let stream = stdin::get_stdin();
    let readable = stream.subscribe();
    told(poll::poll(&[&readable]))
});
