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
    time::{Duration, Instant},
};

use palyra_tests::daemon::{DaemonLab, DaemonPlan, approve, asked, command, tool};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

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
fn head(lab: &DaemonLab, whose: &str, line: &str, more: &str) -> String {
    let (host, token) = (lab.local(), lab.token(whose));
    format!("{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
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
    for owner in [lab.owner(), lab.holder_of("owner")] {
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
    let mut events = lab.holder_of("owner").events(None).await.unwrap();
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
    let unfinished =
        head(&lab, "agent", "POST /api/v1/calls", "Content-Type: application/json\r\nContent-Length: 100\r\n");
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        stream.write_all(unfinished.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    palyra_tests::until(|| async {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let request = head(&lab, "agent", "GET /api/v1/tools", "Connection: close\r\n");
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
    kept.write_all(head(&lab, "owner", "GET /api/v1/identity", "").as_bytes()).await.unwrap();
    let (nothing, no_handshake, answer) = tokio::join!(rest(&mut unsaid), rest(&mut without_tls), rest(&mut kept));
    assert_eq!((nothing.as_str(), no_handshake.as_str()), ("", ""));
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.to_lowercase().contains("connection: close"), "{answer}");
    assert!((4..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}
