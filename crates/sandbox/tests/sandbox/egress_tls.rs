//! TLS: what a client has to say before anything is passed on, and who may answer in the host's place.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::http::{request, response};
use palyra_sandbox::egress::{
    BodyFilter, ConnectionOutcome, EgressRefusal, EgressRefusalKind as Kind, Interceptor, Unchanged, Via,
};
use palyra_types::HostName;
use rustls::{HandshakeKind, crypto::aws_lc_rs};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::egress_lab::{Lab, Setup, hosts::Host, is_closed_within, read_all};

const NAME: &str = "listed.example";

/// A strict host and a run with all three ways to it.
async fn strict() -> (Host, Lab, SocketAddr) {
    let host = Host::tls(NAME).await;
    let direct = SocketAddr::from(([127, 18, 0, 1], host.port()));
    let lab = Setup::new().strict(NAME, host.at).direct(direct).start();
    lab.look_up(NAME, 1).await;
    (host, lab, direct)
}

async fn every_way(host: &Host, lab: &Lab, direct: SocketAddr) -> [(Via, TcpStream); 3] {
    [
        (Via::Connect, lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap()),
        (Via::Socks5, lab.socks_to(NAME, host.port()).await.unwrap()),
        (Via::Direct, TcpStream::connect(direct).await.unwrap()),
    ]
}

/// A hello by hand.
fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let vector = |content: &[u8]| [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat();
    let extensions =
        extensions.iter().flat_map(|(kind, content)| [kind.to_be_bytes().to_vec(), vector(content)].concat());
    let extensions: Vec<u8> = extensions.collect();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &vector(&extensions)].concat();
    [&[22, 3, 1][..], &vector(&[&[1, 0][..], &vector(&body)].concat())].concat()
}

fn named(server: &str) -> (u16, Vec<u8>) {
    let length = u8::try_from(server.len()).unwrap();
    (0, [&[0, length + 3, 0, 0, length][..], server.as_bytes()].concat())
}

#[tokio::test]
async fn a_hello_for_the_host_passes_every_way() {
    let (host, lab, direct) = strict().await;
    for (via, stream) in every_way(&host, &lab, direct).await {
        let mut tls = host.greet(stream, NAME).await.unwrap();
        tls.write_all(b"ping").await.unwrap();
        let mut answer = [0; 4];
        tls.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"ping", "{via}");
    }
    let records = lab.records(3).await;
    assert!(records.iter().all(|record| record.outcome == ConnectionOutcome::Closed && record.sent > 200));
}

#[tokio::test]
async fn what_is_no_hello_for_the_host_is_refused_every_way_and_the_host_gets_no_byte() {
    // A host that would count every byte.
    let host = Host::echo().await;
    let direct = SocketAddr::from(([127, 18, 0, 1], host.port()));
    let lab = Setup::new().strict(NAME, host.at).direct(direct).start();
    lab.look_up(NAME, 1).await;
    let cases = [
        (hello(&[named("evil.com")]), Kind::WrongServerName),
        (hello(&[named("listed.example.evil.com")]), Kind::WrongServerName),
        (hello(&[named("sub.listed.example")]), Kind::WrongServerName),
        (hello(&[named("listed.example.")]), Kind::WrongServerName),
        (hello(&[named("listed.example\0")]), Kind::WrongServerName),
        (hello(&[(43, vec![2, 3, 4])]), Kind::NoServerName),
        (hello(&[named(NAME), (0xfe0d, vec![0; 60])]), Kind::EncryptedHello),
        (hello(&[named(NAME), named("evil.com")]), Kind::BrokenHello),
        ([vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb], vec![0; 17_000]].concat(), Kind::BrokenHello),
        (b"GET / HTTP/1.1\r\nHost: listed.example\r\n\r\n".to_vec(), Kind::NoTls),
        (b"SSH-2.0-client\r\n".to_vec(), Kind::NoTls),
        (vec![0; 100], Kind::NoTls),
    ];
    let mut count = 0;
    for (words, kind) in &cases {
        for (via, mut stream) in every_way(&host, &lab, direct).await {
            let _ = stream.write_all(words).await;
            let answer = read_all(&mut stream).await;
            let expected = match words[0] {
                22 => answer == [21, 3, 3, 0, 2, 2, 49],
                b'G' | b'S' => answer.starts_with(b"HTTP/1.1 403"),
                _ => answer.is_empty(),
            };
            assert!(expected, "{via} {kind} {answer:?}");
            count += 1;
            let records = lab.records(count).await;
            let last = records.last().unwrap();
            assert!(matches!(&last.outcome, ConnectionOutcome::Refused(why) if why.kind == *kind), "{last:?} {kind}");
            assert_eq!((last.via, last.sent, last.received), (via, 0, 0));
        }
    }
    assert_eq!(host.bytes(), 0);
}

