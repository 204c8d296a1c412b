//! What a run may use, what happens to connections that are allowed no more, and whether bytes arrive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::time::{Duration, Instant};

use palyra_sandbox::egress::{ConnectionOutcome, EgressRefusalKind as Kind};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::egress_lab::{Setup, hosts::Host, is_closed_within, read_all};

#[tokio::test]
async fn a_connection_that_is_allowed_no_more_is_closed_at_once() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let mut tunnel = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    let mut socks = lab.socks_to("listed.example", host.port()).await.unwrap();
    for stream in [&mut tunnel, &mut socks] {
        stream.write_all(b"ping").await.unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
    }
    lab.keeper.change_nothing();
    assert!(!is_closed_within(&mut tunnel, Duration::from_millis(50)).await);
    let began = Instant::now();
    lab.keeper.revoke_everything();
    for stream in [&mut tunnel, &mut socks] {
        assert!(is_closed_within(stream, Duration::from_secs(5)).await);
    }
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    let records = lab.records(2).await;
    assert!(
        records.iter().all(|record| record.outcome == ConnectionOutcome::Revoked && record.sent == 4),
        "{records:?}"
    );
}

#[tokio::test]
async fn a_plain_exchange_that_is_allowed_no_more_is_closed_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let lab = Setup::new().open("listed.example", at).start();
    let mut client = lab.client().await;
    client.write_all(format!("GET http://listed.example:{}/ HTTP/1.1\r\n\r\n", at.port()).as_bytes()).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    host.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegin").await.unwrap();
    let mut beginning = [0; 60];
    while !beginning.windows(5).any(|five| five == b"begin") {
        assert!(client.read(&mut beginning).await.unwrap() > 0);
    }
    lab.keeper.revoke_everything();
    assert!(is_closed_within(&mut client, Duration::from_millis(500)).await);
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Revoked);
}

#[tokio::test]
async fn a_connection_that_is_revoked_while_it_opens_is_never_made() {
    let host = Host::echo().await;
    let lab = Setup::new().strict("listed.example", host.at).start();
    let mut client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    lab.keeper.revoke_everything();
    assert!(is_closed_within(&mut client, Duration::from_millis(500)).await);
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Revoked);
    assert_eq!(host.bytes(), 0);
}

#[tokio::test]
async fn an_end_in_one_direction_leaves_the_other_open() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let lab = Setup::new().open("listed.example", at).start();
    let mut client = lab.tunnel(&format!("listed.example:{}", at.port())).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut host).await, b"question");
    tokio::time::sleep(Duration::from_millis(50)).await;
    host.write_all(b"answer").await.unwrap();
    drop(host);
    assert_eq!(read_all(&mut client).await, b"answer");
    let records = lab.records(1).await;
    assert_eq!((records[0].outcome.clone(), records[0].sent, records[0].received), (ConnectionOutcome::Closed, 8, 6));
}

