//! The HTTP proxy, from the side of the program inside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use palyra_sandbox::egress::{ConnectionOutcome, EgressRefusalKind as Kind, Via};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::egress_lab::{Setup, header, hosts::Host, read_all, read_head, status_of};

#[tokio::test]
async fn a_tunnel_carries_bytes_to_an_allowed_host() {
    let host = Host::echo().await;
    let mut lab = Setup::new().open("listed.example", host.at).start();
    let mut client = lab.tunnel(&format!("Listed.Example:{}", host.port())).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"ping");
    drop(client);
    let records = lab.records(1).await;
    assert_eq!((records[0].outcome.clone(), records[0].via), (ConnectionOutcome::Closed, Via::Connect));
    assert_eq!((records[0].sent, records[0].received, records[0].address), (4, 4, Some(host.at)));
    assert_eq!(records[0].host.as_ref().unwrap().as_str(), "listed.example");
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused, summary.sent, summary.received), (1, 0, 4, 4));
}

#[tokio::test]
async fn what_the_client_sends_before_the_answer_is_not_lost() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let words = format!("CONNECT listed.example:{} HTTP/1.1\r\n\r\nearly", host.port());
    let mut client = lab.client().await;
    client.write_all(words.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let answer = String::from_utf8(read_all(&mut client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nearly"), "{answer}");
}

#[tokio::test]
async fn names_that_are_not_listed_are_refused_and_never_resolved() {
    let lab = Setup::new().rule("host = 'listed.com'").rule("host = '*.wild.org'").start();
    let hosts =
        ["evil.com", "listed.com.evil.com", "evillisted.com", "sub.listed.com", "wild.org", "wild.org.evil.com"];
    for host in hosts {
        assert_eq!(lab.tunnel(&format!("{host}:443")).await.unwrap_err(), (403, "not_listed".to_owned()), "{host}");
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: listed.com\r\nConnection: close\r\n\r\n");
        assert_eq!(status_of(&lab.say(request.as_bytes()).await), 403);
    }
    assert_eq!(lab.tunnel("listed.com:22").await.unwrap_err(), (403, "port_not_listed".to_owned()));
    let kinds = lab.refusals(13).await;
    assert_eq!(kinds.iter().filter(|&&kind| kind == Kind::NotListed).count(), 12);
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn an_empty_list_refuses_everything() {
    let mut lab = Setup::new().start();
    assert_eq!(lab.tunnel("example.org:443").await.unwrap_err(), (403, "not_listed".to_owned()));
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused), (0, 1));
    assert_eq!((summary.refusals[0].named.as_str(), summary.refusals[0].port), ("example.org", 443));
}

#[tokio::test]
async fn a_refusal_says_why_and_what_to_do() {
    let lab = Setup::new().start();
    let mut client = lab.client().await;
    client.write_all(b"CONNECT example.org:443 HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read_all(&mut client).await).unwrap();
    assert_eq!(status_of(&answer), 403);
    assert_eq!(header(&answer, "content-type").unwrap(), "text/plain; charset=utf-8");
    assert_eq!(header(&answer, "x-palyra-refused").unwrap(), "not_listed");
    assert!(answer.ends_with(
        "Palyra refused this connection: no rule names the host `example.org`. \
         To change that: add the host under [[egress.host]] in the configuration.\n"
    ));
}

#[tokio::test]
async fn an_address_in_disguise_is_no_host() {
    let lab = Setup::new().rule("host = '127.0.0.1'; ports = [443, 80]; tls = 'any'; allow_private = true").start();
    let disguises = [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "127.000.000.001",
        "[127.0.0.1]",
        "[::1%25lo]",
        "0",
    ];
    for host in disguises {
        let refused = lab.tunnel(&format!("{host}:443")).await.unwrap_err();
        assert!(matches!(refused, (403, ref kind) if kind == "not_a_host") || refused.0 == 400, "{host} {refused:?}");
        let answer = lab.say(format!("GET http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        let kind = header(&answer, "x-palyra-refused");
        assert!(kind.as_deref() == Some("not_a_host") || status_of(&answer) == 400, "{host} {answer}");
    }
    let kinds = lab.refusals(2 * disguises.len()).await;
    assert!(kinds.iter().all(|kind| matches!(kind, Kind::NotAHost | Kind::BadRequest)), "{kinds:?}");
    assert_eq!(lab.keeper.decided.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn addresses_are_ruled_on_as_what_they_lead_to() {
    let lab = Setup::new().rule("host = '192.0.2.7'").start();
    for (host, decided) in [
        ("127.0.0.1", "127.0.0.1:443"),
        ("[::1]", "::1:443"),
        ("[::ffff:127.0.0.1]", "127.0.0.1:443"),
        ("[::ffff:7f00:1]", "127.0.0.1:443"),
        ("[0:0:0:0:0:ffff:7f00:0001]", "127.0.0.1:443"),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1:443"),
        ("169.254.169.254", "169.254.169.254:443"),
    ] {
        assert_eq!(lab.tunnel(&format!("{host}:443")).await.unwrap_err(), (403, "not_listed".to_owned()), "{host}");
        assert_eq!(lab.keeper.decided.lock().unwrap().pop().unwrap(), decided);
    }
    assert_eq!(lab.tunnel("192.0.2.7:443").await.unwrap_err(), (403, "private_address".to_owned()));
}

#[tokio::test]
async fn what_is_smuggled_into_a_request_line_gets_nowhere() {
    let lab = Setup::new().rule("host = 'listed.com'; ports = [80, 443]; tls = 'any'").start();
    let requests: &[&[u8]] = &[
        b"CONNECT user@listed.com:443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:443@evil.com:443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com\0.evil.com:443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com%00.evil.com:443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com%0d%0a:443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:443\rHost: evil.com HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:0 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:00443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:+443 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:65979 HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com: HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:443/ HTTP/1.1\r\n\r\n",
        b"CONNECT http://listed.com:443/ HTTP/1.1\r\n\r\n",
        b"CONNECT listed.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"CONNECT listed.com:80 HTTP/1.1\r\n\r\n",
        b"GET http://user:pass@listed.com/ HTTP/1.1\r\n\r\n",
        b"GET http://listed.com@evil.com/ HTTP/1.1\r\n\r\n",
        b"GET http://listed.com\0/ HTTP/1.1\r\n\r\n",
        b"GET https://listed.com/ HTTP/1.1\r\n\r\n",
        b"GET ftp://listed.com/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: listed.com\r\n\r\n",
        b"GET listed.com:80 HTTP/1.1\r\n\r\n",
        b"POST http://listed.com/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for request in requests {
        let shown = String::from_utf8_lossy(request);
        let answer = lab.say(request).await;
        assert!(matches!(status_of(&answer), 400 | 403) || answer.is_empty(), "{shown:?}: {answer}");
    }
    let kinds = lab.refusals(requests.len()).await;
    let expected = [Kind::NotAHost, Kind::BadRequest, Kind::NotSupported];
    assert!(kinds.iter().all(|kind| expected.contains(kind)), "{kinds:?}");
    assert_eq!(lab.keeper.decided.lock().unwrap().as_slice(), [""; 0]);
    assert_eq!(lab.resolver.asked.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn the_proxy_is_not_reached_through_itself() {
    let lab = Setup::new();
    let lab = lab.rule("host = '127.0.0.1'; ports = [1]").rule("host = 'localhost'; ports = [1]").start();
    let port = lab.proxy.port();
    for host in ["127.0.0.1", "localhost", "[::1]", "a.localhost", "0.0.0.0", "127.9.9.9"] {
        let refused = lab.tunnel(&format!("{host}:{port}")).await.unwrap_err();
        assert_eq!(refused, (403, "own_listener".to_owned()), "{host}");
    }
    let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n");
    assert_eq!(status_of(&lab.say(request.as_bytes()).await), 403);
    assert_eq!(lab.refusals(7).await, [Kind::OwnListener; 7]);
}

#[tokio::test]
async fn the_daemon_is_not_reached_even_where_private_addresses_are_allowed() {
    let daemon = Host::echo().await;
    let lab = Setup::new().open("sneaky.example", daemon.at).forbid(daemon.at);
    let lab = lab.rule(&format!("host = '127.0.0.1'; ports = [{}]; tls = 'any'; allow_private = true", daemon.port()));
    let lab = lab
        .rule(&format!("host = '127.0.0.2'; ports = [{}]; tls = 'any'; allow_private = true", daemon.port()))
        .start();
    for host in ["sneaky.example", "127.0.0.1", "127.0.0.2", "[::ffff:127.0.0.1]"] {
        let refused = lab.tunnel(&format!("{host}:{}", daemon.port())).await.unwrap_err();
        assert_eq!(refused, (403, "own_listener".to_owned()), "{host}");
        let request = format!("GET http://{host}:{}/ HTTP/1.1\r\nConnection: close\r\n\r\n", daemon.port());
        assert_eq!(status_of(&lab.say(request.as_bytes()).await), 403);
    }
    assert_eq!(lab.refusals(8).await, [Kind::OwnListener; 8]);
    assert_eq!(daemon.connections(), 0);
}

#[tokio::test]
async fn addresses_that_a_name_should_not_have_are_refused() {
    let rule = |name: &str| format!("host = '{name}'; ports = [443, 80]; tls = 'any'");
    let lab = Setup::new();
    let lab = lab.rule(&rule("private.example")).name("private.example", &["10.0.0.1"]);
    let lab = lab.rule(&rule("loopback.example")).name("loopback.example", &["127.0.0.1"]);
    let lab = lab.rule(&rule("metadata.example")).name("metadata.example", &["169.254.169.254"]);
    let lab = lab.rule(&rule("nat64.example")).name("nat64.example", &["64:ff9b::a00:1"]);
    let lab = lab.rule(&rule("both.example")).name("both.example", &["1.1.1.1", "127.0.0.1"]);
    let lab = lab.rule(&rule("missing.example")).start();
    for name in ["private", "loopback", "metadata", "nat64", "both"] {
        let refused = lab.tunnel(&format!("{name}.example:443")).await.unwrap_err();
        assert_eq!(refused, (403, "private_address".to_owned()), "{name}");
        assert_eq!(lab.socks_to(&format!("{name}.example"), 443).await.unwrap_err(), 2);
    }
    assert_eq!(lab.tunnel("missing.example:443").await.unwrap_err(), (502, "unresolvable".to_owned()));
    let kinds = lab.refusals(11).await;
    assert_eq!(kinds, [vec![Kind::PrivateAddress; 10], vec![Kind::Unresolvable]].concat());
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_a_bad_gateway() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lab = Setup::new().open("closed.example", closed).start();
    let refused = lab.tunnel(&format!("closed.example:{}", closed.port())).await.unwrap_err();
    assert_eq!(refused, (502, "unreachable".to_owned()));
    let request = format!("GET http://closed.example:{}/ HTTP/1.1\r\nConnection: close\r\n\r\n", closed.port());
    assert_eq!(status_of(&lab.say(request.as_bytes()).await), 502);
    assert_eq!(lab.refusals(2).await, [Kind::Unreachable; 2]);
}

#[tokio::test]
async fn a_plain_request_reaches_its_host_with_the_right_host_header_and_no_hop_headers() {
    let host = Host::http().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let request = format!(
        "GET http://listed.example:{}/a?b=c HTTP/1.1\r\nHost: evil.com\r\nHost: worse.com\r\nProxy-Authorization: Basic x\r\n\
         Proxy-Connection: keep-alive\r\nConnection: close, X-Private\r\nX-Private: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\n",
        host.port()
    );
    let answer = lab.say(request.as_bytes()).await;
    assert_eq!(status_of(&answer), 200, "{answer}");
    let (head, seen) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!((header(head, "x-hop"), header(head, "x-palyra-refused")), (None, None));
    let mut lines: Vec<_> = seen.trim_end().split("\r\n").collect();
    lines[1..].sort_unstable();
    let host_line = format!("host: listed.example:{}", host.port());
    assert_eq!(lines, ["GET /a?b=c HTTP/1.1", "connection: close", &host_line, "x-kept: 1"]);
    let records = lab.records(1).await;
    assert_eq!((records[0].outcome.clone(), records[0].via), (ConnectionOutcome::Closed, Via::Http));
    assert!(records[0].sent > 0 && records[0].received > 0);
}

#[tokio::test]
async fn the_body_of_a_plain_request_arrives_whatever_its_method() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let lab = Setup::new().open("listed.example", at).start();
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let cases = [
        (chunked.to_owned(), "5\r\nhello\r\n0\r\n\r\n", "transfer-encoding: chunked"),
        ("Content-Length: 5\r\n\r\nhello".to_owned(), "hello", "content-length: 5"),
        // The host is told in one way how long a body is.
        (format!("Content-Length: 3\r\n{chunked}"), "5\r\nhello\r\n0\r\n\r\n", "transfer-encoding: chunked"),
    ];
    for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PROPFIND"] {
        for (rest, body, framing) in &cases {
            let mut client = lab.client().await;
            let request = format!("{method} http://listed.example:{}/ HTTP/1.1\r\n{rest}", at.port());
            client.write_all(request.as_bytes()).await.unwrap();
            let (mut host, _) = listener.accept().await.unwrap();
            let head = read_head(&mut host).await.to_ascii_lowercase();
            let lengths: Vec<&str> = head
                .lines()
                .filter(|line| line.starts_with("content-length") || line.starts_with("transfer-encoding"))
                .collect();
            assert_eq!(lengths, [*framing], "{method}");
            let mut got = vec![0; body.len()];
            host.read_exact(&mut got).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&got), *body, "{method}");
        }
        // What has no body gets none.
        let mut client = lab.client().await;
        client
            .write_all(format!("{method} http://listed.example:{}/ HTTP/1.1\r\n\r\n", at.port()).as_bytes())
            .await
            .unwrap();
        let (mut host, _) = listener.accept().await.unwrap();
        let head = read_head(&mut host).await.to_ascii_lowercase();
        assert!(!head.contains("transfer-encoding"), "{method} {head}");
    }
}

#[tokio::test]
async fn every_request_on_a_kept_connection_is_decided_about_anew() {
    let host = Host::http().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let mut client = lab.client().await;
    let authority = format!("listed.example:{}", host.port());
    for (target, status) in [(authority.as_str(), 200), ("evil.com:80", 403), (&authority, 200)] {
        let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await;
        assert_eq!(status_of(&head), status, "{target}: {head}");
        let length = header(&head, "content-length").unwrap().parse().unwrap();
        client.read_exact(&mut vec![0; length]).await.unwrap();
    }
    lab.keeper.revoke_everything();
    client.write_all(format!("GET http://{authority}/ HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(status_of(&read_head(&mut client).await), 403);
    let decided = lab.keeper.decided.lock().unwrap().clone();
    assert_eq!(decided, [authority.as_str(), "evil.com:80", &authority, &authority]);
    lab.records(4).await;
    assert_eq!(host.connections(), 2);
}

#[tokio::test]
async fn a_plain_request_is_refused_where_the_rule_demands_tls() {
    let host = Host::http().await;
    let lab = Setup::new().strict("listed.example", host.at).start();
    let request = format!("GET http://listed.example:{}/ HTTP/1.1\r\nConnection: close\r\n\r\n", host.port());
    let answer = lab.say(request.as_bytes()).await;
    assert_eq!(header(&answer, "x-palyra-refused").unwrap(), "no_tls");
    assert_eq!(lab.refusals(1).await, [Kind::NoTls]);
    assert_eq!((host.connections(), lab.resolver.asked.lock().unwrap().len()), (0, 0));
}

#[tokio::test]
async fn a_host_that_answers_nonsense_is_a_bad_gateway() {
    let host = Host::echo().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    // The host sends back what it gets, which is no response.
    let request = format!(
        "POST http://listed.example:{}/ HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        host.port()
    );
    let answer = lab.say(request.as_bytes()).await;
    assert_eq!(status_of(&answer), 502, "{answer}");
    assert_eq!(lab.records(1).await[0].outcome, ConnectionOutcome::Failed);
}

#[tokio::test]
async fn garbage_is_answered_or_closed_and_noted_once() {
    let lab = Setup::new().start();
    let noise: Vec<u8> = (0..4000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[1] | 8).collect();
    let long = [b"GET http://example.org/".to_vec(), vec![b'a'; 40_000], b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    for words in [&noise[..], b"\r\n\r\n\r\n", b"\x16\x03\x01\x02\x00", b"hello\n", &long] {
        let mut client = lab.client().await;
        let _ = client.write_all(words).await;
        let _ = client.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), client.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "{:?} hangs", String::from_utf8_lossy(words));
    }
    // Empty lines alone are no request and no error: such a client has said nothing.
    let kinds = lab.refusals(4).await;
    assert_eq!(kinds, [Kind::BadRequest; 4]);
    assert_eq!(lab.tunnel("example.org:443").await.unwrap_err().0, 403);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_question_with_it() {
    let lab = Setup::new().rule("host = 'listed.com'").start();
    lab.keeper.thinks.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut client = lab.client().await;
    client.write_all(b"CONNECT listed.com:443 HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(client);
    let records = lab.records(1).await;
    assert_eq!(records[0].outcome, ConnectionOutcome::Failed);
    assert_eq!(lab.keeper.decided.lock().unwrap().as_slice(), [""; 0]);
}

#[tokio::test]
async fn no_secret_of_a_request_is_noted() {
    let mut lab = Setup::new().rule("host = 'listed.com'; ports = [80]").start();
    lab.say(b"GET http://user:pass-word@listed.com/token?key=value HTTP/1.1\r\n\r\n").await;
    lab.say(b"GET http://evil.com/token?key=value HTTP/1.1\r\nAuthorization: pass-word\r\n\r\n").await;
    lab.say(b"GET /token?key=value HTTP/1.1\r\n\r\n").await;
    let noted =
        serde_json::to_string(&lab.records(3).await).unwrap() + &serde_json::to_string(&lab.finish().await).unwrap();
    for secret in ["pass-word", "token", "key", "value"] {
        assert!(!noted.contains(secret), "{secret}: {noted}");
    }
}

#[tokio::test]
async fn a_plain_request_for_a_synthetic_address_is_one_for_the_name_behind_it() {
    let host = Host::http().await;
    let lab = Setup::new().open("listed.example", host.at).start();
    let (_, addresses) = lab.look_up("listed.example", 1).await;
    let request = format!("GET http://{}:{}/ HTTP/1.1\r\nConnection: close\r\n\r\n", addresses[0], host.port());
    let answer = lab.say(request.as_bytes()).await;
    assert!(answer.contains(&format!("host: listed.example:{}\r\n", host.port())), "{answer}");
}

#[tokio::test]
async fn a_client_that_goes_without_a_word_leaves_no_note() {
    let host = Host::echo().await;
    let mut lab = Setup::new().open("listed.example", host.at).start();
    for words in [&b""[..], b"GET http://", &[5], &[5, 1, 0, 5]] {
        let mut client = lab.client().await;
        client.write_all(words).await.unwrap();
        drop(client);
    }
    drop(lab.tunnel(&format!("listed.example:{}", host.port())).await.unwrap());
    lab.records(1).await;
    let summary = lab.finish().await;
    assert_eq!((summary.connections, summary.refused), (1, 0));
}
