//! `palyra:skill/random`: bytes that cannot be guessed.

#![no_std]

use component::told;
use palyra::skill::random;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/random-bytes", generate_all });

component::probe!(|_: &str| { told(random::bytes(4)) });
