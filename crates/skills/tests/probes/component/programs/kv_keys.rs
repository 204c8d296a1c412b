//! `palyra:skill/kv`: which keys there are.

#![no_std]

use component::told;
use palyra::skill::kv;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/kv-keys", generate_all });

component::probe!(|input: &str| { told(kv::keys(input)) });
