//! Whether a session is taken up again without the certificate that opened it.

use std::net::SocketAddr;

use palyra_tests::daemon::DaemonLab;

use crate::tls::{
    key_files::KeyFiles,
    lax_server::LaxServer,
    program::run,
    s_client::{request, s_client_of_device},
};

/// What there is to be seen of a resumption.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Whether a ticket came, in the first connection and five more that offer what the one before got.
    ticket: bool,
    /// Whether there is a session to keep in a file.
    session: bool,
    /// Whether any of the connections went on with an older session.
    reused: bool,
}

#[test]
fn no_session_is_to_be_had_and_none_is_resumed() {
    let lab = DaemonLab::new();
    let files = KeyFiles::of(&lab.device());
    for version in VERSIONS {
        let nothing = Seen { ticket: false, session: false, reused: false };
        assert_eq!(seen(lab.control(), &files, version), nothing, "{version}");
    }
}

#[test]
fn what_a_resumption_looks_like_is_seen_at_a_server_that_resumes() {
    let (lab, lax) = (DaemonLab::new(), LaxServer::start());
    let files = KeyFiles::of(&lab.device());
    for version in VERSIONS {
        let all = Seen { ticket: true, session: true, reused: true };
        assert_eq!(seen(lax.at(), &files, version), all, "{version}");
    }
}

#[test]
fn a_session_from_elsewhere_is_not_taken_up() {
    let (lab, lax) = (DaemonLab::new(), LaxServer::start());
    let files = KeyFiles::of(&lab.device());
    for version in VERSIONS {
        let session = files.path("session.pem");
        connect(lax.at(), &files, &[version, "-sess_out", session.to_str().unwrap()]);
        let said = connect(lab.control(), &files, &[version, "-sess_in", session.to_str().unwrap()]);
        assert!(said.contains("\nNew, ") && !said.contains("\nReused, "), "{said}");
        // The key of the certificate signs this handshake, too.
        assert!(said.lines().any(|line| line.starts_with(">>> ") && line.ends_with(", CertificateVerify")), "{said}");
        assert!(said.contains("HTTP/1.1 200 "), "{said}");
    }
}

fn seen(to: SocketAddr, files: &KeyFiles, version: &str) -> Seen {
    let session = files.path(version);
    let _ = std::fs::remove_file(&session);
    let first = connect(to, files, &[version, "-sess_out", session.to_str().unwrap()]);
    let again = connect(to, files, &[version, "-reconnect"]);
    assert_eq!(again.matches(", ClientHello").count(), 6, "{again}");
    let kept = session.exists().then(|| connect(to, files, &[version, "-sess_in", session.to_str().unwrap()]));
    let all = [first, again, kept.unwrap_or_default()].concat();
    Seen { ticket: all.contains(", NewSessionTicket"), session: session.exists(), reused: all.contains("\nReused, ") }
}

/// All that openssl says of a connection on which it is answered, and of its messages.
fn connect(to: SocketAddr, files: &KeyFiles, options: &[&str]) -> String {
    let options = [options, &["-msg"]].concat();
    let ran = run(&mut s_client_of_device(to, files, &options), &request(to, "/healthz"));
    assert!(ran.out.contains("HTTP/1."), "{ran:?}");
    ran.text()
}

const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];
