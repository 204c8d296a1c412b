//! Connections that an interceptor looks into: what the host gets, what the client gets, and what neither does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use palyra_sandbox::egress::{ConnectionOutcome, EgressRefusalKind as Kind, Interceptor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    egress_lab::{
        self, Lab, Setup, header,
        hosts::{Host, greet},
        read_all, read_head, status_of,
    },
    interceptors::{
        PLACEHOLDER, SECRET, Vault,
        talk::{NAME, ask, chunk, get, host, response},
    },
};

/// A run with a vault for the host, which is trusted.
fn lab(host: &Host) -> (Lab, Arc<Vault>) {
    lab_with(host, |setup| setup)
}

fn lab_with(host: &Host, change: impl FnOnce(Setup) -> Setup) -> (Lab, Arc<Vault>) {
    let vault = Arc::new(Vault::of(&[NAME]));
    let interceptor: Arc<dyn Interceptor> = Arc::<Vault>::clone(&vault);
    let setup = Setup::new().strict(NAME, host.at).intercepted_by(interceptor).trusting(host.certificate());
    (change(setup).start(), vault)
}

const OK: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"];

#[tokio::test]
async fn the_host_gets_the_secret_and_the_client_sees_neither_it_nor_another_certificate() {
    let (host, heard) =
        host(&[&["HTTP/1.1 200 OK\r\nx-hidden: 1\r\ncontent-length: 22\r\n\r\nyou sent s3cr3t-value!"]]).await;
    let (mut lab, vault) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let request =
        get(&host, &format!("Authorization: Bearer {PLACEHOLDER}\r\nAccept-Encoding: gzip\r\nTE: trailers\r\n"));
    let (head, body) = ask(&mut client, &request).await;
    assert_eq!((status_of(&head), body.as_str()), (200, "you sent ************!"));
    assert_eq!(header(&head, "x-hidden"), None);
    let expected = format!(
        "GET / HTTP/1.1\r\nhost: {NAME}:{}\r\nauthorization: Bearer {SECRET}\r\naccept-encoding: identity\r\n\r\n",
        host.port()
    );
    assert_eq!(heard.text().to_lowercase(), expected.to_lowercase());
    assert_eq!(vault.asked.load(Ordering::Relaxed), 1);
    drop(client);
    let record = lab.records(1).await.pop().unwrap();
    assert_eq!((record.outcome, record.address), (ConnectionOutcome::Closed, Some(host.at)));
    assert!(record.sent > 100 && record.received > 100);
    assert_eq!(lab.finish().await.connections, 1);
}

#[tokio::test]
async fn a_client_is_shown_a_certificate_of_the_runs_own_authority_and_no_other() {
    let (host, _) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let authority = format!("{NAME}:{}", host.port());
    let real = lab.tunnel(&authority).await.unwrap();
    assert!(greet(real, NAME, Some(host.certificate())).await.is_err());
    let another = self::lab(&host).0;
    let stream = lab.tunnel(&authority).await.unwrap();
    assert!(greet(stream, NAME, Some(another.trusted())).await.is_err());
    assert_eq!(host.connections(), 0);
}

#[tokio::test]
async fn other_hosts_are_not_looked_into() {
    let (host, _) = host(&[OK]).await;
    let other = Host::tls("other.example").await;
    let (lab, vault) = lab_with(&host, |setup| setup.strict("other.example", other.at));
    let stream = lab.tunnel(&format!("other.example:{}", other.port())).await.unwrap();
    let mut tls = other.greet(stream, "other.example").await.unwrap();
    tls.write_all(PLACEHOLDER.as_bytes()).await.unwrap();
    let mut echoed = vec![0; PLACEHOLDER.len()];
    tls.read_exact(&mut echoed).await.unwrap();
    assert_eq!((echoed, vault.asked.load(Ordering::Relaxed)), (PLACEHOLDER.as_bytes().to_vec(), 0));
}

