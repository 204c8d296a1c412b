//! SOCKS5, from the side of the program inside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use palyra_sandbox::egress::{ConnectionOutcome, EgressRefusalKind as Kind, Via};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::egress_lab::{Setup, hosts::Host, read_all};

#[tokio::test]
async fn a_connection_carries_bytes_to_an_allowed_host() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let mut client = lab.socks_to("Listed.example", host.port()).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await, b"ping");
    let records = lab.records(1).await;
    assert_eq!((records[0].outcome.clone(), records[0].via), (ConnectionOutcome::Closed, Via::Socks5));
    assert_eq!((records[0].sent, records[0].received), (4, 4));
}

#[tokio::test]
async fn a_client_that_resolves_names_itself_gives_the_synthetic_address() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let (_, addresses) = lab.look_up("listed.example", 1).await;
    let mut client = lab.socks(&[&[1][..], &addresses[0].octets()].concat(), host.port()).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    client.read_exact(&mut [0; 4]).await.unwrap();
    assert_eq!(lab.keeper.decided.lock().unwrap()[0], format!("listed.example:{}", host.port()));
    // An address that was not given out is only itself.
    assert_eq!(lab.socks(&[1, 127, 18, 0, 99], host.port()).await.unwrap_err(), 2);
}

#[tokio::test]
async fn names_and_addresses_are_refused_by_what_they_are() {
    let lab = Setup::new().rule("host = 'listed.com'; ports = [443]").start();
    for name in ["evil.com", "listed.com.evil.com", "127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(lab.socks_to(name, 443).await.unwrap_err(), 2, "{name}");
    }
    let disguises = [
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "listed.com.",
        "listed.com\0",
        "listed.com\r\n",
        "",
        "[127.0.0.1]",
    ];
    for name in disguises {
        assert_eq!(lab.socks_to(name, 443).await.unwrap_err(), 2, "{name:?}");
    }
    assert_eq!(lab.socks(&[1, 127, 0, 0, 1], 443).await.unwrap_err(), 2);
    let mapped = [&[4][..], &[0; 10], &[0xff, 0xff, 127, 0, 0, 1]].concat();
    assert_eq!(lab.socks(&mapped, 443).await.unwrap_err(), 2);
    assert_eq!(lab.socks_to("listed.com", 22).await.unwrap_err(), 2);
    assert_eq!(lab.socks_to("listed.com", 0).await.unwrap_err(), 1);
    let kinds = lab.refusals(18).await;
    assert_eq!(kinds[..5], [Kind::NotListed; 5]);
    assert_eq!(kinds[5..14], [Kind::NotAHost; 9]);
    assert_eq!(kinds[14..], [Kind::NotListed, Kind::NotListed, Kind::PortNotListed, Kind::BadRequest]);
    let decided = lab.keeper.decided.lock().unwrap().clone();
    assert_eq!(decided.iter().filter(|one| *one == "127.0.0.1:443").count(), 4);
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn what_is_not_offered_is_refused_with_the_code_that_says_so() {
    let lab = Setup::new().rule("host = 'listed.com'").start();
    let conversations: [(&[u8], &[u8]); 7] = [
        // BIND, UDP ASSOCIATE, a command that is none, an address type that is none.
        (&[5, 1, 0, 5, 2, 0, 1, 1, 1, 1, 1, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 9, 0, 1, 0, 0, 0, 0, 0, 1], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 1, 0, 2, 0, 0, 0, 0, 0, 1], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
        // Only authentication by name and password; no method at all.
        (&[5, 1, 2], &[5, 0xff]),
        (&[5, 0], &[5, 0xff]),
        // SOCKS4.
        (&[4, 1, 0, 80, 127, 0, 0, 1, 0], &[0, 91, 0, 0, 0, 0, 0, 0]),
    ];
    for (words, expected) in conversations {
        let mut client = lab.client().await;
        client.write_all(words).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, expected, "{words:?}");
    }
    assert_eq!(lab.refusals(7).await, [Kind::NotSupported; 7]);
}

#[tokio::test]
async fn a_conversation_may_come_byte_by_byte_and_may_be_broken_off_anywhere() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let words = [&[5, 1, 0, 5, 1, 0, 3, 14][..], b"listed.example", &host.port().to_be_bytes(), b"x"].concat();
    let mut client = lab.client().await;
    for byte in &words {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 13];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0, b'x']);
    drop(client);
    for length in 1..words.len() - 2 {
        let mut client = lab.client().await;
        client.write_all(&words[..length]).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = read_all(&mut client).await;
    }
    assert_eq!(host.connections(), 1);
}

#[tokio::test]
async fn noise_reaches_nothing_and_never_hangs() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let mut seed = 1_u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    for round in 0..200_usize {
        let good = [5, 1, 0, 5, 1, 0, 3, 14];
        let noise: Vec<u8> = (0..40).map(|_| next()).collect();
        let words = [&good[..round % (good.len() + 1)], &noise].concat();
        let mut client = lab.client().await;
        let _ = client.write_all(&words).await;
        let _ = client.shutdown().await;
        read_all(&mut client).await;
    }
    assert_eq!(host.connections(), 0);
    assert!(lab.socks_to("listed.example", host.port()).await.is_ok());
}
