//! `wasi:sockets/tcp-create-socket`: makes a TCP socket.

#![no_std]

use component::told;
use wasi::sockets::{network::IpAddressFamily, tcp_create_socket};

wit_bindgen::generate!({ path: ["../../../wit/v1", "wit"], world: "probe:programs/tcp-create-socket", generate_all });

component::probe!(|_: &str| { told(tcp_create_socket::create_tcp_socket(IpAddressFamily::Ipv4).is_ok()) });
