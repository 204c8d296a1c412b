//! `wasi:clocks/wall-clock`: how fine the clock on the wall is.

#![no_std]

use component::told;
use wasi::clocks::wall_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/wall-clock-resolution", generate_all });

component::probe!(|_: &str| { told(wall_clock::resolution()) });
