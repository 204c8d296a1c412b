//! What the daemon says to records that have no place in a handshake. sslyze looks for such holes only where TLS 1.3 is not spoken.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use palyra_tests::daemon::DaemonLab;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName, version::TLS12,
};

#[test]
fn a_change_of_keys_out_of_turn_is_refused() {
    // Who went on would use keys that anybody can compute (CVE-2014-0224).
    let early = Record { kind: CHANGE_CIPHER_SPEC, body: vec![1] };
    assert_eq!(after_greeting(&early), [fatal(UNEXPECTED_MESSAGE)]);
}

#[test]
fn a_heartbeat_is_not_answered() {
    // Three bytes that claim to be 16384: who sent them back would send others' along (CVE-2014-0160).
    let beat = Record { kind: HEARTBEAT, body: vec![1, 0x40, 0] };
    assert_eq!(after_greeting(&beat), [fatal(DECODE_ERROR)]);
}

#[test]
fn the_older_version_is_marked_as_a_step_down() {
    let (_, greeting) = greeted(&DaemonLab::new());
    let hello = &greeting[0];
    // Its type and length, the version, 32 bytes of which the last eight tell whoever can do better that the daemon can, too.
    assert_eq!((hello[0], &hello[4 + 2 + 24..4 + 2 + 32]), (SERVER_HELLO, b"DOWNGRD\x01".as_slice()));
}

/// A record: its type, and what is in it.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    kind: u8,
    body: Vec<u8>,
}

impl Record {
    fn read(from: &mut TcpStream) -> Option<Self> {
        let mut head = [0; 5];
        from.read_exact(&mut head).ok()?;
        let [kind, _, _, high, low] = head;
        let mut body = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        from.read_exact(&mut body).unwrap();
        Some(Self { kind, body })
    }

    fn write(&self, to: &mut TcpStream) {
        let [high, low] = u16::try_from(self.body.len()).unwrap().to_be_bytes();
        to.write_all(&[&[self.kind, 3, 3, high, low], self.body.as_slice()].concat()).unwrap();
    }
}

/// What a daemon says after its greeting to a record that comes then, until it hangs up.
fn after_greeting(record: &Record) -> Vec<Record> {
    let lab = DaemonLab::new();
    let (mut stream, _) = greeted(&lab);
    record.write(&mut stream);
    std::iter::from_fn(|| Record::read(&mut stream)).collect()
}

/// A handshake of TLS 1.2 in which it is the client's turn, and the messages of the daemon's greeting.
fn greeted(lab: &DaemonLab) -> (TcpStream, Vec<Vec<u8>>) {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TcpStream::connect(lab.control()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut stream).unwrap();
    let (mut messages, mut read) = (Vec::<Vec<u8>>::new(), Vec::new());
    while messages.last().is_none_or(|message| message[0] != SERVER_HELLO_DONE) {
        let record = Record::read(&mut stream).expect("a greeting");
        assert_eq!(record.kind, HANDSHAKE);
        read.extend(record.body);
        while let [_, high, middle, low, ..] = *read {
            let whole = 4 + usize::try_from(u32::from_be_bytes([0, high, middle, low])).unwrap();
            if read.len() < whole {
                break;
            }
            messages.push(read.drain(..whole).collect());
        }
    }
    (stream, messages)
}

fn fatal(alert: u8) -> Record {
    Record { kind: ALERT, body: vec![2, alert] }
}

// Types of records.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const HEARTBEAT: u8 = 24;

// Types of messages in a handshake.
const SERVER_HELLO: u8 = 2;
const SERVER_HELLO_DONE: u8 = 14;

// Alerts.
const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;
