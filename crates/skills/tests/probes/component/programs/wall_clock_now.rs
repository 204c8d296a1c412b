//! `wasi:clocks/wall-clock`: the time, of the clock on the wall.

#![no_std]

use component::told;
use wasi::clocks::wall_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/wall-clock-now", generate_all });

component::probe!(|_: &str| { told(wall_clock::now()) });
