//! Event streams: many readers, none of which misses anything or is told anything twice, and a slow one that holds up nobody.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on ends")]

use std::time::{Duration, Instant};

use palyra_api::{Event, event::OutputPiece};
use palyra_client::Client;
use palyra_tests::daemon::{DaemonLab, DaemonPlan, command, tool};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Reads until this record was told, and returns the numbers of those that were.
async fn read(client: Client, after: u64, last: u64) -> Vec<u64> {
    let mut told = Vec::new();
    let mut stream = client.events(Some(after)).await.unwrap();
    while told.last() != Some(&last) {
        told.extend(stream.next().await.unwrap().unwrap().seq);
    }
    told
}

async fn work(lab: &DaemonLab, calls: usize) {
    let agent = lab.agent();
    for _ in 0..calls {
        agent.propose(&tool("fs.list", json!({ "path": "." })), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_readers_are_told_everything_once_and_in_order() {
    let lab = DaemonLab::new();
    let (owner, bearer) = (lab.owner_locally().await, lab.console().await);
    let begin = owner.head().await.unwrap().size - 1;
    // Every call is four records: proposed, decided, started, attested. The first opens a run.
    let (calls, last) = (60, begin + 1 + 60 * 4);
    let mut readers = Vec::new();
    for reader in 0..500_u64 {
        let client = lab.holder_of(&bearer);
        readers.push(tokio::spawn(async move {
            if reader % 5 != 0 {
                return read(client, begin, last).await;
            }
            // Some come and go, and resume where they were.
            let mut told = Vec::new();
            while told.last() != Some(&last) {
                let after = told.last().copied().unwrap_or(begin);
                let mut stream = client.events(Some(after)).await.unwrap();
                for _ in 0..=(reader % 37) {
                    if told.last() == Some(&last) {
                        break;
                    }
                    told.extend(stream.next().await.unwrap().unwrap().seq);
                }
            }
            told
        }));
    }
    work(&lab, calls).await;
    let everything: Vec<u64> = (begin + 1..=last).collect();
    for reader in readers {
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), reader).await.unwrap().unwrap(), everything);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_reads_nothing_holds_up_nobody_and_misses_nothing() {
    let lab = DaemonLab::new();
    let owner = lab.owner_locally().await;
    let begin = owner.head().await.unwrap().size - 1;
    let mut deaf = Vec::new();
    let (host, token) = (lab.local(), lab.console().await);
    for _ in 0..20 {
        let mut stream = TcpStream::connect(lab.local()).await.unwrap();
        let head =
            format!("GET /api/v1/events?after=0 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    let slow = owner.events(Some(begin)).await.unwrap();
    let size = |calls: u64| begin + 1 + calls * 4;
    let quick = tokio::spawn(read(lab.owner_locally().await, begin, size(300)));
    let begun = Instant::now();
    work(&lab, 300).await;
    assert_eq!(quick.await.unwrap().len(), 1 + 300 * 4);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // The slow one begins to read only now.
    let mut slow = slow;
    for expected in begin + 1..=size(300) {
        assert_eq!(slow.next().await.unwrap().unwrap().seq, Some(expected));
    }
    drop(deaf);
}

#[tokio::test]
async fn a_run_tells_what_its_calls_print_while_they_run() {
    let lab = DaemonPlan::default().policies("echo.cedar", ECHO).start();
    let agent = lab.agent();
    let run = agent.open_run(&Default::default()).await.unwrap();
    let mut stream = agent.run_stream(run.id, None).await.unwrap();
    let call = palyra_api::call::NewCall { run: Some(run.id), ..command(["seq", "3"]) };
    let proposing = tokio::spawn({
        let agent = lab.agent();
        async move { agent.propose(&call, None).await }
    });
    let mut kinds = Vec::new();
    loop {
        let Event { kind, seq, data, call_id, .. } = stream.next().await.unwrap().unwrap();
        if kind == "tool.output" {
            let piece: OutputPiece = serde_json::from_value(data).unwrap();
            assert_eq!((piece.stream.as_str(), piece.offset, seq), ("stdout", 0, None));
            assert_eq!(piece.base64, "MQoyCjMK");
        }
        assert_eq!(call_id.is_some(), kind != "run.opened");
        kinds.push(kind);
        if kinds.last().unwrap() == "tool.attested" {
            break;
        }
    }
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.started", "tool.output", "tool.attested"]);
    proposing.await.unwrap().unwrap();
}

#[tokio::test]
async fn streams_end_when_the_daemon_stops() {
    let mut lab = DaemonLab::new();
    let owner = lab.owner();
    let mut stream = owner.events(None).await.unwrap();
    let stopped = tokio::task::spawn_blocking(move || lab.stop().success());
    while let Ok(Some(_)) = stream.next().await {}
    assert!(stopped.await.unwrap());
}

const ECHO: &str = r#"
@id("seq") permit (principal, action == Palyra::Action::"tool.execute", resource)
when { context has process && context.process.name == "seq" };
"#;
