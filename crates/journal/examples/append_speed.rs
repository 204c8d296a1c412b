//! Prints how fast 64 callers append, each durably, while nothing else happens and while old records are sealed:
//! `cargo run --release -p palyra-journal --example append_speed`.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_journal::{
    Body, JournalStore, Keeping, NewRecord, RecordKind, Rotation, SqliteJournal, Subject, Transaction,
};
use palyra_types::{Clock, clock::SystemClock, entropy::SystemEntropy};

const CALLERS: usize = 64;
const LONG: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for (name, segment_bytes) in [("not sealing", 1 << 40), ("sealing every 4 MiB", 4 << 20)] {
        let directory = tempfile::tempdir()?;
        let keeping = Keeping { rotation: Rotation { segment_bytes, keep_bytes: 1 << 40 }, ..Keeping::default() };
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
        let journal = Arc::new(SqliteJournal::open_keeping(directory.path(), keeping, clock, entropy)?);
        let start = Instant::now();
        let callers: Vec<_> = (0..CALLERS).map(|_| runtime.spawn(call_for_long(Arc::clone(&journal), start))).collect();
        let mut waited = Vec::new();
        for caller in callers {
            waited.extend(runtime.block_on(caller)??);
        }
        let seconds = start.elapsed().as_secs_f64();
        waited.sort();
        let at = |share: usize| waited.get(waited.len() * share / 1_000).copied().unwrap_or_default();
        let segments = std::fs::read_dir(directory.path().join("segments")).map_or(0, Iterator::count);
        println!(
            "{name}: {} commits in {seconds:.1} s, half within {:?}, 99% within {:?}, all within {:?}; {segments} segments",
            waited.len(),
            at(500),
            at(990),
            waited.last().copied().unwrap_or_default(),
        );
    }
    Ok(())
}

type Waited = Result<Vec<Duration>, palyra_journal::CommitError>;

async fn call_for_long(journal: Arc<SqliteJournal>, start: Instant) -> Waited {
    let mut waited = Vec::new();
    while start.elapsed() < LONG {
        let Ok(body) = Body::new("x".repeat(300), &SystemEntropy) else { break };
        let (kind, subject, time) = (RecordKind::ToolProposed, Subject::default(), SystemClock::new().now());
        let records = vec![NewRecord { kind, subject, time, body }];
        let begin = Instant::now();
        journal.commit(Transaction { records, changes: Vec::new() }).await?;
        waited.push(begin.elapsed());
    }
    Ok(waited)
}
