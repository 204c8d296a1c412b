//! `wasi:random/insecure`: a number that can be guessed.

#![no_std]

use component::told;
use wasi::random::insecure;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/insecure-u64", generate_all });

component::probe!(|_: &str| { told(insecure::get_insecure_random_u64()) });
