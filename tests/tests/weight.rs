//! What it costs the daemon that many calls wait.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::time::Duration;

use palyra_journal::{JournalStore, state::CallState};
use palyra_tests::Lab;
use serde_json::json;

/// One agent may have thousands of questions pending, each with a megabyte of arguments. Alone in its file, because it looks at the memory
/// of the whole process.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_do_not_keep_their_arguments_in_memory() {
    const CALLS: usize = 24;
    const CONTENT: usize = 1 << 19;
    let lab = Lab::new().await;
    let (mut calls, mut before) = (Vec::new(), 0);
    // The first few fill what is kept anyway, such as the pages of the database.
    for n in 1..=CALLS + 4 {
        let content = "x".repeat(CONTENT);
        calls.push(lab.propose(lab.call("fs.write", json!({ "path": format!("file{n}"), "content": content }))));
        while lab.journal.calls_in(CallState::Waiting).await.unwrap().len() < n {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if n == 4 {
            before = resident();
        }
    }
    let each = resident().saturating_sub(before) / CALLS;
    // Each would hold its arguments six or seven times over; the allocator keeps some of what was given back.
    assert!(each < 2 * CONTENT, "each waiting call takes {each} bytes");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The bytes of memory that this process really uses.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
