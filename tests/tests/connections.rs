//! Connections: those who are silent, who come in thousands, or who leave, and those who want something meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on ends"
)]

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_api::call::NewCall;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, approve, asked, command, over, tool};
use palyra_types::clock::SystemClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};

/// Connects so many times, and says nothing.
async fn silent(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(to).await.unwrap());
    }
    streams
}

/// Allows this process as many descriptors as it can have, and says how many connections it can make to each of two listeners.
fn as_many_as_possible() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let half = most.map_or(usize::MAX, |most| usize::try_from(most / 2 - 200).unwrap());
    half.min(4_300)
}

/// The head of a request.
fn head(lab: &DaemonLab, line: &str, more: &str) -> String {
    head_for(lab, lab.local(), line, more)
}

/// On the local listener with the agents' token, on the other with nothing but the certificate.
fn head_for(lab: &DaemonLab, host: SocketAddr, line: &str, more: &str) -> String {
    let bearer =
        if host == lab.local() { format!("Authorization: Bearer {}\r\n", lab.agent_token()) } else { String::new() };
    format!("{line} HTTP/1.1\r\nHost: {host}\r\n{bearer}{more}\r\n")
}

/// The agent's proposal to run a program, and another request behind it, the last one.
fn proposal(lab: &DaemonLab, host: SocketAddr, call: &NewCall) -> String {
    let body = serde_json::to_string(call).unwrap();
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let behind = head_for(lab, host, "GET /api/v1/tools", "Connection: close\r\n");
    format!("{}{body}{behind}", head_for(lab, host, "POST /api/v1/calls", &length))
}