#[tokio::test]
async fn a_reset_is_passed_on_as_a_reset() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let lab = Setup::new().open("listed.example", at).start();
    let mut client = lab.tunnel(&format!("listed.example:{}", at.port())).await.unwrap();
    let (host, _) = listener.accept().await.unwrap();
    host.set_zero_linger().unwrap();
    drop(host);
    let error = client.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_arrives_intact_both_ways_at_once() {
    const LENGTH: usize = 64 << 20;
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    // A pattern whose period divides no buffer size.
    let pattern: Vec<u8> = (0..65_521_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sent = pattern.clone();
    let send = tokio::spawn(async move {
        let mut left = LENGTH;
        while left > 0 {
            let piece = left.min(sent.len());
            writer.write_all(&sent[..piece]).await.unwrap();
            left -= piece;
        }
        writer.shutdown().await.unwrap();
    });
    let (mut buffer, mut at) = (vec![0; 1 << 18], 0);
    loop {
        let read = reader.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        for byte in &buffer[..read] {
            assert_eq!(*byte, pattern[at % pattern.len()], "byte {at}");
            at += 1;
        }
    }
    send.await.unwrap();
    assert_eq!(at, LENGTH);
    let records = lab.records(1).await;
    assert_eq!((records[0].sent, records[0].received), (LENGTH as u64, LENGTH as u64));
}

#[tokio::test]
async fn silent_clients_keep_nobody_out() {
    let host = Host::echo().await;
    let lab = Setup::new().strict("strict.example", host.at).open("listed.example", host.at);
    let lab = lab.limits(|limits| (limits.concurrent, limits.queued, limits.half_open) = (4, 4, 4)).start();
    let mut silent = Vec::new();
    // More than there is room for, in every state in which a client can stop talking.
    for number in 0..24_u8 {
        let mut client = lab.client().await;
        let words: &[u8] = match number % 4 {
            0 => b"",
            1 => b"CONNECT listed.exa",
            2 => &[5],
            _ => &[5, 1, 0, 5, 1],
        };
        client.write_all(words).await.unwrap();
        silent.push(client);
    }
    let began = Instant::now();
    let mut client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    client.read_exact(&mut [0; 4]).await.unwrap();
    // Those before it in the kernel's queue push out one another after a moment each; nobody waits for a whole
    // handshake.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(silent);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_told_of_as_one_that_named_no_host() {
    let mut lab = Setup::new().limits(|limits| limits.handshake = Duration::from_millis(50)).start();
    let mut silent = lab.client().await;
    assert!(is_closed_within(&mut silent, Duration::from_secs(2)).await);
    lab.records(1).await;
    let told = palyra_sandbox::Reason::from(lab.finish().await.refusals.remove(0)).to_string();
    let expected = "a connection that named no host was refused: the client did not say in time what it wants";
    assert_eq!(told, expected);
}

#[tokio::test]
async fn tunnels_without_a_hello_make_room_for_others() {
    let host = Host::echo().await;
    let other = Host::echo().await;
    let lab = Setup::new().strict("strict.example", host.at).open("listed.example", other.at);
    let lab = lab.limits(|limits| limits.concurrent = 2).start();
    let strict = format!("strict.example:{}", host.port());
    let silent = [lab.tunnel(&strict).await.unwrap(), lab.tunnel(&strict).await.unwrap()];
    let began = Instant::now();
    let mut client = lab.tunnel(&format!("listed.example:{}", other.port())).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    client.write_all(b"ping").await.unwrap();
    client.read_exact(&mut [0; 4]).await.unwrap();
    assert_eq!(lab.refusals(1).await, [Kind::TooSlow]);
    drop(silent);
}

#[tokio::test]
async fn more_connections_than_allowed_are_refused() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).limits(|limits| {
        (limits.concurrent, limits.queued, limits.handshake) = (2, 1, Duration::from_millis(300));
    });
    let lab = lab.start();
    let authority = format!("listed.example:{}", host.port());
    let live = [lab.tunnel(&authority).await.unwrap(), lab.tunnel(&authority).await.unwrap()];
    assert_eq!(lab.tunnel(&authority).await.unwrap_err(), (403, "too_many_connections".to_owned()));
    assert_eq!(lab.socks_to("listed.example", host.port()).await.unwrap_err(), 1);
    // One that waits gets the place of one that ends.
    let [first, second] = live;
    let (waited, ()) = tokio::join!(lab.tunnel(&authority), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(first);
    });
    assert!(waited.is_ok());
    drop((second, waited));
    let records = lab.records(5).await;
    assert_eq!(records.iter().filter(|record| record.outcome == ConnectionOutcome::Closed).count(), 3);
}

