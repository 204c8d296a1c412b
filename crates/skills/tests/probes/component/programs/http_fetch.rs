//! `palyra:skill/http`: makes a request to the address that is the input.

#![no_std]

extern crate alloc;

use alloc::{string::String, vec::Vec};

use component::told;
use palyra::skill::http;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/http-fetch", generate_all });

component::probe!(|input: &str| {
    let request = http::Request {
        method: String::from("GET"),
        url: input.into(),
        headers: Vec::new(),
        body: None,
        max_bytes: Some(100),
        timeout_ms: Some(1_000),
        follow_redirects: false,
    };
    told(http::fetch(&request).map(|response| (response.status, response.body)))
});