#[tokio::test]
async fn what_is_not_tls_for_the_host_is_never_looked_into_whatever_its_rule_says() {
    let (host, heard) = host(&[OK]).await;
    let vault = Arc::new(Vault::of(&[NAME]));
    let interceptor: Arc<dyn Interceptor> = Arc::<Vault>::clone(&vault);
    let lab = Setup::new().open(NAME, host.at).intercepted_by(interceptor).start();
    let mut client = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    read_all(&mut client).await;
    let plain = format!("GET http://{NAME}:{}/ HTTP/1.1\r\nConnection: close\r\n\r\n", host.port());
    assert!(lab.say(plain.as_bytes()).await.contains("no_tls"));
    let stream = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
    assert!(greet(stream, "evil.example", Some(lab.trusted())).await.is_err());
    assert_eq!(lab.refusals(3).await, [Kind::NoTls, Kind::NoTls, Kind::WrongServerName]);
    assert_eq!((host.connections(), heard.text(), vault.asked.load(Ordering::Relaxed)), (0, String::new(), 0));
}

#[tokio::test]
async fn each_request_of_a_kept_connection_has_a_verdict_of_its_own_and_shares_the_way_to_the_host() {
    let (host, heard) = host(&[OK, OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, &format!("X-Other: {PLACEHOLDER}\r\n"))).await;
    assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (403, Some("secret_misplaced")));
    assert!(
        body.starts_with("Palyra refused this connection: the placeholder of `one` stands where no binding"),
        "{body}"
    );
    assert_eq!(host.connections(), 0);
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    let refused = ask(&mut client, &get(&host, &format!("Cookie: {PLACEHOLDER}\r\n"))).await;
    assert_eq!(status_of(&refused.0), 403);
    assert_eq!(ask(&mut client, &get(&host, "X-Last: 1\r\n")).await.1, "ok");
    drop(client);
    let outcomes: Vec<_> = lab.records(3).await.into_iter().map(|record| (record.outcome, record.sent > 0)).collect();
    let is_refused = |outcome: &ConnectionOutcome| matches!(outcome, ConnectionOutcome::Refused(why) if why.kind == Kind::SecretMisplaced);
    assert!(is_refused(&outcomes[0].0) && is_refused(&outcomes[1].0) && !outcomes[0].1 && !outcomes[1].1);
    assert_eq!(outcomes[2], (ConnectionOutcome::Closed, true));
    assert_eq!(host.connections(), 1);
    assert!(!heard.text().contains(PLACEHOLDER));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (host, _) = host(&[OK, &["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast"]]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let all = [get(&host, ""), get(&host, &format!("X: {PLACEHOLDER}\r\n")), get(&host, "")].concat();
    client.write_all(all.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (head, body) = response(&mut client).await;
        seen.push((status_of(&head), body.chars().take(4).collect::<String>()));
    }
    assert_eq!(seen, [(200, "ok".to_owned()), (403, "Paly".to_owned()), (200, "last".to_owned())]);
}

#[tokio::test]
async fn a_placeholder_split_over_chunks_is_refused_and_the_host_never_gets_a_whole_request() {
    let (host, heard) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let head = format!("POST /up HTTP/1.1\r\nHost: {NAME}:{}\r\nTransfer-Encoding: chunked\r\n\r\n", host.port());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b"5\r\nfirst\r\n").await.unwrap();
    client.flush().await.unwrap();
    heard.until("first").await;
    let (half, rest) = PLACEHOLDER.split_at(7);
    for part in [half, rest, "more"] {
        client.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.unwrap();
        client.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let (head, body) = response(&mut client).await;
    assert_eq!(
        (status_of(&head), header(&head, "x-palyra-refused").as_deref()),
        (403, Some("secret_misplaced")),
        "{body}"
    );
    heard.until_gone().await;
    let got = heard.text();
    assert!(got.contains("first") && !got.contains(half) && !got.contains("0\r\n\r\n"), "{got}");
    drop(client);
    let records = lab.records(2).await;
    assert!(matches!(&records[0].outcome, ConnectionOutcome::Refused(why) if why.kind == Kind::SecretMisplaced));
    assert!(records[1].sent > 0);
}

