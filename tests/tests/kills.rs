//! `kill -9` at any moment: what was acknowledged is there, nothing ran twice, nothing ran unrecorded, no approval was used twice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends, and it kills a process that it started"
)]

use std::{
    collections::HashSet,
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use palyra_journal::{JournalStore, RecordKind, SqliteJournal, Trust, state::CallState, verify};
use palyra_tests::{Audit, Setup};
use palyra_types::{clock::SystemClock, entropy::SystemEntropy, id::CallId};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_nothing_that_was_acknowledged_and_run_nothing_twice() {
    kill_again_and_again(200, None, 260).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_for_an_ordinary_user() {
    kill_again_and_again(20, Some("65534"), 1_000).await;
}

/// `longest` is the longest moment before a kill, in milliseconds.
async fn kill_again_and_again(rounds: u32, user: Option<&str>, longest: u64) {
    let home = tempfile::tempdir().unwrap();
    let (state, workspace) = (home.path().join("state"), home.path().join("workspace"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&workspace).unwrap();
    let user = user.filter(|_| is_root());
    if let Some(user) = user {
        let mine = Command::new("chown").args(["-R", &format!("{user}:{user}")]).arg(home.path()).status().unwrap();
        assert!(mine.success());
    }
    let mut said = String::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        said.push_str(&run_and_kill(&state, &workspace, user, Duration::from_millis(40 + (random >> 33) % longest)));
        assert!(said.len() > 1 || round == 0, "the harness says nothing");
    }
    if user.is_some() {
        let mine = Command::new("chown").args(["-R", "0:0"]).arg(home.path()).status().unwrap();
        assert!(mine.success());
    }
    let (acknowledged, used) = check(&state, &workspace, &said).await;
    let enough = usize::try_from(rounds).unwrap();
    assert!(acknowledged > enough, "{acknowledged} calls came to their end, too few to show anything");
    assert!(used > enough / 4, "{used} answers were used, too few to show anything");
}

/// Starts the harness, lets it work for a moment after its first word, and kills it. Returns what it said.
fn run_and_kill(state: &Path, workspace: &Path, user: Option<&str>, moment: Duration) -> String {
    let harness = env!("CARGO_BIN_EXE_harness");
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid", user, "--clear-groups", harness]);
            command
        }
        None => Command::new(harness),
    };
    let mut child = command.arg(state).arg(workspace).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).expect("the harness ended before it said anything");
    std::thread::sleep(moment);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let mut said = first.to_vec();
    said.extend(rest);
    // The last line may be cut short.
    said.truncate(said.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
    String::from_utf8(said).unwrap()
}

/// Returns how many calls were acknowledged and how many approvals used.
async fn check(state: &Path, workspace: &Path, said: &str) -> (usize, usize) {
    recover_once_more(state, workspace).await;
    let report = verify(&state.join("journal"), &Trust::default(), &mut |_, _| {}).expect("the journal verifies");
    let journal =
        SqliteJournal::open(&state.join("journal"), Arc::new(SystemClock::new()), Arc::new(SystemEntropy)).unwrap();
    let records = journal.records(0, usize::MAX).await.unwrap();

    let mut acknowledged = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["ran", call, seq, hash] => {
                let record = &records[seq.parse::<usize>().unwrap()];
                assert_eq!(record.hash.to_string(), *hash, "record {seq} is not the one that was acknowledged");
                assert_eq!(record.record.kind, RecordKind::ToolAttested);
                assert_eq!(record.record.subject().call.unwrap().to_string(), *call);
                acknowledged += 1;
            }
            ["accepted", call] => {
                let call = CallId::parse(call).unwrap();
                assert!(journal.call(call).await.unwrap().is_some(), "the accepted call {call} is gone");
            }
            ["approved", id] => {
                let resolved = records.iter().any(|one| {
                    one.record.kind == RecordKind::ApprovalResolved
                        && one.record.subject().approval.is_some_and(|approval| approval.to_string() == *id)
                });
                assert!(resolved, "the answer to {id} is gone");
            }
            ["refused", _, code] => assert!(matches!(*code, "cancelled" | "approval_expired"), "{line}"),
            ["recovered", ..] => {}
            _ => panic!("what is `{line}`?"),
        }
    }

    let Audit { started, used } = Audit::of(&records);
    assert!(journal.calls_in(CallState::Started).await.unwrap().is_empty());

    let mut ran = HashSet::new();
    for file in ["allowed.log", "asked.log", "written.log"] {
        for line in fs::read_to_string(workspace.join(file)).unwrap_or_default().lines() {
            let call = CallId::parse(line).unwrap_or_else(|_| panic!("what is `{line}`?"));
            assert!(ran.insert(call), "the call {call} ran twice");
            assert!(started.contains(&call), "the call {call} ran without a durable record");
        }
    }
    assert_eq!(report.records, u64::try_from(records.len()).unwrap());
    println!(
        "{} records, {acknowledged} acknowledged calls, {} started, {} ran, {} approvals used",
        records.len(),
        started.len(),
        ran.len(),
        used.len()
    );
    (acknowledged, used.len())
}

/// The daemon that is started last brings everything in order and is stopped by nobody.
async fn recover_once_more(state: &Path, workspace: &Path) {
    let setup = Setup {
        journal: &state.join("journal"),
        state,
        workspace,
        // Nothing that waits may start any more: what is checked must not change.
        config: "[policy]\npreset = \"observe\"",
        policies: None,
        pin: None,
        clock: None,
        faults: None,
    };
    let state = state.to_owned();
    let opened = setup.open().await;
    opened.gate.recover().await.unwrap();
    for _ in 0..1_000 {
        if opened.journal.calls_in(CallState::Started).await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let journal = Arc::downgrade(&opened.journal);
    drop(opened);
    // Calls that wait hold on to the journal; the check opens a copy of it.
    if journal.upgrade().is_some() {
        let copy = state.join("copy");
        copy_directory(&state.join("journal"), &copy);
        fs::rename(state.join("journal"), state.join("held")).unwrap();
        fs::rename(copy, state.join("journal")).unwrap();
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
