//! Calls at the same time: none reaches another, or holds it up.

use std::time::{Duration, Instant};

use palyra_api::call::Call;
use palyra_tests::daemon::{accepted, over};
use palyra_types::id::CallId;

use crate::escape::{
    bench::{Bench, Identity, plan},
    host,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_does_not_reach_what_another_one_listens_at() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::new(identity) else { continue };
        assert_eq!(reached_by_another(&bench).await, "REFUSED ECONNREFUSED", "{identity:?}");
        // It would, if they had no networks of their own.
        let bench = Bench::with(identity, plan().variable("PALYRA_WEAKEN", "network")).unwrap();
        assert_eq!(reached_by_another(&bench).await, "SUCCEEDED a way there", "{identity:?}");
    }
}

/// What a call says that tries to reach what another one listens at.
async fn reached_by_another(bench: &Bench) -> String {
    let port = free_port().to_string();
    let listen = format!("import socket, time\ns = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(20)");
    let listening = begin(bench, &["/usr/bin/python3", "-c", &listen], 1).await;
    // Until it listens. The file that tells is its own network's, as seen from outside.
    let line = format!(":{:04X} 00000000:0000 0A", port.parse::<u16>().unwrap());
    until("it listens", || {
        host::marked(&bench.mark)
            .iter()
            .any(|pid| std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).is_ok_and(|text| text.contains(&line)))
    })
    .await;
    let told = bench.attack(&["reach", "127.0.0.1", &port]).await.told();
    end(bench, listening).await;
    told
}

/// Connections that say a byte now and then are let go for others: of the same call, of another one, and of people.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_dribbles_on_a_thousand_connections_holds_up_nobody() {
    for identity in [Identity::Root, Identity::Ordinary] {
        let Some(bench) = Bench::with_hosts(identity, plan()) else { continue };
        let url = format!("http://listed.lab.test:{}/", bench.listed);
        let fetch = format!("curl -s --max-time 5 -o /dev/null -w '%{{http_code}}' {url}");
        let dribbling = begin(&bench, &["./attacks", "dribble", "1000", "6"], 1).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        assert_eq!(bench.shell(&fetch).await.line, "302", "{identity:?}: another call");
        bench.lab.owner().approvals(&Default::default()).await.unwrap();
        println!("{identity:?}: others were served within {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(3), "others waited for {:?}", begun.elapsed());
        let both = format!("./attacks dribble 1000 4 > /dev/null & sleep 1; {fetch}");
        assert_eq!(bench.shell(&both).await.line, "302", "{identity:?}: the same call");
        end(&bench, dribbling).await;
    }
}

/// Starts a call and waits until so many of its processes are there.
async fn begin(bench: &Bench, argv: &[&str], processes: usize) -> CallId {
    let argv: Vec<String> = argv.iter().map(|&arg| arg.to_owned()).collect();
    let call = bench.lab.agent().propose(&accepted(bench.call(&argv)), None).await.unwrap();
    until("it starts", || host::marked(&bench.mark).len() >= processes).await;
    call.id
}

async fn end(bench: &Bench, call: CallId) -> Call {
    let agent = bench.lab.agent();
    let _ = agent.cancel(call).await;
    over(&agent, call).await
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: not within ten seconds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