#[tokio::test]
async fn a_run_has_so_many_names_looked_up_at_once_and_is_told_so() {
    let host = Host::http().await;
    let lab = Setup::new().open("listed.example", host.at).open("127.0.0.1", host.at);
    let lab = lab.waiting(Duration::from_millis(100)).limits(|limits| limits.lookups = 0).start();
    let authority = format!("listed.example:{}", host.port());
    assert_eq!(lab.tunnel(&authority).await.unwrap_err(), (403, "too_many_lookups".to_owned()));
    assert_eq!(lab.socks_to("listed.example", host.port()).await.unwrap_err(), 1);
    let request = format!("GET http://{authority}/ HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(lab.say(request.as_bytes()).await.contains("the run has as many names looked up as it may"));
    assert_eq!(lab.refusals(3).await, [Kind::TooManyLookups; 3]);
    // An address is not looked up.
    assert!(lab.tunnel(&format!("127.0.0.1:{}", host.port())).await.is_ok());
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn a_run_makes_so_many_connections_and_no_more() {
    let mut lab = Setup::new().limits(|limits| limits.total = 3).start();
    for _ in 0..3 {
        assert_eq!(lab.tunnel("example.org:443").await.unwrap_err().0, 403);
    }
    for _ in 0..2 {
        let mut client = lab.client().await;
        assert!(is_closed_within(&mut client, Duration::from_secs(2)).await);
    }
    let kinds = lab.refusals(5).await;
    assert_eq!(kinds[3..], [Kind::TooManyConnections; 2]);
    assert_eq!(lab.finish().await.refused, 5);
}

/// Programs could take all descriptors of the daemon by what they keep open.
#[tokio::test]
async fn clients_beyond_the_room_of_all_runs_wait_until_others_leave() {
    let host = Host::echo().await;
    let target = format!("listed.example:{}", host.at.port());
    let lab = Setup::new().open("listed.example", host.at).room(2).start();
    let (first, second) = (lab.tunnel(&target).await.unwrap(), lab.tunnel(&target).await.unwrap());
    let third = lab.tunnel(&target);
    tokio::pin!(third);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut third).await.is_err(), "there was no room");
    drop(first);
    assert!(tokio::time::timeout(Duration::from_secs(5), third).await.expect("there is room").is_ok());
    drop(second);
}

#[tokio::test]
async fn clients_that_break_off_at_any_moment_give_their_places_back() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).limits(|limits| limits.concurrent = 2).start();
    let request = format!("CONNECT listed.example:{} HTTP/1.1\r\n\r\n", host.port());
    let plain = format!("GET http://listed.example:{}/ HTTP/1.1\r\n\r\n", host.port());
    for round in 0..60_u64 {
        let mut client = lab.client().await;
        let words = if round % 3 == 0 { format!("{plain}{request}") } else { request.clone() };
        client.write_all(words.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_micros(50 * round)).await;
        if round % 2 == 0 {
            client.set_zero_linger().unwrap();
        }
    }
    for _ in 0..2 {
        let mut client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
        client.write_all(b"ping").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
    }
    let began = Instant::now();
    let live = [
        lab.tunnel(&format!("listed.example:{}", host.port())).await,
        lab.socks_to("listed.example", host.port()).await.map_err(|code| (0, code.to_string())),
    ];
    assert!(live.iter().all(Result::is_ok), "{live:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn requests_on_a_kept_connection_count_as_well() {
    let lab = Setup::new().limits(|limits| limits.total = 3).start();
    let mut client = lab.client().await;
    client.write_all(&b"GET / HTTP/1.1\r\n\r\n".repeat(10)).await.unwrap();
    let answer = String::from_utf8(read_all(&mut client).await).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 403").count(), 4, "{answer}");
    let expected = [Kind::NotSupported, Kind::NotSupported, Kind::NotSupported, Kind::TooManyConnections];
    assert_eq!(lab.refusals(4).await, expected);
}

#[tokio::test]
async fn refusals_beyond_the_limit_are_counted_and_not_noted() {
    let mut lab = Setup::new().limits(|limits| limits.notes = 5).start();
    for number in 0..20 {
        assert_eq!(lab.tunnel(&format!("host-{number}.example:443")).await.unwrap_err().0, 403);
    }
    for number in 0..20 {
        assert_eq!(lab.look_up(&format!("name-{number}.example"), 1).await.0, 3);
    }
    lab.records(5).await;
    let summary = lab.finish().await;
    assert_eq!((summary.refused, summary.refusals.len()), (40, 16));
}

