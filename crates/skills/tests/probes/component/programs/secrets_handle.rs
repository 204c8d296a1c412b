//! `palyra:skill/secrets`: what stands for a secret.

#![no_std]

use component::told;
use palyra::skill::secrets;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/secrets-handle", generate_all });

component::probe!(|input: &str| { told(secrets::handle(input)) });
