//! `wasi:sockets/ip-name-lookup`: looks a name up in a network that it was never given, by guessing its handle.

#![no_std]

use core::mem::ManuallyDrop;

use component::told;
use wasi::sockets::{ip_name_lookup, network::Network};

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/resolve-addresses", generate_all });

component::probe!(|input: &str| {
    // SAFETY: none. The handle is made up, and the host has to say so.
    let network = ManuallyDrop::new(unsafe { Network::from_handle(1) });
    told(ip_name_lookup::resolve_addresses(&network, input).is_ok())
});
