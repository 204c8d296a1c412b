//! `palyra:skill/clock`: the time.

#![no_std]

use component::told;
use palyra::skill::clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/clock-now", generate_all });

component::probe!(|_: &str| { told(clock::now()) });
