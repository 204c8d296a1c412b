//! `wasi:clocks/monotonic-clock`: waits for a moment that has passed.

#![no_std]

use component::told;
use wasi::clocks::monotonic_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/monotonic-clock-subscribe-instant", generate_all });

component::probe!(|_: &str| {
    monotonic_clock::subscribe_instant(0).block();
    told("waited")
});