#[tokio::test]
async fn a_hello_in_pieces_passes_and_nothing_is_passed_on_before_it_is_whole() {
    let host = Host::echo().await;
    let lab = Setup::new().strict(NAME, host.at).start();
    let mut client = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
    let words = hello(&[named(NAME)]);
    let (most, last) = words.split_at(words.len() - 1);
    for piece in most.chunks(7) {
        client.write_all(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(host.bytes(), 0);
    client.write_all(last).await.unwrap();
    let mut echoed = vec![0; words.len()];
    client.read_exact(&mut echoed).await.unwrap();
    assert_eq!(echoed, words);
}

#[tokio::test]
async fn a_client_that_never_says_hello_is_refused_in_time() {
    let host = Host::echo().await;
    let lab = Setup::new().strict(NAME, host.at).limits(|limits| limits.handshake = Duration::from_millis(200)).start();
    let mut client = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
    client.write_all(&[22, 3, 1]).await.unwrap();
    read_all(&mut client).await;
    assert_eq!(lab.refusals(1).await, [Kind::TooSlow]);
}

#[tokio::test]
async fn first_words_in_thousands_of_pieces_are_refused() {
    let host = Host::echo().await;
    let lab = Setup::new().strict(NAME, host.at).start();
    let mut client = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
    client.set_nodelay(true).unwrap();
    // A hello that would be long, in records of one byte each.
    let record = |byte: u8| [22, 3, 1, 0, 1, byte];
    let message = [vec![1, 0, 0x3f, 0], vec![3; 2600]].concat();
    for byte in message {
        if client.write_all(&record(byte)).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_micros(20)).await;
    }
    read_all(&mut client).await;
    assert_eq!(lab.refusals(1).await, [Kind::BrokenHello]);
    assert_eq!(host.bytes(), 0);
}

/// A host that answers every hello by asking for another one, and keeps what it gets.
async fn asking_again() -> (TcpListener, Lab, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let direct = SocketAddr::from(([127, 18, 0, 1], at.port()));
    let lab = Setup::new().strict(NAME, at).direct(direct).limits(|limits| limits.handshake = Duration::from_secs(2));
    let lab = lab.start();
    lab.look_up(NAME, 1).await;
    (listener, lab, direct)
}

/// What a host says to be greeted again, and the record that may follow.
fn again() -> Vec<u8> {
    let random = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2,
        0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    server_hello(&random)
}

fn server_hello(random: &[u8; 32]) -> Vec<u8> {
    let body = [&[3, 3][..], random, &[0, 0x13, 1, 0, 0, 6, 0, 43, 0, 2, 3, 4]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 3, 0, length + 4, 2, 0, 0, length][..], &body, CHANGE].concat()
}

const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];

async fn three_ways(lab: &Lab, port: u16, direct: SocketAddr) -> [(Via, TcpStream); 3] {
    [
        (Via::Connect, lab.tunnel(&format!("{NAME}:{port}")).await.unwrap()),
        (Via::Socks5, lab.socks_to(NAME, port).await.unwrap()),
        (Via::Direct, TcpStream::connect(direct).await.unwrap()),
    ]
}

async fn expect(stream: &mut TcpStream, words: &[u8]) {
    let mut read = vec![0; words.len()];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(read, words);
}

