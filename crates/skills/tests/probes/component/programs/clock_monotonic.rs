//! `palyra:skill/clock`: the time that never goes back.

#![no_std]

use component::told;
use palyra::skill::clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/clock-monotonic", generate_all });

component::probe!(|_: &str| { told(clock::monotonic()) });
