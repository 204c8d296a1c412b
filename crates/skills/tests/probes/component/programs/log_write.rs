//! `palyra:skill/log`: writes a line into the log of the call.

#![no_std]

use component::told;
use palyra::skill::log;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/log-write", generate_all });

component::probe!(|input: &str| {
    log::write(log::Level::Warn, input);
    told("logged")
});