#[tokio::test]
async fn a_second_hello_that_a_host_asks_for_names_the_host_as_well() {
    let (listener, lab, direct) = asking_again().await;
    let first = hello(&[named(NAME)]);
    let cases = [
        (hello(&[named("evil.com")]), Kind::WrongServerName),
        ([CHANGE, &hello(&[named("evil.com")])].concat(), Kind::WrongServerName),
        ([CHANGE, &[23, 3, 3, 0, 2, 22, 3], &hello(&[])].concat(), Kind::NoServerName),
        (hello(&[named(NAME), (0xfe0d, vec![0; 60])]), Kind::EncryptedHello),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Kind::BrokenHello),
    ];
    let mut count = 0;
    for (second, kind) in &cases {
        for (via, mut client) in three_ways(&lab, direct.port(), direct).await {
            let (mut host, _) = listener.accept().await.unwrap();
            client.write_all(&first).await.unwrap();
            expect(&mut host, &first).await;
            host.write_all(&again()).await.unwrap();
            expect(&mut client, &again()).await;
            client.write_all(second).await.unwrap();
            assert_eq!(read_all(&mut client).await, [21, 3, 3, 0, 2, 2, 49], "{via} {kind}");
            assert_eq!(host.read(&mut [0; 1]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
            count += 1;
            let last = lab.records(count).await.pop().unwrap();
            assert!(matches!(&last.outcome, ConnectionOutcome::Refused(why) if why.kind == *kind), "{last:?} {kind}");
            assert_eq!((last.via, last.sent), (via, first.len() as u64));
        }
    }
}

#[tokio::test]
async fn hellos_that_a_host_asks_for_pass_in_any_pieces_and_then_everything_does() {
    let (listener, lab, direct) = asking_again().await;
    let (words, last) = (hello(&[named(NAME)]), server_hello(&[9; 32]));
    for (via, mut client) in three_ways(&lab, direct.port(), direct).await {
        let (mut host, _) = listener.accept().await.unwrap();
        client.write_all(&words).await.unwrap();
        expect(&mut host, &words).await;
        for _ in 0..2 {
            for piece in again().chunks(20) {
                host.write_all(piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for piece in [CHANGE, &words].concat().chunks(50) {
                client.write_all(piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            expect(&mut host, &[CHANGE, &words].concat()).await;
            expect(&mut client, &again()).await;
        }
        host.write_all(&last).await.unwrap();
        expect(&mut client, &last).await;
        client.write_all(b"anything").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut host).await, b"anything", "{via}");
    }
}

#[tokio::test]
async fn a_real_client_that_is_asked_again_gets_through() {
    let (host, lab, direct) = strict().await;
    for (via, stream) in every_way(&host, &lab, direct).await {
        let mut provider = aws_lc_rs::default_provider();
        // It guesses a group that the host does not take.
        provider.kx_groups = vec![aws_lc_rs::kx_group::SECP384R1, aws_lc_rs::kx_group::X25519];
        let mut tls = host.greet_by(provider, stream, NAME).await.unwrap();
        tls.write_all(b"ping").await.unwrap();
        tls.read_exact(&mut [0; 4]).await.unwrap();
        assert_eq!(tls.get_ref().1.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest), "{via}");
    }
    lab.records(3).await;
}

#[tokio::test]
async fn a_second_hello_right_behind_the_first_is_refused() {
    let (listener, lab, direct) = asking_again().await;
    let (first, second) = (hello(&[named(NAME)]), hello(&[named("evil.com")]));
    for (_, mut client) in three_ways(&lab, direct.port(), direct).await {
        let (mut host, _) = listener.accept().await.unwrap();
        client.write_all(&[&first[..], CHANGE, &second].concat()).await.unwrap();
        assert_eq!(read_all(&mut client).await, [21, 3, 3, 0, 2, 2, 49]);
        let mut got = Vec::new();
        let _ = host.read_to_end(&mut got).await;
        assert!(got.is_empty() || got == first, "{got:?}");
    }
    assert_eq!(lab.refusals(3).await, [Kind::BrokenHello; 3]);
}

#[tokio::test]
async fn early_data_arrives_once_the_host_has_answered() {
    let (listener, lab, direct) = asking_again().await;
    let words = [&hello(&[named(NAME)])[..], CHANGE, &[23, 3, 3, 0, 3, 22, 3, 3]].concat();
    for (_, mut client) in three_ways(&lab, direct.port(), direct).await {
        let (mut host, _) = listener.accept().await.unwrap();
        client.write_all(&words).await.unwrap();
        expect(&mut host, &hello(&[named(NAME)])).await;
        host.write_all(&server_hello(&[9; 32])).await.unwrap();
        expect(&mut host, &words[hello(&[named(NAME)]).len()..]).await;
    }
}

#[tokio::test]
async fn a_client_that_ends_before_the_host_answers_is_passed_on_as_an_end() {
    let (listener, lab, direct) = asking_again().await;
    for (_, mut client) in three_ways(&lab, direct.port(), direct).await {
        let (mut host, _) = listener.accept().await.unwrap();
        let words = [&hello(&[named(NAME)])[..], &[21, 3, 3, 0, 2, 2, 80]].concat();
        client.write_all(&words).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut host).await, words);
        drop(host);
        assert_eq!(read_all(&mut client).await, b"");
    }
    assert!(lab.records(3).await.iter().all(|record| record.outcome == ConnectionOutcome::Closed));
}