/// A connection to the control listener.
async fn control(lab: &DaemonLab) -> TlsStream<TcpStream> {
    let config = palyra_identity::client_config(&lab.device(), Arc::new(SystemClock::new())).unwrap();
    let stream = TcpStream::connect(lab.control()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(config).connect(name, stream).await.unwrap()
}

/// What comes until the daemon hangs up.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(60), read).await.expect("the daemon hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether strangers and the owner, who come now, are answered soon, on both listeners.
async fn everybody_is_answered(lab: &DaemonLab) {
    for owner in [lab.owner(), lab.owner_locally().await] {
        let begun = Instant::now();
        owner.health().await.unwrap();
        owner.identity().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_silent_connections_keep_nobody_out_and_end_nothing_that_is_under_way() {
    let count = as_many_as_possible();
    let lab = DaemonLab::new();
    let mut events = lab.owner_locally().await.events(None).await.unwrap();
    let agent = lab.agent();
    let proposing = tokio::spawn(async move { agent.propose(&command(["true"]), None).await });
    let question = asked(&lab.owner(), 1).await.remove(0);
    let silent = tokio::join!(silent(lab.local(), count), silent(lab.control(), count));
    everybody_is_answered(&lab).await;
    approve(&lab.owner(), &question).await.unwrap();
    assert_eq!(proposing.await.unwrap().unwrap().receipt.unwrap().ending(), "completed");
    while events.next().await.unwrap().expect("the stream goes on").kind != "tool.attested" {}
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_with_few_descriptors_keeps_some_for_its_work() {
    let lab = DaemonPlan::default().descriptors(256).start();
    let silent = (silent(lab.local(), 300).await, silent(lab.control(), 300).await);
    everybody_is_answered(&lab).await;
    lab.agent().propose(&tool("fs.list", json!({ "path": "." })), None).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn who_is_known_and_idle_makes_room_for_others() {
    let lab = DaemonPlan::default().descriptors(256).start();
    let mut idle = Vec::new();
    for _ in 0..100 {
        let agent = lab.agent();
        agent.tools().await.unwrap();
        idle.push(agent);
    }
    everybody_is_answered(&lab).await;
}

#[tokio::test]
async fn an_agent_with_many_requests_under_way_leaves_places_to_people() {
    let lab = DaemonPlan::default().descriptors(256).start();
    // Half of 64 places are for agents. Some of these get none.
    let unfinished = head(&lab, "POST /api/v1/calls", "Content-Type: application/json\r\nContent-Length: 100\r\n");
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        stream.write_all(unfinished.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    palyra_tests::until(|| async {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let request = head(&lab, "GET /api/v1/tools", "Connection: close\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        answer.starts_with("HTTP/1.1 429 ") && answer.contains("too_many_requests")
    })
    .await;
    everybody_is_answered(&lab).await;
}

#[tokio::test]
async fn who_says_nothing_is_hung_up_on_in_time_at_the_beginning_and_between_two_requests() {
    let lab = DaemonLab::new();
    let begun = Instant::now();
    let mut unsaid = TcpStream::connect(lab.local()).await.unwrap();
    let mut without_tls = TcpStream::connect(lab.control()).await.unwrap();
    let mut kept = TcpStream::connect(lab.local()).await.unwrap();
    kept.write_all(head(&lab, "GET /api/v1/identity", "").as_bytes()).await.unwrap();
    let (nothing, no_handshake, answer) = tokio::join!(rest(&mut unsaid), rest(&mut without_tls), rest(&mut kept));
    assert_eq!((nothing.as_str(), no_handshake.as_str()), ("", ""));
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.to_lowercase().contains("connection: close"), "{answer}");
    assert!((4..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn who_sends_more_and_hangs_up_withdraws_what_they_waited_for() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let request = proposal(&lab, lab.local(), &command(["true"]));
    // Who says only that nothing else comes hangs up as well.
    for (more, closes) in [(0, true), (10_000, true), (0, false), (10_000, false)] {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let question = asked(&owner, 1).await.remove(0);
        stream.write_all(&vec![b'x'; more]).await.unwrap();
        let mut held = None;
        if closes {
            drop(stream);
        } else {
            stream.shutdown().await.unwrap();
            held = Some(stream);
        }
        let withdrawn = over(&owner, question.call).await;
        assert_eq!(withdrawn.refusal.unwrap().code, "cancelled", "{more} bytes, closes: {closes}");
        drop(held);
    }
}

#[tokio::test]
async fn who_hangs_up_together_with_the_request_withdraws_it() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let begin = owner.head().await.unwrap().size;
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(proposal(&lab, lab.local(), &command(["true"])).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    palyra_tests::until(|| async { owner.approvals(&Default::default()).await.unwrap().approvals.is_empty() }).await;
    // It came so far or not; nobody is asked about it any more, and nothing has run.
    let query = palyra_api::journal::RecordQuery { from: Some(begin), ..Default::default() };
    let records = owner.records(&query).await.unwrap().records;
    assert!(records.iter().all(|record| record.kind != "tool.started"));
}

#[tokio::test]
async fn who_sends_more_and_hangs_up_over_tls_withdraws_what_they_waited_for() {
    let lab = DaemonPlan::default().policies("sleep.cedar", SLEEP).start();
    let owner = lab.owner();
    let request = proposal(&lab, lab.control(), &command(["true"]));
    for more in [0, 10_000] {
        let mut stream = control(&lab).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let question = asked(&owner, 1).await.remove(0);
        stream.write_all(&vec![b'x'; more]).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        assert_eq!(over(&owner, question.call).await.refusal.unwrap().code, "cancelled", "{more} bytes");
    }
    // What runs is stopped.
    let mut events = lab.owner_locally().await.events(None).await.unwrap();
    let mut stream = control(&lab).await;
    stream.write_all(proposal(&lab, lab.control(), &command(["sleep", "60"])).as_bytes()).await.unwrap();
    let started = loop {
        let event = events.next().await.unwrap().unwrap();
        if event.kind == "tool.started" {
            break event.call_id.unwrap();
        }
    };
    drop(stream);
    assert_eq!(over(&owner, started).await.receipt.unwrap().ending(), "cancelled");
}

#[tokio::test]
async fn who_sends_very_much_behind_a_request_is_hung_up_on() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(proposal(&lab, lab.local(), &command(["true"])).as_bytes()).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    // The end of this would never come through: the daemon has no reason to read it.
    let _ = stream.write_all(&vec![b'x'; 30_000_000]).await;
    drop(stream);
    assert_eq!(over(&owner, question.call).await.refusal.unwrap().code, "cancelled");
}

#[tokio::test]
async fn a_body_that_takes_its_time_is_not_taken_for_something_else() {
    let lab = DaemonLab::new();
    let args = json!({ "path": ".", "wat": "x".repeat(900_000) });
    let body = serde_json::to_string(&tool("fs.list", args)).unwrap();
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(head(&lab, "POST /api/v1/calls", &length).as_bytes()).await.unwrap();
    for piece in body.as_bytes().chunks(100_000) {
        stream.write_all(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 422 "));
}

#[tokio::test]
async fn who_sends_more_and_stays_is_answered_in_order() {
    let lab = DaemonLab::new();
    let owner = lab.owner();
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    stream.write_all(proposal(&lab, lab.local(), &command(["true"])).as_bytes()).await.unwrap();
    let question = asked(&owner, 1).await.remove(0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    approve(&owner, &question).await.unwrap();
    let answers = rest(&mut stream).await;
    let (first, second) = (answers.find("\"receipt\"").unwrap(), answers.find("\"tools\"").unwrap());
    assert!(first < second && answers.matches("HTTP/1.1 200 ").count() == 2, "{answers}");
}

#[tokio::test]
async fn what_is_no_request_is_refused_without_words() {
    let lab = DaemonLab::new();
    let host = format!("Host: {}\r\n", lab.local());
    let many: String = (0..65).map(|index| format!("X-{index}: y\r\n")).collect();
    for (said, status) in [
        ("nonsense\r\n\r\n".to_owned(), Some(400)),
        (format!("GET / HTTP/3.0\r\n{host}\r\n"), Some(400)),
        (format!("GET /\0 HTTP/1.1\r\n{host}\r\n"), Some(400)),
        (format!("G(T / HTTP/1.1\r\n{host}\r\n"), Some(400)),
        (format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"), Some(400)),
        (format!("POST / HTTP/1.1\r\n{host}Content-Length: x\r\n\r\n"), Some(400)),
        (format!("POST / HTTP/1.1\r\n{host}Transfer-Encoding: gzip\r\n\r\n"), Some(400)),
        (format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(70_000)), Some(414)),
        (format!("GET / HTTP/1.1\r\n{host}{many}\r\n"), Some(431)),
        (format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "y".repeat(1_000_000)), Some(431)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), None),
    ] {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let _ = stream.write_all(said.as_bytes()).await;
        let answer = rest(&mut stream).await;
        let what = said.lines().next().unwrap().chars().take(40).collect::<String>();
        let Some(status) = status else {
            assert_eq!(answer, "", "{what}");
            continue;
        };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains("x-request-id"), "{what}: {answer}");
    }
}

const SLEEP: &str = r#"
@id("sleep") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process.name == "sleep" };
"#;

#[tokio::test]
async fn who_is_refused_before_they_have_said_all_of_it_can_ask_again_on_the_same_connection() {
    let lab = DaemonLab::new();
    let mut stream = TcpStream::connect(lab.local()).await.unwrap();
    let elsewhere = "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n";
    stream.write_all(elsewhere.as_bytes()).await.unwrap();
    // By now a daemon that answers at once has done so.
    tokio::time::sleep(Duration::from_millis(200)).await;
    stream.write_all(b"{}").await.unwrap();
    let again = head(&lab, "GET /api/v1/tools", "Connection: close\r\n");
    tokio::time::sleep(Duration::from_millis(200)).await;
    stream.write_all(again.as_bytes()).await.unwrap();
    let answers = rest(&mut stream).await;
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
    assert_eq!(statuses, ["400", "200"], "{answers}");
}

#[tokio::test]
async fn who_is_refused_and_does_not_go_on_is_told_that_the_connection_is_closed() {
    let lab = DaemonLab::new();
    for more in
        ["Content-Length: 2\r\n", "Content-Length: 1000000\r\n", "Content-Length: 2\r\nExpect: 100-continue\r\n"]
    {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let elsewhere = format!("POST /mcp HTTP/1.1\r\nHost: evil.example\r\n{more}\r\n");
        stream.write_all(elsewhere.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request") && answer.contains("connection: close\r\n"), "{answer}");
    }
}
