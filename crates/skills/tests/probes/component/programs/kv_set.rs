//! `palyra:skill/kv`: keeps something under a key.

#![no_std]

use component::told;
use palyra::skill::kv;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/kv-set", generate_all });

component::probe!(|input: &str| { told(kv::set(input, b"value")) });
