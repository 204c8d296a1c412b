//! What the journal costs: group commit next to one sync for each append, one append next to one row of raw SQLite, an append to a long
//! journal next to one to a short one, and how fast a journal is verified. A missed target ends the program with an error.

#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a measurement that cannot be set up ends")]

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_benches::{judge, median, time};
use palyra_journal::{
    Body, JournalStore, Keeping, NewRecord, RecordKind, Rotation, SqliteJournal, Subject, Transaction, Trust, verify,
};
use palyra_types::{
    Timestamp,
    clock::SystemClock,
    entropy::SystemEntropy,
    id::{CallId, RunId, SessionId},
};
use tokio::runtime::Runtime;

const WRITERS: u64 = 64;
const ROUNDS: usize = 5;
const SHORT: u64 = 1_000;
const LONG: u64 = 1_000_000;

fn main() -> std::process::ExitCode {
    // One worker: the journal's own thread has the other core.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);

    let journal = Arc::new(open(&at("group")));
    let raw = Raw::open(&at("raw.db"));
    // The same work with a sync for each append is what group commit is held to. A bare row of raw SQLite, which is neither linked, signed
    // nor part of a tree, is told beside it.
    let (mut bare, mut single, mut group) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(raw.rows_per_second(Duration::from_millis(700)));
        single.push(one_at_a_time(&runtime, &journal, Duration::from_millis(700)));
        group.push(appends_per_second(&runtime, &journal, Duration::from_millis(1_500)));
    }
    let (bare, single, group) = (middle(bare), middle(single), middle(group));
    let (over_bare, over_single) = (group / bare, group / single);
    println!("one bare row and one sync at a time, SQLite   {bare:>9.0} records/s");
    println!("one append and one sync at a time             {single:>9.0} records/s");
    println!(
        "{WRITERS} writers, each waits until it is durable     {group:>9.0} records/s   {over_single:.1} times one append \
         at a time, {over_bare:.1} times one bare row"
    );

    // Taken in turns, so that both have the same disk.
    let (mut alone, mut row) = (Vec::new(), Vec::new());
    for n in 0..3_000_u64 {
        let transaction = one(n);
        alone.push(time(|| runtime.block_on(journal.commit(transaction)).expect("it commits")));
        row.push(time(|| raw.insert()));
    }
    let (alone, row) = (median(alone), median(row));
    let overhead = alone.as_secs_f64() / row.as_secs_f64();
    println!("one durable row, raw SQLite                   {:>9.1} µs", micros(row));
    println!("one durable append, nobody else writes        {:>9.1} µs   {overhead:.2} times", micros(alone));

    let (short, long) = (open(&at("short")), open(&at("long")));
    fill(&runtime, &short, SHORT);
    let filled = time(|| fill(&runtime, &long, LONG));
    println!("filled with {LONG} records in {:.1} s", filled.as_secs_f64());
    let (mut to_short, mut to_long) = (Vec::new(), Vec::new());
    for n in 0..3_000_u64 {
        to_short.push(time(|| append(&runtime, &short, n)));
        to_long.push(time(|| append(&runtime, &long, n)));
    }
    let (to_short, to_long) = (median(to_short), median(to_long));
    let growth = to_long.as_secs_f64() / to_short.as_secs_f64();
    println!("durable append with {SHORT:>9} records           {:>9.1} µs", micros(to_short));
    println!("durable append with {LONG:>9} records           {:>9.1} µs   {growth:.2} times", micros(to_long));

    drop((short, long));
    let mut rates = Vec::new();
    for _ in 0..3 {
        let mut records = 0;
        let took = time(|| {
            records = verify(&at("long"), &Trust::default(), &mut |_, _| {}).expect("it verifies").records;
        });
        rates.push(records as f64 / took.as_secs_f64());
    }
    let rate = middle(rates);
    println!("verification                                  {rate:>9.0} records/s");

    judge(&[
        ("group commit is at least 20 times one sync for each append", over_single >= 20.0),
        ("group commit is at least 50 000 records/s", group >= 50_000.0),
        ("one append is at most twice one row of raw SQLite", overhead <= 2.0),
        ("an append to 1 000 000 records is at most 1.2 times one to 1 000", growth <= 1.2),
        ("verification is at least 100 000 records/s", rate >= 100_000.0),
    ])
}