#[tokio::test]
async fn a_body_of_known_length_is_held_back_at_its_end_until_it_was_judged() {
    let (host, heard) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let length = 6 + PLACEHOLDER.len();
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}:{}\r\nContent-Length: {length}\r\n\r\nbefore", host.port());
    client.write_all(head.as_bytes()).await.unwrap();
    client.flush().await.unwrap();
    heard.until("before").await;
    client.write_all(PLACEHOLDER.as_bytes()).await.unwrap();
    assert_eq!(status_of(&response(&mut client).await.0), 403);
    heard.until_gone().await;
    assert!(heard.text().ends_with("before"), "{}", heard.text());
}

#[tokio::test]
async fn a_body_whose_length_changes_is_collected_and_sent_with_its_new_length() {
    let (host, heard) = host(&[OK, OK]).await;
    let (lab, _) = lab_with(&host, |setup| setup.limits(|limits| limits.collected_bytes = 1000));
    let mut client = lab.inside(NAME, host.port()).await;
    let body = format!("{{\"key\": \"{PLACEHOLDER}\"}}");
    let swapped = body.replace(PLACEHOLDER, SECRET);
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}:{}\r\nX-Swap: 1\r\n", host.port());
    let known = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(ask(&mut client, &known).await.1, "ok");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    assert_eq!(ask(&mut client, &chunked).await.1, "ok");
    let expected = format!("content-length: {}\r\n", swapped.len());
    let got = heard.text();
    assert_eq!((got.matches(&expected).count(), got.matches(&swapped).count()), (2, 2), "{got}");
    assert!(!got.contains("chunked") && !got.contains("x-swap"));
    let long = format!("{head}Content-Length: 2000\r\n\r\n{}", "x".repeat(2000));
    let (head, _) = ask(&mut client, &long).await;
    assert_eq!(header(&head, "x-palyra-refused").as_deref(), Some("cannot_be_read"));
    assert!(!heard.text().contains("xxx"));
}

#[tokio::test]
async fn an_encoded_answer_is_not_passed_on() {
    let gzip: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"];
    let twice: &[&str] = &["HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"];
    let plain: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-length: 2\r\n\r\nok"];
    let answers: &[&[&str]] = &[gzip, twice, plain];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    for encoding in ["gzip", "gzip"] {
        let (head, body) = ask(&mut client, &get(&host, "")).await;
        assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (502, Some("cannot_be_read")));
        assert!(body.contains(&format!("`{NAME}` encoded its answer as `{encoding}` unasked")), "{body}");
    }
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    drop(client);
    assert_eq!(lab.records(3).await.iter().filter(|one| one.outcome != ConnectionOutcome::Closed).count(), 2);
}

#[tokio::test]
async fn an_answer_that_is_refused_is_not_passed_on() {
    let (host, _) = host(&[&["HTTP/1.1 200 OK\r\nx-refuse-me: 1\r\ncontent-length: 2\r\n\r\nok"], OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, "")).await;
    assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (403, Some("secret_unavailable")));
    assert!(!body.contains("ok\n"), "{body}");
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
}

#[tokio::test]
async fn an_answer_is_masked_in_whatever_pieces_it_comes_and_may_grow() {
    let answer: &[&str] =
        &["HTTP/1.1 200 OK\r\nx-longer: 1\r\ncontent-length: 20\r\n\r\nit: s3cr", "3t-val", "ue s3cr"];
    let answers: &[&[&str]] = &[answer, OK];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, "")).await;
    assert_eq!(body, "it: <hidden by a test> s3c", "{head}");
    assert_eq!(header(&head, "content-length"), None);
}

