//! `wasi:clocks/monotonic-clock`: waits for a thousandth of a second.

#![no_std]

use component::told;
use wasi::clocks::monotonic_clock;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/monotonic-clock-subscribe-duration", generate_all });

component::probe!(|_: &str| {
    monotonic_clock::subscribe_duration(1_000_000).block();
    told("waited")
});
