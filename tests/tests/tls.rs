//! The control listener, met by programs that others wrote: openssl, curl, Python and sslyze.
//!
//! Guarantees that are tried: a paired device is answered whatever program it uses, over TLS 1.2 and 1.3; nobody else gets through the
//! handshake; no session is resumed; nothing that TLS has left behind is spoken; a certificate that is over opens nothing and keeps nothing
//! open. What could be true of any server is shown to be noticed at one that is lax. The tools come from `scripts/setup`, and the tests fail
//! without them. Everything stays on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it starts the programs that try the daemon"
)]

#[path = "../tls/curl.rs"]
mod curl;
#[path = "../tls/expiry.rs"]
mod expiry;
#[path = "../tls/key_files.rs"]
mod key_files;
#[path = "../tls/lax_server.rs"]
mod lax_server;
#[path = "../tls/openssl.rs"]
mod openssl;
#[path = "../tls/program.rs"]
mod program;
#[path = "../tls/python.rs"]
mod python;
#[path = "../tls/records.rs"]
mod records;
#[path = "../tls/resumption.rs"]
mod resumption;
#[path = "../tls/s_client.rs"]
mod s_client;
#[path = "../tls/scan.rs"]
mod scan;
