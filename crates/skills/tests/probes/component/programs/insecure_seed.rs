//! `wasi:random/insecure-seed`: a seed that can be guessed.

#![no_std]

use component::told;
use wasi::random::insecure_seed;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/insecure-seed", generate_all });

component::probe!(|_: &str| { told(insecure_seed::insecure_seed()) });