#[tokio::test]
async fn what_was_sent_is_on_record_though_nobody_waited_for_an_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut lab = Setup::new().open("listed.example", at).limits(|limits| limits.notes = 3).start();
    // Names that are refused use up the notes.
    for number in 0..5 {
        assert_eq!(lab.look_up(&format!("name-{number}.example"), 1).await.0, 3);
    }
    let head = format!("POST http://listed.example:{}/ HTTP/1.1\r\nContent-Length: 6\r\n\r\n", at.port());
    for number in 0..10 {
        let mut client = lab.client().await;
        client.write_all(format!("{head}secret").as_bytes()).await.unwrap();
        let (mut host, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"secret") {
            assert!(host.read_buf(&mut got).await.unwrap() > 0);
        }
        drop(client);
        let last = lab.records(3 + number + 1).await.pop().unwrap();
        assert_eq!((last.outcome, last.address, last.sent), (ConnectionOutcome::Failed, Some(at), got.len() as u64));
    }
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused), (10, 5));
}

#[tokio::test]
async fn a_connection_that_is_refused_once_it_is_made_is_always_on_record() {
    let host = Host::echo().await;
    let direct = std::net::SocketAddr::from(([127, 18, 0, 1], host.port()));
    let lab = Setup::new().strict("strict.example", host.at).direct(direct);
    let mut lab = lab.limits(|limits| limits.notes = 0).start();
    lab.look_up("strict.example", 1).await;
    assert_eq!(lab.tunnel("other.example:443").await.unwrap_err().0, 403);
    let clients = [
        lab.tunnel(&format!("strict.example:{}", host.port())).await.unwrap(),
        lab.socks_to("strict.example", host.port()).await.unwrap(),
        TcpStream::connect(direct).await.unwrap(),
    ];
    for (number, mut client) in clients.into_iter().enumerate() {
        // So that a direct client has been connected to its host by then.
        while host.connections() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.write_all(b"SSH-2.0-client\r\n").await.unwrap();
        read_all(&mut client).await;
        let last = lab.records(number + 1).await.pop().unwrap();
        assert!(matches!(last.outcome, ConnectionOutcome::Refused(ref refusal) if refusal.kind == Kind::NoTls));
        assert_eq!(last.address, Some(host.at));
    }
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused), (3, 4));
}

#[tokio::test]
async fn a_connection_on_which_nothing_happens_ends() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at);
    let lab = lab.limits(|limits| limits.idle = Duration::from_millis(200)).start();
    let mut client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    let began = Instant::now();
    for _ in 0..4 {
        client.write_all(b"x").await.unwrap();
        client.read_exact(&mut [0; 1]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_closed_within(&mut client, Duration::from_secs(5)).await);
    assert!(began.elapsed() > Duration::from_millis(450));
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Failed);
}

#[tokio::test]
async fn finishing_closes_everything_and_every_connection_is_noted() {
    let host = Host::echo().await;
    let mut lab = Setup::new().open("listed.example", host.at).strict("strict.example", host.at).start();
    let authority = format!("listed.example:{}", host.port());
    let mut clients = vec![lab.tunnel(&authority).await.unwrap(), lab.client().await];
    clients.push(lab.socks_to("listed.example", host.port()).await.unwrap());
    clients[0].write_all(b"ping").await.unwrap();
    clients[0].read_exact(&mut [0; 4]).await.unwrap();
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused, summary.sent), (2, 0, 4));
    assert_eq!(lab.keeper.records.lock().unwrap().len(), 2);
    for client in &mut clients {
        assert!(is_closed_within(client, Duration::from_secs(2)).await);
    }
    assert!(TcpStream::connect(lab.proxy).await.is_err());
}

#[tokio::test]
async fn dropping_closes_everything_too() {
    let host = Host::echo().await;
    let mut lab = Setup::new().open("listed.example", host.at).start();
    let mut client = lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap();
    lab.drop_server();
    assert!(is_closed_within(&mut client, Duration::from_secs(2)).await);
    lab.records(1).await;
    assert!(TcpStream::connect(lab.proxy).await.is_err());
}