#[tokio::test]
async fn a_client_that_is_asked_again_and_never_answers_is_refused_in_time() {
    let (listener, lab, direct) = asking_again().await;
    let mut client = TcpStream::connect(direct).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    client.write_all(&hello(&[named(NAME)])).await.unwrap();
    host.write_all(&again()).await.unwrap();
    read_all(&mut client).await;
    assert_eq!(lab.refusals(1).await, [Kind::TooSlow]);
}

#[tokio::test]
async fn a_rule_for_anything_lets_anything_pass() {
    let host = Host::echo().await;
    let lab = Setup::new().open(NAME, host.at).start();
    for words in [hello(&[named("evil.com")]), b"SSH-2.0".to_vec()] {
        let mut client = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
        client.write_all(&words).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, words);
    }
}

#[tokio::test]
async fn an_address_has_no_server_name_so_its_rule_says_any() {
    let host = Host::tls("127.0.0.1").await;
    let lab =
        Setup::new().rule(&format!("host = '127.0.0.1'; ports = [{}]; allow_private = true", host.port())).start();
    let stream = lab.tunnel(&format!("127.0.0.1:{}", host.port())).await.unwrap();
    assert!(host.greet(stream, "127.0.0.1").await.is_err());
    assert_eq!(lab.refusals(1).await, [Kind::NoServerName]);
}

/// Takes every other host that it is asked about, and counts what it is given.
#[derive(Default)]
struct Fickle {
    asked: AtomicUsize,
    given: AtomicUsize,
}

impl Interceptor for Fickle {
    fn intercepts(&self, _: &HostName, _: u16) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    }

    fn request(&self, _: &HostName, _: u16, _: &mut request::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        self.given.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Unchanged))
    }

    fn response(&self, _: &HostName, _: u16, _: &mut response::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        Ok(Box::new(Unchanged))
    }

    fn elsewhere(&self, _: &HostName, _: u16, _: &request::Parts) -> Result<Box<dyn BodyFilter>, EgressRefusal> {
        self.given.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Unchanged))
    }
}

#[tokio::test]
async fn an_interceptor_that_changes_its_mind_is_given_nothing_that_was_not_judged() {
    let host = Host::echo().await;
    let direct = SocketAddr::from(([127, 18, 0, 1], host.port()));
    let fickle = Arc::new(Fickle::default());
    let interceptor: Arc<dyn Interceptor> = Arc::<Fickle>::clone(&fickle);
    let lab = Setup::new().open(NAME, host.at).direct(direct).intercepted_by(interceptor).start();
    lab.look_up(NAME, 1).await;
    for _ in 0..4 {
        for (_, mut stream) in every_way(&host, &lab, direct).await {
            stream.write_all(b"no hello").await.unwrap();
            stream.shutdown().await.unwrap();
            read_all(&mut stream).await;
        }
    }
    assert_eq!(fickle.given.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_intercepted_connection_is_revoked_like_any_other() {
    let host = Host::echo().await;
    let lab = Setup::new().strict(NAME, host.at).intercepted_by(Arc::new(Fickle::default())).start();
    let mut client = lab.inside(NAME, host.port()).await;
    lab.keeper.revoke_everything();
    assert!(is_closed_within(client.get_mut().0, Duration::from_millis(500)).await);
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Revoked);
    assert_eq!(host.connections(), 0);
}