#[tokio::test]
async fn events_flow_as_they_come() {
    let answer: &'static [&str] = &[
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        "8\r\ndata: 1\n\r\n",
        "8\r\ndata: 2\n\r\n",
        "0\r\nx-trailer: s3cr3t-value\r\n\r\n",
    ];
    let (gate, held) = tokio::sync::watch::channel(0_usize);
    let (config, certificate) = egress_lab::hosts::server_config(NAME);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let mut held = held;
        for (number, piece) in answer.iter().enumerate() {
            held.wait_for(|&open| open >= number).await.unwrap();
            stream.write_all(piece.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    let vault = Arc::new(Vault::of(&[NAME]));
    let lab = Setup::new().strict(NAME, at).intercepted_by(vault).trusting(certificate).start();
    let mut client = lab.inside(NAME, at.port()).await;
    client.write_all(format!("GET / HTTP/1.1\r\nHost: {NAME}:{}\r\n\r\n", at.port()).as_bytes()).await.unwrap();
    let flows = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        for wanted in ["data: 1\n", "data: 2\n"] {
            gate.send_modify(|open| *open += 1);
            assert_eq!(chunk(&mut client).await.unwrap(), wanted.as_bytes());
        }
        gate.send_modify(|open| *open += 1);
        let mut end = [0; 5];
        client.read_exact(&mut end).await.unwrap();
        assert_eq!(&end, b"0\r\n\r\n");
    };
    timeout(Duration::from_secs(10), flows).await.unwrap();
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let answers: &[&[&str]] = &[
        &["HTTP/1.1 200 OK\r\ncontent-length: 1234\r\ncontent-encoding: gzip\r\n\r\n"],
        &["HTTP/1.1 204 No Content\r\n\r\n"],
        &["HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n"],
        &["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"],
        OK,
    ];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let head = get(&host, "").replace("GET", "HEAD");
    let (head, _) = ask(&mut client, &head).await;
    assert_eq!((status_of(&head), header(&head, "content-length").as_deref()), (200, Some("1234")));
    for status in [204, 304, 200] {
        let (head, body) = ask(&mut client, &get(&host, "")).await;
        assert_eq!((status_of(&head), body.as_str()), (status, ""), "{head}");
    }
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    assert_eq!(host.connections(), 1);
}

#[tokio::test]
async fn interim_answers_are_swallowed_and_no_protocol_is_switched() {
    let answers: &[&[&str]] = &[
        &["HTTP/1.1 103 Early Hints\r\nlink: s3cr3t-value\r\n\r\n", OK[0]],
        &["HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
        OK,
    ];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, "")).await;
    assert_eq!((status_of(&head), body.as_str()), (200, "ok"));
    let (head, _) = ask(&mut client, &get(&host, "")).await;
    assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (502, Some("unreachable")));
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
}

#[tokio::test]
async fn a_flood_of_interim_answers_is_not_waited_for() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(200);
    let answers: &[&[&str]] = &[&[&interim]];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    assert_eq!(status_of(&ask(&mut client, &get(&host, "")).await.0), 502);
}

#[tokio::test]
async fn trailers_of_a_request_are_dropped() {
    let (host, heard) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {NAME}:{}\r\nTrailer: x-late\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nx-late: {PLACEHOLDER}\r\n\r\n",
        host.port()
    );
    assert_eq!(ask(&mut client, &request).await.1, "ok");
    assert!(!heard.text().contains("x-late"), "{}", heard.text());
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_go_on_is_told() {
    let (host, heard) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let head =
        format!("POST / HTTP/1.1\r\nHost: {NAME}:{}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", host.port());
    client.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(status_of(&response(&mut client).await.0), 100);
    assert_eq!(ask(&mut client, "body").await.1, "ok");
    assert!(!heard.text().to_lowercase().contains("expect"));
}

