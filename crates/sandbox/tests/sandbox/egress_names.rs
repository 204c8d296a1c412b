//! Names and synthetic addresses: clients that know of no proxy.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::net::{Ipv4Addr, SocketAddr};

use palyra_sandbox::{
    Reason,
    egress::{ConnectionOutcome, EgressRefusalKind as Kind, SyntheticRange, Via},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::egress_lab::{Setup, hosts::Host, query, read_all};

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 2);

const A: u16 = 1;
const AAAA: u16 = 28;
const HTTPS: u16 = 65;

#[tokio::test]
async fn a_name_that_may_pass_has_one_address_for_the_whole_run() {
    let lab = Setup::new().rule("host = '*.example.org'").rule("host = 'listed.com'").start();
    assert_eq!(lab.look_up("a.example.org", A).await, (0, vec![FIRST]));
    assert_eq!(lab.look_up("listed.com", A).await, (0, vec![SECOND]));
    assert_eq!(lab.look_up("A.Example.ORG", A).await, (0, vec![FIRST]));
    for kind in [AAAA, HTTPS, 15, 16, 255] {
        assert_eq!(lab.look_up("listed.com", kind).await, (0, vec![]), "type {kind}");
    }
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
    assert_eq!(lab.keeper.records.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_name_that_is_refused_does_not_exist_and_is_noted_once() {
    let mut lab = Setup::new().rule("host = 'listed.com'").start();
    for kind in [A, AAAA, A, HTTPS] {
        assert_eq!(lab.look_up("secret-data.evil.com", kind).await, (3, vec![]));
        assert_eq!(lab.look_up("127.0.0.1", kind).await, (3, vec![]));
    }
    let records = lab.records(2).await;
    assert_eq!((records[0].via, records[0].port, records[0].named.as_str()), (Via::Dns, 53, "secret-data.evil.com"));
    assert_eq!(lab.refusals(2).await, [Kind::NotListed, Kind::NotAHost]);
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
    assert_eq!(lab.finish().await.refused, 2);
}

#[tokio::test]
async fn a_name_that_is_refused_is_told_as_it_is_and_escaped_once() {
    let mut lab = Setup::new().rule("host = 'listed.com'").start();
    assert_eq!(lab.look_up("a\0.org", A).await.0, 3);
    assert_eq!(lab.socks_to("b\0.org", 443).await.unwrap_err(), 2);
    let records = lab.records(2).await;
    assert_eq!((records[0].named.as_str(), records[1].named.as_str()), ("a<U+0000>.org", "b<U+0000>.org:443"));
    let told: Vec<String> = lab.finish().await.refusals.into_iter().map(|one| Reason::from(one).to_string()).collect();
    let expected = [
        "it could not look up `a<U+0000>.org`: `a<U+0000>.org` is no host",
        "it could not connect to `b<U+0000>.org:443`: `b<U+0000>.org` is no host",
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn the_case_of_a_question_is_echoed() {
    let lab = Setup::new().rule("host = 'listed.com'").start();
    let asked = query("LiStEd.CoM", A);
    let answer = lab.ask(&asked).await.unwrap();
    assert_eq!(answer[12..asked.len()], asked[12..]);
}

#[tokio::test]
async fn noise_gets_no_answer_or_is_called_malformed_and_the_next_question_is_answered() {
    let lab = Setup::new().rule("host = 'listed.com'").start();
    assert_eq!(lab.ask(b"").await, None);
    assert_eq!(lab.ask(&[0xff; 600]).await, None);
    assert_eq!(lab.ask(&vec![0; 5000]).await, None);
    let mut two_questions = query("listed.com", A);
    two_questions[5] = 2;
    assert_eq!(lab.ask(&two_questions).await.unwrap()[3] & 15, 1);
    assert_eq!(lab.look_up("listed.com", A).await, (0, vec![FIRST]));
}

#[tokio::test]
async fn names_run_out() {
    let lab = Setup::new().rule("host = '*.example.org'").limits(|limits| limits.names = 2).start();
    assert_eq!(lab.look_up("a.example.org", A).await.0, 0);
    assert_eq!(lab.look_up("b.example.org", A).await.0, 0);
    assert_eq!(lab.look_up("c.example.org", A).await, (2, vec![]));
    assert_eq!(lab.look_up("a.example.org", A).await, (0, vec![FIRST]));
    assert_eq!(lab.refusals(1).await, [Kind::TooManyConnections]);
}

#[tokio::test]
async fn a_client_without_a_proxy_reaches_the_host_behind_its_address() {
    let host = Host::echo().await;
    let direct = SocketAddr::from((FIRST, host.port()));
    let lab = Setup::new().open("listed.example", host.at).direct(direct).start();
    lab.look_up("listed.example", A).await;
    let mut client = TcpStream::connect(direct).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await, b"ping");
    let records = lab.records(1).await;
    assert_eq!((records[0].outcome.clone(), records[0].via), (ConnectionOutcome::Closed, Via::Direct));
    assert_eq!(records[0].host.as_ref().unwrap().as_str(), "listed.example");
}

#[tokio::test]
async fn a_host_that_speaks_first_is_heard() {
    let lab = Setup::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let direct = SocketAddr::from((FIRST, at.port()));
    let lab = lab.open("mail.example", at).direct(direct).start();
    lab.look_up("mail.example", A).await;
    let mut client = TcpStream::connect(direct).await.unwrap();
    listener.accept().await.unwrap().0.write_all(b"220 ready").await.unwrap();
    let mut greeting = [0; 9];
    client.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 ready");
}

#[tokio::test]
async fn an_address_without_a_name_is_reset() {
    let listener = std::net::TcpListener::bind((SECOND, 0)).unwrap();
    let direct = listener.local_addr().unwrap();
    drop(listener);
    let lab = Setup::new().rule("host = 'listed.com'").direct(direct).start();
    let mut client = TcpStream::connect(direct).await.unwrap();
    let error = client.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let records = lab.records(1).await;
    assert_eq!((records[0].named.as_str(), records[0].port), ("127.18.0.2", direct.port()));
    assert_eq!(lab.refusals(1).await, [Kind::NotListed]);
}

#[tokio::test]
async fn a_direct_client_on_another_port_is_told_in_its_own_protocol() {
    let listener = std::net::TcpListener::bind((FIRST, 0)).unwrap();
    let direct = listener.local_addr().unwrap();
    drop(listener);
    let lab = Setup::new().rule("host = 'listed.com'").direct(direct).start();
    lab.look_up("listed.com", A).await;
    let mut client = TcpStream::connect(direct).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: listed.com\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read_all(&mut client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n") && answer.contains("port_not_listed"), "{answer}");
    let mut client = TcpStream::connect(direct).await.unwrap();
    client.write_all(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 3]).await.unwrap();
    assert_eq!(read_all(&mut client).await, [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(lab.refusals(2).await, [Kind::PortNotListed; 2]);
}

/// Port 80 of an address of its own; nothing if this process may not bind it.
async fn port_80(network: u8) -> Option<(Host, Setup, SocketAddr)> {
    let host = Host::http_at(&format!("127.{network}.1.1:80")).await?;
    let direct = SocketAddr::from(([127, network, 0, 1], 80));
    let range = SyntheticRange::new(Ipv4Addr::new(127, network, 0, 0), 24).unwrap();
    let setup = Setup::new().strict("listed.example", host.at).direct(direct).limits(|limits| limits.synthetic = range);
    Some((host, setup, direct))
}

#[tokio::test]
async fn on_port_80_the_host_header_names_the_host() {
    let Some((host, setup, direct)) = port_80(81).await else { return };
    let lab = setup.start();
    lab.look_up("listed.example", A).await;
    let requests = [
        ("GET / HTTP/1.1\r\nHost: listed.example\r\n\r\n", None),
        ("GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", Some(Kind::WrongHostHeader)),
        ("GET / HTTP/1.1\r\n\r\n", Some(Kind::WrongHostHeader)),
        ("GET / HTTP/1.1\r\nHost: listed.example\r\nHost: evil.com\r\n\r\n", Some(Kind::WrongHostHeader)),
        ("CONNECT evil.com:80 HTTP/1.1\r\nHost: listed.example\r\n\r\n", Some(Kind::NotSupported)),
        ("SSH-2.0-client\r\n\r\n", Some(Kind::BadRequest)),
    ];
    for (index, (request, kind)) in requests.iter().enumerate() {
        let clients = [TcpStream::connect(direct).await.unwrap(), lab.socks_to("listed.example", 80).await.unwrap()];
        for mut client in clients {
            // In two pieces, so that a judgement on the first one would be early.
            let (first, second) = request.split_at(9);
            client.write_all(first.as_bytes()).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            client.write_all(second.as_bytes()).await.unwrap();
            let answer = String::from_utf8(read_all(&mut client).await).unwrap();
            let status = if kind.is_some() { "HTTP/1.1 403" } else { "HTTP/1.1 200" };
            assert!(answer.starts_with(status), "{request:?} {answer}");
        }
        let records = lab.records(2 * (index + 1)).await;
        for record in &records[2 * index..] {
            match (&record.outcome, kind) {
                (ConnectionOutcome::Closed, None) => assert!(record.sent > 0),
                (ConnectionOutcome::Refused(refusal), Some(kind)) => {
                    assert_eq!((refusal.kind, record.sent), (*kind, 0))
                }
                (outcome, _) => panic!("{request:?} {outcome:?}"),
            }
        }
    }
    assert_eq!(host.bytes(), 2 * requests[0].0.len());
}

#[tokio::test]
async fn on_port_80_plain_requests_pass_the_proxy() {
    let Some((host, setup, _)) = port_80(82).await else { return };
    let lab = setup.start();
    let answer = lab.say(b"GET http://listed.example/ HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("host: listed.example\r\n"), "{answer}");
    assert_eq!(lab.tunnel("listed.example:80").await.unwrap_err(), (403, "not_supported".to_owned()));
    assert_eq!(host.connections(), 1);
}