fn open(directory: &Path) -> SqliteJournal {
    // Nothing is sealed meanwhile, so that a long journal is one.
    let keeping = Keeping { rotation: Rotation { segment_bytes: 1 << 40, keep_bytes: 1 << 42 }, ..Keeping::default() };
    SqliteJournal::open_keeping(directory, keeping, Arc::new(SystemClock::new()), Arc::new(SystemEntropy))
        .expect("a journal")
}

fn one_at_a_time(runtime: &Runtime, journal: &Arc<SqliteJournal>, long: Duration) -> f64 {
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < long {
        append(runtime, journal, count);
        count += 1;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

fn appends_per_second(runtime: &Runtime, journal: &Arc<SqliteJournal>, long: Duration) -> f64 {
    let begun = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let journal = Arc::clone(journal);
            runtime.spawn(async move {
                let mut count = 0_u64;
                while begun.elapsed() < long {
                    journal.commit(one(writer << 40 | count)).await.expect("it commits");
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for writer in writers {
        count += runtime.block_on(writer).expect("it ends");
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

fn append(runtime: &Runtime, journal: &SqliteJournal, n: u64) {
    runtime.block_on(journal.commit(one(n))).expect("it commits");
}

fn fill(runtime: &Runtime, journal: &SqliteJournal, count: u64) {
    for first in (0..count).step_by(1_000) {
        let records = (first..first + 1_000).map(record).collect();
        runtime.block_on(journal.commit(Transaction { records, changes: Vec::new() })).expect("it commits");
    }
}

fn one(n: u64) -> Transaction {
    Transaction { records: vec![record(n)], changes: Vec::new() }
}

/// As large as what a call leaves behind on average.
fn record(n: u64) -> NewRecord {
    let time = Timestamp::from_unix_millis(1_770_000_000_000);
    let subject = Subject {
        session: Some(SessionId::from_parts(time, 1)),
        run: Some(RunId::from_parts(time, 2)),
        call: Some(CallId::from_parts(time, n.into())),
        approval: None,
    };
    let text = format!(
        "{{\"args\":{{\"command\":[\"cargo\",\"test\",\"{n}\"]}},\"tool\":\"process.run\",\"x\":\"{}\"}}",
        "x".repeat(180)
    );
    NewRecord { kind: RecordKind::ToolStarted, subject, time, body: Body::new(text, &SystemEntropy).expect("a body") }
}

/// The peer: SQLite with the same settings and the same row, one row in each transaction.
struct Raw(rusqlite::Connection);

impl Raw {
    fn open(path: &Path) -> Self {
        let connection = rusqlite::Connection::open(path).expect("a database");
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).expect("a log");
        connection.pragma_update(None, "synchronous", "full").expect("syncs");
        let table = "CREATE TABLE records (seq INTEGER PRIMARY KEY, record TEXT, hash BLOB, salt BLOB, body TEXT)";
        connection.execute_batch(table).expect("a table");
        Self(connection)
    }

    fn rows_per_second(&self, long: Duration) -> f64 {
        let begun = Instant::now();
        let mut count = 0_u64;
        while begun.elapsed() < long {
            self.insert();
            count += 1;
        }
        count as f64 / begun.elapsed().as_secs_f64()
    }

    fn insert(&self) {
        let (header, hash, body) = ("x".repeat(330), [7_u8; 32], "x".repeat(260));
        let sql = "INSERT INTO records (record, hash, salt, body) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = self.0.prepare_cached(sql).expect("a statement");
        insert.execute((&header, &hash, &hash, &body)).expect("a row");
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
