//! `wasi:clocks/monotonic-clock`: how fine the clock that never goes back is.

#![no_std]

use component::told;
use wasi::clocks::monotonic_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/monotonic-clock-resolution", generate_all });

component::probe!(|_: &str| { told(monotonic_clock::resolution()) });
