//! Prints how many records are verified in a second on one core: `cargo run --release -p palyra-journal --example verify_speed`.

use std::{error::Error, sync::Arc, time::Instant};

use palyra_journal::{Body, JournalStore, NewRecord, RecordKind, SqliteJournal, Subject, Transaction, Trust, verify};
use palyra_types::{
    Clock, Timestamp,
    clock::SystemClock,
    entropy::SystemEntropy,
    id::{CallId, RunId, SessionId},
};

const RECORDS: u64 = 300_000;
const BATCH: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let journal = SqliteJournal::open(directory.path(), Arc::new(SystemClock::new()), Arc::new(SystemEntropy))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let now = SystemClock::new().now();
    let mut bytes = 0;
    for batch in 0..RECORDS / BATCH {
        let mut transaction = Transaction::default();
        for n in 0..BATCH {
            let record = record(now, u128::from(batch * BATCH + n))?;
            bytes += record.body.text().len();
            transaction.records.push(record);
        }
        runtime.block_on(journal.commit(transaction))?;
    }
    println!("{RECORDS} records with bodies of {} bytes on average", bytes / usize::try_from(RECORDS)?);
    for _ in 0..3 {
        let start = Instant::now();
        let report = verify(directory.path(), &Trust::default(), &mut |_, _| {})?;
        let seconds = start.elapsed().as_secs_f64();
        println!("verified {} records in {seconds:.2} s: {:.0} records/s", report.records, RECORDS_F / seconds);
    }
    Ok(())
}

const RECORDS_F: f64 = 300_000.0;

fn record(now: Timestamp, n: u128) -> Result<NewRecord, Box<dyn Error>> {
    let subject = Subject {
        session: Some(SessionId::from_parts(now, n)),
        run: Some(RunId::from_parts(now, n)),
        call: Some(CallId::from_parts(now, n)),
        approval: None,
    };
    let text = format!(
        "{{\"tool\":\"process.run\",\"argv\":[\"cargo\",\"test\",\"--workspace\",\"{n}\"],\"cwd\":\"{}\"}}",
        "x".repeat(200)
    );
    Ok(NewRecord { kind: RecordKind::ToolProposed, subject, time: now, body: Body::new(text, &SystemEntropy)? })
}
