//! `wasi:sockets/udp-create-socket`: makes a UDP socket.

#![no_std]

use component::told;
use wasi::sockets::{network::IpAddressFamily, udp_create_socket};

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/udp-create-socket", generate_all });

component::probe!(|_: &str| { told(udp_create_socket::create_udp_socket(IpAddressFamily::Ipv4).is_ok()) });
