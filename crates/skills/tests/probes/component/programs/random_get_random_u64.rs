//! `wasi:random/random`: a number that cannot be guessed.

#![no_std]

use component::told;
use wasi::random::random;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/random-get-random-u64", generate_all });

component::probe!(|_: &str| { told(random::get_random_u64()) });
