//! The client against peers on loopback that say exactly what they are told to.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use palyra_api::{Health, call::NewCall, journal::ExportQuery};
use palyra_types::ToolName;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};

use super::*;

/// What the peer has read, connection by connection.
type Heard = Arc<Mutex<Vec<String>>>;

/// A peer that says these bytes, one answer for each request, and closes the connection after as many as it says.
fn peer(answers: Vec<String>, each: usize) -> (Client, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let heard = Heard::default();
    let writes = Arc::clone(&heard);
    thread::spawn(move || {
        for answers in answers.chunks(each) {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let request = read_request(&mut stream);
                writes.lock().unwrap().push(request);
                stream.write_all(answer.as_bytes()).unwrap();
                if answer.is_empty() {
                    thread::sleep(Duration::from_secs(2));
                }
            }
        }
    });
    (Client::local(endpoint).with_patience(Duration::from_millis(500)), heard)
}

fn one(answer: impl Into<String>) -> Client {
    peer(vec![answer.into()], 1).0
}

fn read_request(stream: &mut impl Read) -> String {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap_or(0);
        request.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&request);
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if let Some(head) = text.find("\r\n\r\n")
            && text.len() >= head + 4 + length.unwrap_or(0)
        {
            return text.into_owned();
        }
        if count == 0 {
            return text.into_owned();
        }
    }
}

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn healthy() -> String {
    response("200 OK", r#"{"status":"ok","version":"0.1.0"}"#)
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn health(client: &Client) -> Result<Health, ClientError> {
    wait(client.health())
}

fn new_call() -> NewCall {
    NewCall::new(ToolName::parse("fs.list").unwrap(), serde_json::Map::new())
}

#[test]
fn a_daemon_that_is_there_says_its_version() {
    assert_eq!(health(&one(healthy())), Ok(Health { status: "ok".into(), version: "0.1.0".into() }));
}

#[test]
fn a_refusal_keeps_its_reason_and_its_status() {
    let answer = response("403 Forbidden", r#"{"error":{"code":"denied","message":"no way"}}"#);
    let error = health(&one(answer)).unwrap_err();
    assert!(matches!(&error, ClientError::Refused { status: 403, error } if error.code == "denied"), "{error:?}");
}

#[test]
fn a_stranger_on_the_port_is_told_apart_from_silence() {
    assert!(matches!(health(&one("SSH-2.0-x\r\n")), Err(ClientError::Protocol(_))));
    assert!(matches!(health(&one(response("200 OK", "{}"))), Err(ClientError::Protocol(_))));
    assert!(matches!(health(&one("")), Err(ClientError::Slow { .. })));
    let nobody = Client::local(Endpoint::parse("http://127.0.0.1:1").unwrap());
    assert!(matches!(health(&nobody), Err(ClientError::Unreachable { .. })));
}

#[test]
fn an_answer_that_is_cut_off_is_no_answer() {
    let cut = healthy().replace("content-length: 33", "content-length: 99");
    assert!(matches!(health(&one(cut)), Err(ClientError::Lost { .. })));
}

#[test]
fn a_connection_is_used_again_and_one_that_was_closed_is_replaced() {
    let (client, heard) = peer(vec![healthy(), healthy(), healthy()], 2);
    wait(async {
        for _ in 0..3 {
            client.health().await.unwrap();
        }
    });
    assert_eq!(heard.lock().unwrap().len(), 3);
}

#[test]
fn a_credential_and_a_key_go_with_the_request() {
    let (client, heard) = peer(vec![response("202 Accepted", "{}")], 1);
    let client = client.with_bearer(Bearer::parse("plr_x").unwrap());
    let key = IdempotencyKey::parse("once").unwrap();
    let call = NewCall { wait: false, ..new_call() };
    assert!(matches!(wait(client.propose(&call, Some(&key))), Err(ClientError::Protocol(_))));
    let heard = heard.lock().unwrap();
    let request = heard.first().unwrap();
    assert!(request.starts_with("POST /api/v1/calls HTTP/1.1\r\n"), "{request}");
    for line in ["authorization: Bearer plr_x", "idempotency-key: once", "content-type: application/json"] {
        assert!(request.contains(line), "{request}");
    }
    assert!(request.ends_with(r#"{"tool":"fs.list","args":{},"wait":false}"#), "{request}");
    assert!(!format!("{client:?}").contains("plr_x"));
}

#[test]
fn who_waits_for_a_call_waits_longer_than_the_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        thread::sleep(Duration::from_millis(300));
        let body = r#"{"error":{"code":"denied_by_person","message":"no"}}"#;
        stream.write_all(response("403 Forbidden", body).as_bytes()).unwrap();
    });
    let client = Client::local(endpoint).with_patience(Duration::from_millis(100));
    assert!(matches!(wait(client.propose(&new_call(), None)), Err(ClientError::Refused { .. })));
}

fn event(kind: &str, seq: &str) -> String {
    format!(
        r#"{{"v":1,"seq":{seq},"time":"2026-01-01T00:00:00Z","type":"{kind}","run_id":null,"call_id":null,"data":{{}}}}"#
    )
}

#[test]
fn a_stream_tells_events_and_where_it_is() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let events = format!(
        ": hello\nretry: 1000\n\nevent: tool.proposed\nid: 7\ndata: {}\n\nevent: tool.output\ndata: {}\n\n",
        event("tool.proposed", "7"),
        event("tool.output", "null")
    );
    let (client, heard) = peer(vec![format!("{head}{events}")], 1);
    wait(async {
        let mut stream = client.events(Some(6)).await.unwrap();
        assert_eq!(stream.last_id(), None);
        assert_eq!(stream.next().await.unwrap().unwrap().seq, Some(7));
        assert_eq!(stream.next().await.unwrap().unwrap().kind, "tool.output");
        assert_eq!((stream.last_id(), stream.retry()), (Some(7), Some(Duration::from_secs(1))));
        assert_eq!(stream.next().await.unwrap(), None);
    });
    assert!(heard.lock().unwrap()[0].starts_with("GET /api/v1/events?after=6 HTTP/1.1\r\n"));
}

#[test]
fn a_stream_that_is_no_stream_or_holds_no_events_is_an_error() {
    assert!(matches!(wait(one(healthy()).events(None)), Err(ClientError::Protocol(_))));
    let refused = response("401 Unauthorized", r#"{"error":{"code":"unauthenticated","message":"who?"}}"#);
    assert!(matches!(wait(one(refused).events(None)), Err(ClientError::Refused { status: 401, .. })));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    for data in ["nothing".to_owned(), event("another", "1")] {
        let client = one(format!("{head}event: tool.proposed\ndata: {data}\n\n"));
        let next = wait(async { client.events(None).await.unwrap().next().await });
        assert!(matches!(next, Err(ClientError::Protocol(_))), "{next:?}");
    }
}

#[test]
fn an_export_is_written_as_it_comes_and_one_that_is_cut_off_is_an_error() {
    let lines = "{}\n".repeat(1000);
    let mut written = Vec::new();
    let count = wait(one(response("200 OK", &lines)).export(&ExportQuery::default(), &mut written)).unwrap();
    assert_eq!((count, written), (3000, lines.clone().into_bytes()));
    let cut = response("200 OK", &lines).replace("content-length: 3000", "content-length: 3001");
    let outcome = wait(one(cut).export(&ExportQuery::default(), &mut Vec::new()));
    assert!(matches!(outcome, Err(ClientError::Lost { .. })), "{outcome:?}");
}

/// A peer that speaks TLS with this certificate and takes those of one authority. What it was sent is kept.
fn tls_peer(identity: &rcgen::CertifiedKey<rcgen::KeyPair>, takes: &CertificateDer<'static>) -> (SocketAddr, Heard) {
    let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut devices = RootCertStore::empty();
    devices.add(takes.clone()).unwrap();
    let devices =
        WebPkiClientVerifier::builder_with_provider(Arc::new(devices), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(devices)
        .with_single_cert(vec![identity.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Heard::default();
    let writes = Arc::clone(&heard);
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
        let request = read_request(&mut stream);
        writes.lock().unwrap().push(request);
        let _ = stream.write_all(healthy().as_bytes());
        let _ = stream.flush();
    });
    (address, heard)
}

fn identity(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// A device with a certificate of its own making, which trusts this.
fn trusting(address: SocketAddr, authorities: &str) -> Client {
    of_device(address, authorities, &identity("device"))
}

fn of_device(address: SocketAddr, authorities: &str, device: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Client {
    let (certificate, key) = (device.cert.pem(), device.signing_key.serialize_pem());
    let keys = DeviceKeys { authorities, certificate: &certificate, key: &key };
    Client::control(&address.to_string(), keys).unwrap()
}

#[test]
fn the_daemon_that_is_trusted_and_takes_the_device_is_asked() {
    let (daemon, device) = (identity("localhost"), identity("device"));
    let (address, heard) = tls_peer(&daemon, device.cert.der());
    assert!(health(&of_device(address, &daemon.cert.pem(), &device)).is_ok());
    let heard = heard.lock().unwrap();
    assert!(heard[0].contains(&format!("host: localhost:{}", address.port())), "{heard:?}");
}

#[test]
fn a_device_whose_certificate_is_not_taken_is_told_so() {
    let daemon = identity("localhost");
    let (address, heard) = tls_peer(&daemon, identity("another").cert.der());
    let outcome = health(&trusting(address, &daemon.cert.pem()));
    assert!(matches!(outcome, Err(ClientError::NotTaken { .. })), "{outcome:?}");
    assert!(heard.lock().unwrap().iter().all(String::is_empty), "{heard:?}");
}

#[test]
fn nobody_else_is_sent_anything() {
    let (squatter, misnamed) = (identity("localhost"), identity("example.org"));
    let misnamed_pem = misnamed.cert.pem();
    // Another certificate for the same name; and the right one, for another name.
    for (shown, trusted) in [(squatter, identity("localhost").cert.pem()), (misnamed, misnamed_pem)] {
        let (address, heard) = tls_peer(&shown, identity("device").cert.der());
        let outcome = health(&trusting(address, &trusted));
        assert!(matches!(outcome, Err(ClientError::Stranger { .. })), "{outcome:?}");
        thread::sleep(Duration::from_millis(50));
        assert!(heard.lock().unwrap().iter().all(String::is_empty), "{heard:?}");
    }
}

#[test]
fn who_speaks_no_tls_is_a_stranger() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(healthy().as_bytes()).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    let outcome = health(&trusting(address, &identity("localhost").cert.pem()));
    assert!(matches!(outcome, Err(ClientError::Stranger { .. })), "{outcome:?}");
}

#[test]
fn who_closes_the_connection_before_showing_a_certificate_is_not_called_a_stranger() {
    // With what was sent unread, the end is a reset; with it read, it is an orderly one.
    for reads in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            if reads {
                let _ = stream.read(&mut [0; 4096]);
            }
        });
        let outcome = health(&trusting(address, &identity("localhost").cert.pem()));
        assert!(matches!(outcome, Err(ClientError::Closed { .. })), "{outcome:?}");
    }
}

#[test]
fn keys_that_are_none_are_refused() {
    let device = identity("device");
    let (certificate, key) = (device.cert.pem(), device.signing_key.serialize_pem());
    for text in ["", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        for keys in [
            DeviceKeys { authorities: text, certificate: &certificate, key: &key },
            DeviceKeys { authorities: &certificate, certificate: text, key: &key },
            DeviceKeys { authorities: &certificate, certificate: &certificate, key: text },
        ] {
            assert!(Client::control("127.0.0.1:1", keys).is_err(), "{text}");
        }
    }
    let keys = DeviceKeys { authorities: &certificate, certificate: &certificate, key: &key };
    assert!(Client::control("127.0.0.1", keys).is_err());
}
