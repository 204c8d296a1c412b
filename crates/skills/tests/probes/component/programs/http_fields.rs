//! `wasi:http/types`: the headers that a request of WASI begins with.

#![no_std]

use component::told;
use wasi::http::types::Fields;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/http-fields", generate_all });

component::probe!(|_: &str| {
    let _fields = Fields::new();
    told("made")
});
