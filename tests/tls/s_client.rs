//! A connection by `openssl s_client`, and how it went.

use std::{net::SocketAddr, process::Command};

use serde_json::Value;

use crate::tls::{
    key_files::KeyFiles,
    program::{Ran, run},
};

/// How a connection went.
#[derive(Debug, PartialEq, Eq)]
pub enum Met {
    /// Over this version of TLS came this answer.
    Answered {
        /// As openssl calls it.
        version: String,
        /// The status.
        status: u16,
        /// The body.
        body: Value,
    },
    /// The daemon refused with this alert.
    Alert(u8),
    /// Something else.
    Otherwise(String),
}

/// `openssl s_client` towards an address, with what a device trusts. It waits until the other side hangs up.
pub fn s_client(to: SocketAddr, files: &KeyFiles, options: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-ign_eof", "-connect", &to.to_string(), "-CAfile"]).arg(files.authorities());
    command.args(options);
    command
}

/// The same, with the device's own certificate.
pub fn s_client_of_device(to: SocketAddr, files: &KeyFiles, options: &[&str]) -> Command {
    let mut command = s_client(to, files, options);
    command.arg("-cert").arg(files.certificate()).arg("-key").arg(files.key());
    command
}

/// Connects, asks for something, and says how that went.
pub fn asked(command: &mut Command, request: &str) -> Met {
    met(&run(command, request))
}

/// Connects, says nothing, and says how that went.
// A request could arrive after the daemon has hung up; then the alert may be lost.
pub fn connected(command: &mut Command) -> Met {
    met(&run(command, ""))
}

/// The last request of a connection.
pub fn request(to: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
}

fn met(ran: &Ran) -> Met {
    let text = ran.text();
    let answer = text.split_once("HTTP/1.1 ").and_then(|(_, answer)| answer.split_once("\r\n\r\n"));
    if let Some((head, body)) = answer {
        let line = text.lines().find_map(|line| line.strip_prefix("New, ").or_else(|| line.strip_prefix("Reused, ")));
        let version = line.unwrap().split(',').next().unwrap().to_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let body = serde_json::from_str(&body[..length]).unwrap();
        return Met::Answered { version, status: head[..3].parse().unwrap(), body };
    }
    match text.split_once("SSL alert number ") {
        Some((_, number)) => Met::Alert(number.split_whitespace().next().unwrap().parse().unwrap()),
        None => Met::Otherwise(text),
    }
}
