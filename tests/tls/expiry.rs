//! A device whose certificate is over.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

use palyra_identity::DEVICE_VALID_FOR;
use palyra_tests::daemon::{DaemonLab, DaemonPlan};
use serde_json::{Value, json};

use crate::tls::{
    key_files::KeyFiles,
    s_client::{Met, connected, s_client_of_device},
};

#[test]
fn a_certificate_that_is_over_opens_no_connection_and_ends_what_it_opened() {
    let lab = DaemonPlan::default().own_clock().start();
    let files = KeyFiles::of(&lab.device());
    assert_eq!(DEVICE_VALID_FOR, 60 * DAY);
    for version in ["-tls1_3", "-tls1_2"] {
        lab.set_ahead(Duration::ZERO);
        let mut open = Conversation::begin(&lab, &files, version);
        assert_eq!(open.ask("/api/v1/identity").0, 200, "{version}");
        let mut following = Conversation::begin(&lab, &files, version);
        following.follow();
        lab.set_ahead(59 * DAY);
        assert_eq!(open.ask("/api/v1/identity").0, 200, "{version}");
        assert_eq!(Conversation::begin(&lab, &files, version).ask("/api/v1/identity").0, 200, "{version}");
        lab.set_ahead(61 * DAY);
        let (status, told) = open.ask("/api/v1/identity");
        assert_eq!((status, &told["error"]["code"]), (401, &json!("expired")), "{version}: {told}");
        following.end();
        let met = connected(&mut s_client_of_device(lab.control(), &files, &[version]));
        assert_eq!(met, Met::Alert(CERTIFICATE_EXPIRED), "{version}");
    }
}

/// A connection by openssl that goes on.
// What the daemon shows is of its own time, so openssl does not hold it against the machine's.
struct Conversation {
    host: SocketAddr,
    child: Child,
    says: ChildStdin,
    hears: BufReader<ChildStdout>,
}

impl Conversation {
    fn begin(lab: &DaemonLab, files: &KeyFiles, version: &str) -> Self {
        let mut command = s_client_of_device(lab.control(), files, &[version, "-quiet"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (says, hears) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { host: lab.control(), child, says, hears }
    }

    fn ask(&mut self, path: &str) -> (u16, Value) {
        self.say(path, "");
        let head: Vec<_> =
            self.hears.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let status = head.first().expect("an answer").split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.hears.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Opens the stream of all that happens, the last thing on this connection.
    fn follow(&mut self) {
        self.say("/api/v1/events", "Connection: close\r\n");
        assert!(self.hears.by_ref().lines().any(|line| line.unwrap() == ": welcome"));
    }

    /// Waits until the daemon hangs up.
    fn end(mut self) {
        self.hears.read_to_end(&mut Vec::new()).unwrap();
    }

    fn say(&mut self, path: &str, more: &str) {
        self.says.write_all(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", self.host).as_bytes()).unwrap();
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const CERTIFICATE_EXPIRED: u8 = 45;