#[tokio::test]
async fn a_request_for_anything_but_the_host_is_refused_and_the_host_is_not_even_reached() {
    let (host, _) = host(&[]).await;
    let (lab, vault) = lab(&host);
    let own = format!("{NAME}:{}", host.port());
    let cases = [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "wrong_host_header"),
        (format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n"), "wrong_host_header"),
        (format!("GET / HTTP/1.1\r\nHost: user@{own}\r\n\r\n"), "wrong_host_header"),
        (format!("GET / HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\n\r\n"), "wrong_host_header"),
        (format!("GET / HTTP/1.1\r\nHost: {own}, evil.example\r\n\r\n"), "wrong_host_header"),
        ("GET / HTTP/1.1\r\nAccept: */*\r\n\r\n".to_owned(), "wrong_host_header"),
        (format!("GET https://evil.example/ HTTP/1.1\r\nHost: {own}\r\n\r\n"), "wrong_host_header"),
        (format!("GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n"), "wrong_host_header"),
        (format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n"), "not_supported"),
        (
            format!("GET / HTTP/1.1\r\nHost: {own}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
            "not_supported",
        ),
    ];
    for (number, (request, kind)) in cases.iter().enumerate() {
        let mut client = lab.inside(NAME, host.port()).await;
        let (head, _) = ask(&mut client, request).await;
        assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (403, Some(*kind)), "{request}");
        drop(client);
        assert!(matches!(lab.records(number + 1).await[number].outcome, ConnectionOutcome::Refused(_)));
    }
    assert_eq!((host.connections(), vault.asked.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn nothing_is_smuggled_past_the_verdict() {
    let own = |host: &Host| format!("{NAME}:{}", host.port());
    // What two programs could read differently: each arrives as one request that can be read in one way, or not at all.
    for (framing, body) in [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Transfer-Encoding: xchunked", "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity", "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Content-Length: 0\r\nContent-Length: 40", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Content-Length: +0", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Content-Length : 40", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("X: a\r\n Transfer-Encoding: chunked", "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Connection: content-length\r\nContent-Length: 2", "okGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("Connection: host", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("X: a\rHost: evil.example", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let (host, heard) = host(&[OK, OK]).await;
        let (lab, _) = lab(&host);
        let mut client = lab.inside(NAME, host.port()).await;
        let request = format!("POST /first HTTP/1.1\r\nHost: {}\r\n{framing}\r\n\r\n{body}", own(&host));
        client.write_all(request.as_bytes()).await.unwrap();
        let (head, _) = response(&mut client).await;
        let first = status_of(&head);
        let second = if first == 200 { status_of(&response(&mut client).await.0) } else { 403 };
        // Zero where the connection was closed instead.
        assert!([200, 400, 403].contains(&first) && [0, 400, 403].contains(&second), "{framing}: {first} {second}");
        let got = heard.text();
        assert!(!got.contains("smuggled") && !got.contains("evil"), "{framing}: {got}");
        if first == 200 {
            assert!(got.contains(&format!("host: {}\r\n", own(&host))), "{got}");
        }
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_noted() {
    let (host, _) = host(&[]).await;
    let (lab, vault) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    let request = get(&host, &format!("X-Long: {}\r\n", "y".repeat(40_000)));
    let _ = client.write_all(request.as_bytes()).await;
    let (head, _) = response(&mut client).await;
    assert!([431, 400].contains(&status_of(&head)), "{head}");
    assert_eq!(lab.refusals(1).await, [Kind::BadRequest]);
    assert_eq!((host.connections(), vault.asked.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn a_host_that_is_not_trusted_gets_nothing() {
    let (host, heard) = host(&[OK]).await;
    let vault: Arc<dyn Interceptor> = Arc::new(Vault::of(&[NAME]));
    let another = Host::tls("another.example").await;
    let lab = Setup::new().strict(NAME, host.at).intercepted_by(vault).trusting(another.certificate()).start();
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, &format!("Authorization: {PLACEHOLDER}\r\n"))).await;
    assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (502, Some("untrusted")));
    assert!(body.contains("no trusted authority signed its certificate"), "{body}");
    drop(client);
    assert_eq!(lab.refusals(1).await, [Kind::Untrusted]);
    assert_eq!(heard.text(), "");
}

#[tokio::test]
async fn a_host_that_is_not_there_or_does_not_answer_is_told_of() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let vault: Arc<dyn Interceptor> = Arc::new(Vault::of(&[NAME]));
    let lab = Setup::new().strict(NAME, gone).intercepted_by(vault).start();
    let mut client = lab.inside(NAME, gone.port()).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}:{}\r\n\r\n", gone.port());
    assert_eq!(status_of(&ask(&mut client, &request).await.0), 502);
    drop(client);
    assert_eq!(lab.refusals(1).await, [Kind::Unreachable]);

    let (host, heard) = host(&[]).await;
    let (lab, _) = lab_with(&host, |setup| setup.limits(|limits| limits.idle = Duration::from_millis(300)));
    let mut client = lab.inside(NAME, host.port()).await;
    let (head, body) = ask(&mut client, &get(&host, "")).await;
    assert_eq!((status_of(&head), header(&head, "x-palyra-refused").as_deref()), (504, Some("too_slow")));
    assert!(body.contains(&format!("`{NAME}` did not answer in time")), "{body}");
    assert!(heard.text().starts_with("GET /"));
    drop(client);
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Failed);
}

#[tokio::test]
async fn a_host_that_hangs_up_or_talks_nonsense_is_told_of() {
    for (answer, words) in [
        (&[][..], "hung up before it had answered"),
        (&["SSH-2.0-x\r\n\r\n"][..], "answered with something that is no HTTP/1.1"),
    ] {
        let answers: &[&[&str]] = &[answer];
        let (host, _) = host(answers).await;
        let (lab, _) = lab(&host);
        let mut client = lab.inside(NAME, host.port()).await;
        let (head, body) = ask(&mut client, &get(&host, "")).await;
        assert_eq!(status_of(&head), 502);
        assert!(body.contains(words), "{body}");
        drop(client);
        assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Failed);
    }
}

#[tokio::test]
async fn a_host_that_closed_the_waiting_connection_is_reached_again() {
    let answers: &[&[&str]] = &[&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"], OK];
    let (host, _) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    assert_eq!(host.connections(), 2);
}

#[tokio::test]
async fn clients_do_not_share_a_way_to_the_host() {
    let (host, _) = host(&[OK, OK]).await;
    let (lab, _) = lab(&host);
    for _ in 0..2 {
        let mut client = lab.inside(NAME, host.port()).await;
        assert_eq!(ask(&mut client, &get(&host, "")).await.1, "ok");
    }
    assert_eq!(host.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_is_allowed_no_more_is_cut_in_the_middle_of_an_answer() {
    let answer: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome", " more"];
    let answers: &[&[&str]] = &[answer];
    let (host, heard) = host(answers).await;
    let (lab, _) = lab(&host);
    let mut client = lab.inside(NAME, host.port()).await;
    client.write_all(get(&host, "").as_bytes()).await.unwrap();
    let mut some = [0; 40];
    client.read_exact(&mut some).await.unwrap();
    lab.keeper.revoke_everything();
    let cut = timeout(Duration::from_secs(2), async { while matches!(client.read(&mut [0; 1024]).await, Ok(1..)) {} });
    assert!(cut.await.is_ok());
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Revoked);
    heard.until_gone().await;
}

#[tokio::test]
async fn a_client_that_says_hello_and_then_nothing_is_refused_in_time() {
    let (host, _) = host(&[]).await;
    let (lab, _) = lab_with(&host, |setup| setup.limits(|limits| limits.handshake = Duration::from_millis(200)));
    let mut client = lab.inside(NAME, host.port()).await;
    let ended = timeout(Duration::from_secs(5), client.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert_eq!(lab.refusals(1).await, [Kind::TooSlow]);
    assert_eq!(host.connections(), 0);
}

#[tokio::test]
async fn requests_count_against_the_limit_of_the_run() {
    let (host, _) = host(&[OK, OK, OK, OK]).await;
    let (lab, _) = lab_with(&host, |setup| setup.limits(|limits| limits.total = 3));
    let mut client = lab.inside(NAME, host.port()).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(status_of(&ask(&mut client, &get(&host, "")).await.0));
    }
    assert_eq!(seen, [200, 200, 403]);
}

#[tokio::test]
async fn a_client_that_waits_gives_its_place_to_one_that_asks() {
    let (host, _) = host(&[OK, OK]).await;
    let (lab, _) = lab_with(&host, |setup| setup.limits(|limits| limits.concurrent = 1));
    let mut first = lab.inside(NAME, host.port()).await;
    assert_eq!(ask(&mut first, &get(&host, "")).await.1, "ok");
    let mut second = lab.inside(NAME, host.port()).await;
    assert_eq!(ask(&mut second, &get(&host, "")).await.1, "ok");
    assert!(matches!(first.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn socks_and_direct_clients_are_looked_into_as_well() {
    let (host, heard) = host(&[OK, OK]).await;
    let direct = SocketAddr::from(([127, 18, 0, 1], host.port()));
    let (lab, _) = lab_with(&host, |setup| setup.direct(direct));
    lab.look_up(NAME, 1).await;
    let by_socks = lab.socks_to(NAME, host.port()).await.unwrap();
    let directly = TcpStream::connect(direct).await.unwrap();
    for stream in [by_socks, directly] {
        let mut client = greet(stream, NAME, Some(lab.trusted())).await.unwrap();
        assert_eq!(ask(&mut client, &get(&host, &format!("Authorization: {PLACEHOLDER}\r\n"))).await.1, "ok");
    }
    assert_eq!(heard.text().matches(SECRET).count(), 2);
}

#[tokio::test]
async fn plain_requests_to_other_hosts_are_judged_head_and_body() {
    let (host, _) = host(&[]).await;
    let plain = Host::http().await;
    let (lab, vault) = lab_with(&host, |setup| setup.open("plain.example", plain.at));
    let at = format!("plain.example:{}", plain.port());
    let say = |line: &str, body: &str| {
        format!("POST http://{at}/x{line}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    };
    let passed = lab.say(say(" HTTP/1.1\r\n", "").as_bytes()).await;
    assert_eq!(status_of(&passed), 200, "{passed}");
    let lines = [
        (format!("?key={PLACEHOLDER} HTTP/1.1\r\n"), String::new()),
        (format!(" HTTP/1.1\r\nX-Key: {PLACEHOLDER}\r\n"), String::new()),
        (" HTTP/1.1\r\n".to_owned(), format!("key={PLACEHOLDER}")),
    ];
    for (line, body) in &lines {
        let refused = lab.say(say(line, body).as_bytes()).await;
        assert_eq!(header(&refused, "x-palyra-refused").as_deref(), Some("secret_misplaced"), "{refused}");
    }
    assert_eq!(vault.elsewhere.lock().unwrap().len(), 4);
    let records = lab.records(4).await;
    assert_eq!(records.iter().filter(|one| matches!(one.outcome, ConnectionOutcome::Refused(_))).count(), 3);
}

/// Only who may bind port 80 sees anything.
#[tokio::test]
async fn plain_requests_of_clients_that_know_of_no_proxy_are_judged_each() {
    let Some(plain) = Host::http_at("127.18.7.1:80").await else { return };
    let (host, _) = host(&[]).await;
    let direct = SocketAddr::from(([127, 18, 0, 1], 80));
    let rule = "host = 'plain.example'; allow_private = true; ports = [80]";
    let (lab, vault) = lab_with(&host, |setup| setup.rule(rule).name("plain.example", &["127.18.7.1"]).direct(direct));
    let (code, addresses) = lab.look_up("plain.example", 1).await;
    assert_eq!((code, addresses), (0, vec![[127, 18, 0, 1].into()]));
    for stream in [TcpStream::connect(direct).await.unwrap(), lab.socks_to("plain.example", 80).await.unwrap()] {
        let mut client = stream;
        let request = |line: &str| format!("GET / HTTP/1.1\r\nHost: plain.example\r\n{line}\r\n");
        let mut seen = Vec::new();
        for line in ["", &format!("X: {PLACEHOLDER}\r\n"), "X: fine\r\n"] {
            client.write_all(request(line).as_bytes()).await.unwrap();
            let head = read_head(&mut client).await;
            let mut body = vec![0; header(&head, "content-length").unwrap().parse().unwrap()];
            client.read_exact(&mut body).await.unwrap();
            seen.push(status_of(&head));
        }
        assert_eq!(seen, [200, 403, 200]);
    }
    assert_eq!(vault.elsewhere.lock().unwrap().len(), 6);
    assert_eq!(plain.connections(), 4);
}

#[tokio::test]
async fn a_client_may_speak_the_older_tls_but_no_newer_http() {
    let (host, _) = host(&[OK]).await;
    let (lab, _) = lab(&host);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(lab.trusted()).unwrap();
    let builder = |versions| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots.clone()).with_no_client_auth()
    };
    let only_older = [&rustls::version::TLS12];
    let older = builder(&only_older);
    let mut newer = builder(rustls::ALL_VERSIONS);
    newer.alpn_protocols = vec![b"h2".to_vec()];
    let mut met = Vec::new();
    for config in [older, newer] {
        let stream = lab.tunnel(&format!("{NAME}:{}", host.port())).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from(NAME).unwrap();
        met.push(tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok());
    }
    assert_eq!(met, [true, false]);
}
