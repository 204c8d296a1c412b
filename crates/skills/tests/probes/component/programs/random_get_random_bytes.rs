//! `wasi:random/random`: bytes that cannot be guessed, of WASI.

#![no_std]

use component::told;
use wasi::random::random;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/random-get-random-bytes", generate_all });

component::probe!(|_: &str| { told(random::get_random_bytes(4)) });
