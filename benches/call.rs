//! What a call costs on its whole way: `true` in tier B next to spawning it with limits, two syncs and a millisecond; and a call in a journal
//! of a million records next to one in a short journal. A missed target ends the program with an error.

#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a measurement that cannot be set up ends, and its floor is a bare process"
)]

use std::{
    fs::File,
    io::Write,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use palyra_benches::{
    judge, median, millis,
    place::{Place, PlacePlan, directory},
    time,
};
use palyra_journal::{Body, JournalStore, NewRecord, RecordKind, Subject, Transaction};
use palyra_types::{Timestamp, entropy::SystemEntropy};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

const ROUNDS: usize = 400;
const LONG: usize = 1_000_000;

fn main() -> std::process::ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let home = directory();
    let mut short = runtime.block_on(open(&home.path().join("short")));
    let mut log = File::create(home.path().join("log")).expect("a file");

    // On a thread of the runtime, where a daemon has its handlers.
    let (parts, back) = runtime
        .block_on(runtime.spawn(async move {
            let mut parts: [Vec<Duration>; 5] = Default::default();
            for _ in 0..ROUNDS {
                let [spawn, sync, whole, ran, read] = &mut parts;
                spawn.push(time(spawn_with_limits));
                sync.push(time(|| two_syncs(&mut log)));
                let begun = Instant::now();
                ran.push(call(&short, "process.run", json!({ "command": ["true"] })).await);
                whole.push(begun.elapsed());
                let begun = Instant::now();
                call(&short, "daemon.status", json!({})).await;
                read.push(begun.elapsed());
            }
            (parts, short)
        }))
        .expect("it measures");
    short = back;
    let [spawn, sync, whole, ran, read] = parts.map(median);
    let allowed = spawn + sync + Duration::from_millis(1);
    println!("spawn of `true` with limits                    {:>8.2} ms", millis(spawn));
    println!("two syncs of 4 KiB                             {:>8.2} ms", millis(sync));
    println!(
        "`true` through the gate, tier b                {:>8.2} ms   allowed {:.2} ms",
        millis(whole),
        millis(allowed)
    );
    println!("  of that: the sandbox                         {:>8.2} ms", millis(ran));
    println!("  of that: decide, journal twice, attest       {:>8.2} ms", millis(whole.saturating_sub(ran)));
    println!("a tool that only tells, through the gate       {:>8.2} ms", millis(read));

    let long = runtime.block_on(open(&home.path().join("long")));
    runtime.block_on(fill(&long, LONG));
    let (mut in_short, mut in_long) = (Vec::new(), Vec::new());
    for _ in 0..1_500 {
        in_short.push(time(|| runtime.block_on(call(&short, "daemon.status", json!({})))));
        in_long.push(time(|| runtime.block_on(call(&long, "daemon.status", json!({})))));
    }
    let (in_short, in_long) = (median(in_short), median(in_long));
    let growth = in_long.as_secs_f64() / in_short.as_secs_f64();
    println!("a call decided and recorded, short journal     {:>8.2} ms", millis(in_short));
    println!("a call decided and recorded, {LONG} records {:>8.2} ms   {growth:.2} times", millis(in_long));

    judge(&[
        ("`true` through the gate is at most spawn with limits + 2 syncs + 1 ms", whole <= allowed),
        ("a call in a journal of 1 000 000 records is at most 1.2 times one in a short journal", growth <= 1.2),
    ])
}

/// The floor: a process with the same limits, set by whoever started it.
fn spawn_with_limits() {
    let mut child = Command::new("/usr/bin/true").env_clear().spawn().expect("it starts");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let limits = [
        (Resource::Cpu, 300),
        (Resource::As, 64 << 30),
        (Resource::Fsize, 4 << 30),
        (Resource::Nofile, 4_096),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        // It may be over already.
        let _ = prlimit(pid, resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    child.wait().expect("it ends");
}

fn two_syncs(log: &mut File) {
    for _ in 0..2 {
        log.write_all(&[7; 4_096]).expect("it writes");
        log.sync_data().expect("it syncs");
    }
}

/// A place in which programs run in tier B.
async fn open(directory: &Path) -> Place {
    let config = "[sandbox]\nplans = [{ tier = \"b\", egress = \"preflight\" }]";
    Place::open(PlacePlan { directory, journal: None, config, net: None }).await
}

/// Makes a call and returns how long it ran.
async fn call(place: &Place, tool: &str, args: Value) -> Duration {
    Duration::from_micros(place.call(tool, args).await.receipt.attestation.times.ran_us)
}

async fn fill(place: &Place, count: usize) {
    let begun = Instant::now();
    for _ in 0..count / 1_000 {
        let record = |_| NewRecord {
            kind: RecordKind::ToolStarted,
            subject: Subject::default(),
            time: Timestamp::from_unix_millis(1),
            body: Body::new("{}".to_owned(), &SystemEntropy).expect("a body"),
        };
        let records = (0..1_000).map(record).collect();
        place.opened.journal.commit(Transaction { records, changes: Vec::new() }).await.expect("it commits");
    }
    println!("filled with {count} records in {:.1} s", begun.elapsed().as_secs_f64());
    // So many are more than one segment holds. What is measured is the long journal, not the sealing of a segment beside it.
    place.opened.journal.maintain(Timestamp::from_unix_millis(1)).await.expect("it is tidied up");
}
