//! `wasi:clocks/monotonic-clock`: the time, of the clock that never goes back.

#![no_std]

use component::told;
use wasi::clocks::monotonic_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/monotonic-clock-now", generate_all });

component::probe!(|_: &str| { told(monotonic_clock::now()) });
