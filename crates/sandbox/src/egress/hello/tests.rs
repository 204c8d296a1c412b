//! Hellos of a real client, hellos made by hand, and noise.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs};

use super::*;

fn real_hello(server: &str) -> Vec<u8> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let roots = RootCertStore::empty();
    let mut config =
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client = ClientConnection::new(Arc::new(config), server.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn name(server: &str) -> Vec<u8> {
    extension(0, &vector16(&[&[0][..], &vector16(server.as_bytes())].concat()))
}

fn hello_message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let head = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
    let body = [head, vector16(&extensions.concat())].concat();
    [&[1, 0][..], &vector16(&body)].concat()
}

fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector16(content)].concat()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    record(&hello_message(extensions))
}

fn named(server: &str) -> Reading {
    Reading::Hello(ClientHello { server_name: Some(server.as_bytes().to_vec()), is_encrypted: false, length: 0 })
}

/// What is read, whatever its length.
fn read(bytes: &[u8]) -> Reading {
    match super::read(bytes) {
        Reading::Hello(hello) => Reading::Hello(ClientHello { length: 0, ..hello }),
        other => other,
    }
}

/// A server hello with this random number.
fn answered(random: &[u8; 32]) -> Vec<u8> {
    let body = [&[3, 3][..], random, &[0, 0x13, 1, 0], &vector16(&extension(43, &[3, 4]))].concat();
    [&[2, 0][..], &vector16(&body)].concat()
}

#[test]
fn the_hello_of_a_real_client_is_understood() {
    assert_eq!(read(&real_hello("api.example.org")), named("api.example.org"));
    assert_eq!(
        read(&real_hello("192.0.2.7")),
        Reading::Hello(ClientHello { server_name: None, is_encrypted: false, length: 0 })
    );
}

#[test]
fn every_beginning_of_a_hello_waits_for_more() {
    let bytes = real_hello("api.example.org");
    for length in 0..bytes.len() {
        assert_eq!(read(&bytes[..length]), Reading::More, "{length} bytes");
    }
}

#[test]
fn a_hello_may_be_split_over_records_of_any_size() {
    let message = real_hello("api.example.org")[5..].to_vec();
    for size in [1, 2, 3, 7, 50, 200] {
        let split: Vec<u8> = message.chunks(size).flat_map(record).collect();
        assert_eq!(read(&split), named("api.example.org"), "records of {size} bytes");
        assert_eq!(read(&split[..split.len() - 1]), Reading::More);
    }
}

#[test]
fn early_data_behind_the_hello_is_left_alone() {
    let early = [real_hello("api.example.org"), vec![23, 3, 3, 0, 1, 9]].concat();
    assert_eq!(read(&early), named("api.example.org"));
}

#[test]
fn a_hello_ends_where_its_last_record_does() {
    let message = hello_message(&[name("a.org")]);
    for size in [1, 7, 500] {
        let split: Vec<u8> = message.chunks(size).flat_map(record).collect();
        let Reading::Hello(read) = super::read(&[&split[..], &hello(&[name("b.org")])].concat()) else { panic!() };
        assert_eq!(read.length, split.len());
    }
}

#[test]
fn the_next_message_is_found_behind_early_data() {
    let between = [20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 3, 22, 3, 3];
    assert_eq!(next_message(&[&between[..], &hello(&[])].concat()), Ok(Some(between.len())));
    for length in 0..=between.len() {
        assert_eq!(next_message(&between[..length]), Ok(None), "{length} bytes");
    }
    assert_eq!(next_message(&[22]), Ok(Some(0)));
    assert!(next_message(&[23, 3, 3, 0, 0, b'G']).is_err());
}

