//! `wasi:sockets/instance-network`: the network.

#![no_std]

use component::told;
use wasi::sockets::instance_network;

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/instance-network", generate_all });

component::probe!(|_: &str| {
    instance_network::instance_network();
    told("connected")
});
