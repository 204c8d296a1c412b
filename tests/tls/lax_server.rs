//! A server that does what the daemon must not: what is looked for there and not found is found here, so it can be found.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::tls::program::run;

/// `openssl s_server` with old versions, weak suites, sessions to resume and handshakes to repeat.
pub struct LaxServer {
    at: SocketAddr,
    child: Child,
    _directory: TempDir,
}

impl LaxServer {
    /// Starts it, and waits until it listens.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("certificate.pem"), directory.path().join("key.pem"));
        let mut making = Command::new("openssl");
        // A key that can be encrypted to, so that suites without forward secrecy are to be had.
        making.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]);
        let made = run(making.arg("-keyout").arg(&key).arg("-out").arg(&certificate), "");
        assert_eq!(made.code, Some(0), "{made:?}");
        let mut serving = Command::new("openssl");
        serving.args(["s_server", "-accept", "127.0.0.1:0", "-www", "-client_renegotiation"]);
        serving.args(["-cipher", "ALL:@SECLEVEL=0"]).arg("-cert").arg(&certificate).arg("-key").arg(&key);
        let mut child = serving.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let at = said.find_map(|line| line.strip_prefix("ACCEPT ").map(|at| at.parse().unwrap()));
        let at = at.expect("it says where it listens");
        // It goes on talking, and must not wait for a reader.
        std::thread::spawn(move || said.for_each(drop));
        Self { at, child, _directory: directory }
    }

    /// Where it listens.
    pub const fn at(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for LaxServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