#[test]
fn a_host_that_asks_for_another_hello_is_told_from_one_that_answers() {
    let (again, settled) = (answered(&RETRY), answered(&[9; 32]));
    for size in [1, 5, 38, 500] {
        let split = |message: &[u8]| message.chunks(size).flat_map(record).collect::<Vec<u8>>();
        let warned = [&[21, 3, 3, 0, 2, 1, 112][..], &split(&again)].concat();
        for length in 0..warned.len() {
            assert_eq!(answer(&warned[..length]), Answer::More, "{length} bytes of records of {size}");
        }
        assert_eq!(answer(&[&warned[..], &[20, 3, 3, 0, 1, 1]].concat()), Answer::Again(warned.len()));
        assert_eq!(answer(&split(&settled)), Answer::Settled);
    }
    // The certificate may follow in the same record, and may be far from complete.
    let beginning = [&[22, 3, 3, 0x20, 0][..], &settled].concat();
    assert_eq!(answer(&beginning), Answer::Settled);
    for other in [&b"HTTP/1.1 400"[..], &hello(&[]), &[0]] {
        assert_eq!(answer(other), Answer::Settled);
    }
}

#[test]
fn an_encrypted_hello_is_seen() {
    for kind in [0xfe0d, 0xffce] {
        let expected = ClientHello { server_name: Some(b"a.org".to_vec()), is_encrypted: true, length: 0 };
        assert_eq!(read(&hello(&[name("a.org"), extension(kind, &[1, 2, 3])])), Reading::Hello(expected));
    }
}

#[test]
fn what_is_no_tls_is_told_at_once() {
    for bytes in
        [&b"G"[..], b"GET / HTTP/1.1\r\n", b"SSH-2.0", &[0x80, 0x2e, 1, 3, 1], &[22, 2], &[21, 3, 1, 0, 2], &[0]]
    {
        assert_eq!(read(bytes), Reading::NotTls, "{bytes:?}");
    }
}

#[test]
fn a_hello_that_two_readers_could_understand_differently_is_broken() {
    let two_names = [&[0][..], &vector16(b"a.org"), &[0], &vector16(b"b.org")].concat();
    let mut followed = hello_message(&[name("a.org")]);
    followed.extend([1, 0, 0, 0]);
    let mut alert_between = record(&hello_message(&[name("a.org")])[..20]);
    alert_between.extend([21, 3, 1, 0, 2, 1, 0]);
    for bytes in [
        hello(&[name("a.org"), name("b.org")]),
        hello(&[name("a.org"), extension(10, &[]), extension(10, &[])]),
        hello(&[extension(0, &vector16(&two_names))]),
        hello(&[extension(0, &[])]),
        hello(&[extension(0, &[0, 0])]),
        hello(&[extension(0, &vector16(&[&[1][..], &vector16(b"a.org")].concat()))]),
        hello(&[extension(0, &vector16(&[&[0][..], &vector16(b"")].concat()))]),
        hello(&[extension(0, &[&vector16(&[&[0][..], &vector16(b"a.org")].concat())[..], &[0]].concat())]),
        record(&followed),
        alert_between,
        record(&[2, 0, 0, 0]),
        vec![22, 3, 1, 0, 0],
        vec![22, 3, 1, 0x40, 1],
        record(&[1, 0, 0x40, 1]),
        record(&[1, 0, 0, 0]),
        record(&[1, 0, 0, 1, 2]),
    ] {
        assert!(matches!(read(&bytes), Reading::Broken(_)), "{:?} {bytes:?}", read(&bytes));
    }
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes);
        let _ = read(&record(&bytes));
        let _ = parse(&bytes);
        let _ = (next_message(&bytes), answer(&bytes), answer(&record(&[&[2][..], &bytes].concat())));
    }

    #[test]
    fn a_real_hello_with_one_byte_changed_never_panics(at in 0_usize..200, to in any::<u8>()) {
        let mut bytes = hello(&[name("api.example.org"), extension(43, &[2, 3, 4]), extension(0xfe0d, &[0; 40])]);
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = read(&bytes);
    }

    #[test]
    fn what_follows_never_changes_what_was_read(server in "[a-z]{1,20}\\.org", tail in proptest::collection::vec(any::<u8>(), 0..50)) {
        let bytes = hello(&[name(&server)]);
        prop_assert_eq!(read(&[bytes, tail].concat()), named(&server));
    }
}
