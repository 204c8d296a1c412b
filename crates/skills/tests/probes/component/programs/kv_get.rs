//! `palyra:skill/kv`: what is kept under a key.

#![no_std]

use component::told;
use palyra::skill::kv;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/kv-get", generate_all });

component::probe!(|input: &str| { told(kv::get(input)) });
