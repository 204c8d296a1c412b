//! The disk fills up, goes read-only, fails and comes back; processes are killed: nothing that was acknowledged is lost, nothing is
//! acknowledged that is not there, and the journal recovers by itself.
//!
//! What needs a process of its own runs as the ignored test `task` of this same program, told by the environment what to do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and start processes"
)]

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use palyra_journal::{
    CommitError, JournalStore, RecordKind, SqliteJournal, Transaction, Trouble, Trust, sqlite::DATABASE_FILE, verify,
};
use palyra_types::{
    Timestamp,
    clock::{ManualClock, SystemClock},
    entropy::SystemEntropy,
};

use crate::lab::{Lab, append, commit, record, said, wait};

/// Runs this program again, to do one thing in a process of its own.
fn child(task: &str, directory: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "disk::task", "--ignored", "--nocapture"]);
    command.env("TASK", task).env("DIRECTORY", directory);
    command
}

#[test]
#[ignore = "a process of its own for the other tests"]
fn task() {
    let Ok(task) = env::var("TASK") else { return };
    let directory = PathBuf::from(env::var_os("DIRECTORY").unwrap());
    match task.as_str() {
        "full" => full(&directory),
        "failing" => failing(&directory),
        "append" => append_forever(&directory),
        "group" => group(&directory),
        "open" => println!("{:?}", open(&directory).err()),
        other => panic!("unknown task {other}"),
    }
}

fn open(directory: &Path) -> Result<SqliteJournal, Trouble> {
    SqliteJournal::open(directory, Arc::new(SystemClock::new()), Arc::new(SystemEntropy))
}

fn try_commit(journal: &SqliteJournal, lab: &Lab, n: u64, length: usize) -> Result<u64, CommitError> {
    let records = vec![said(lab, n, "x".repeat(length))];
    wait(journal.commit(Transaction { records, changes: Vec::new() })).map(|committed| committed.first_seq)
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "it took too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the records about recoveries say.
fn recoveries(journal: &SqliteJournal) -> Vec<serde_json::Value> {
    let records = wait(journal.records(0, usize::MAX)).unwrap();
    let recovered = records.into_iter().filter(|stored| stored.record.kind == RecordKind::JournalRecovered);
    recovered.map(|stored| serde_json::from_str(&stored.body.unwrap()).unwrap()).collect()
}

/// Checks that every acknowledged record is there, with its hash, and that all of it verifies.
fn nothing_is_lost(directory: &Path, journal: &SqliteJournal, acknowledged: &BTreeMap<u64, String>) {
    let records = wait(journal.records(0, usize::MAX)).unwrap();
    for (&seq, body) in acknowledged {
        assert_eq!(records[usize::try_from(seq).unwrap()].body.as_ref(), Some(body), "record {seq}");
    }
    verify(directory, &Trust::default(), &mut |_, _| {}).unwrap();
}

/// Runs a task in a file system of a few megabytes that nobody else sees.
fn in_small_file_system(task: &str) {
    let mount = tempfile::tempdir().unwrap();
    let rights = if is_root() { "-m" } else { "-rm" };
    let script = "mount -t tmpfs -o size=4m,mode=700 tmpfs \"$DIRECTORY\" && exec \"$@\"";
    let program = child(task, mount.path());
    let mut command = Command::new("unshare");
    command.args([rights, "sh", "-c", script, "sh"]).arg(program.get_program()).args(program.get_args());
    command.env("TASK", task).env("DIRECTORY", mount.path());
    let output = command.output().expect("`unshare` of util-linux is needed");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0)
}

#[test]
fn a_full_disk_refuses_calls_loses_nothing_and_recovers_by_itself() {
    in_small_file_system("full");
}

fn full(directory: &Path) {
    let (lab, home) = (Lab::new(), directory.join("journal"));
    let journal = open(&home).unwrap();
    let mut acknowledged = BTreeMap::new();
    for n in 0..20 {
        acknowledged.insert(try_commit(&journal, &lab, n, 500).unwrap(), "x".repeat(500));
    }
    // Somebody else fills the disk.
    let filler = directory.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4_096]).is_ok() {}
    let mut refused = 0;
    for n in 0..200 {
        match try_commit(&journal, &lab, n, 20_000) {
            Ok(seq) => drop(acknowledged.insert(seq, "x".repeat(20_000))),
            Err(error) => {
                assert_eq!(error, CommitError::Unwritable(Trouble::DiskFull));
                refused += 1;
            }
        }
        if refused == 7 {
            break;
        }
    }
    assert_eq!((refused, journal.trouble()), (7, Some(Trouble::DiskFull)));
    // Reading works all the while.
    nothing_is_lost(&home, &journal, &acknowledged);
    drop(file);
    fs::remove_file(&filler).unwrap();
    // Nobody calls, and still it recovers and tells.
    until("it recovers", || journal.trouble().is_none());
    let told = recoveries(&journal);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["refused"], &told[0]["trouble"]), (&7.into(), &"the disk is full".into()));
    assert!(Timestamp::parse(told[0]["since"].as_str().unwrap()).is_ok());
    acknowledged.insert(try_commit(&journal, &lab, 9, 300).unwrap(), "x".repeat(300));
    nothing_is_lost(&home, &journal, &acknowledged);
    // A full disk when it opens is told as such, too, and a read-only one.
    drop(journal);
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4_096]).is_ok() {}
    let fresh = SqliteJournal::open(&directory.join("fresh"), Arc::new(SystemClock::new()), Arc::new(SystemEntropy));
    assert_eq!(fresh.err(), Some(Trouble::DiskFull));
    drop(file);
    fs::remove_file(&filler).unwrap();
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(directory).status().unwrap();
        assert!(done.success());
    };
    remount("ro");
    assert_eq!(open(&home).err(), Some(Trouble::ReadOnly));
    // Whoever only verifies needs no right to write.
    verify(&home, &Trust::default(), &mut |_, _| {}).unwrap();
    remount("rw");
    let journal = open(&home).unwrap();
    nothing_is_lost(&home, &journal, &acknowledged);
}

/// Builds the library that makes the disk fail.
fn shim(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/faults/shim.c");
    let library = directory.join("shim.so");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(built.unwrap().success());
    library
}

fn with_shim(task: &str) -> (tempfile::TempDir, Command) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = child(task, directory.path());
    command.env("LD_PRELOAD", shim(directory.path()));
    command.env("FAULTS", directory.path().join("faults")).env("SYNCS", directory.path().join("syncs"));
    (directory, command)
}

#[test]
fn a_disk_that_fails_in_any_way_refuses_calls_loses_nothing_and_recovers_by_itself() {
    let (_directory, mut command) = with_shim("failing");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

type Expected<'a> = &'a dyn Fn(&Trouble) -> bool;

fn failing(directory: &Path) {
    let (lab, home, faults) = (Lab::new(), directory.join("home"), directory.join("faults"));
    let journal = open(&home).unwrap();
    let mut acknowledged = BTreeMap::new();
    let is_disk = |trouble: &Trouble| matches!(trouble, Trouble::Disk(_));
    let is_full = |trouble: &Trouble| *trouble == Trouble::DiskFull;
    let is_read_only = |trouble: &Trouble| *trouble == Trouble::ReadOnly;
    let cases: [(&str, Expected<'_>); 5] = [
        ("sync 5", &is_disk),             // EIO
        ("write 5", &is_disk),            // EIO
        ("write 28", &is_full),           // ENOSPC
        ("write open 30", &is_read_only), // EROFS
        ("sync write open 5", &is_disk),
    ];
    for (round, (fault, expected)) in cases.iter().enumerate() {
        for n in 0..5 {
            acknowledged.insert(try_commit(&journal, &lab, n, 400).unwrap(), "x".repeat(400));
        }
        fs::write(&faults, fault).unwrap();
        for n in 0..3 {
            match try_commit(&journal, &lab, n, 400) {
                Err(CommitError::Unwritable(trouble)) => assert!(expected(&trouble), "{fault}: {trouble:?}"),
                other => panic!("{fault}: {other:?}"),
            }
        }
        assert!(journal.trouble().is_some_and(|trouble| expected(&trouble)), "{fault}: {:?}", journal.trouble());
        fs::remove_file(&faults).unwrap();
        until("it recovers", || journal.trouble().is_none());
        let told = recoveries(&journal);
        assert_eq!((told.len(), &told[round]["refused"]), (round + 1, &3.into()), "{fault}: {told:?}");
        nothing_is_lost(&home, &journal, &acknowledged);
    }
}

#[test]
fn a_database_that_is_deleted_or_exchanged_is_refused_and_never_made_anew() {
    for how in ["deleted", "exchanged", "older", "log deleted"] {
        let (lab, other) = (Lab::new(), Lab::new());
        drop(other.open());
        let journal = lab.open();
        // What follows is in the log alone.
        wait(journal.maintain(lab.now())).unwrap();
        append(&lab, &journal, 5);
        let (database, log) = (lab.path().join(DATABASE_FILE), lab.path().join("journal.db-wal"));
        let older = lab.copy();
        append(&lab, &journal, 5);
        // Somebody who read before reads afterwards, too.
        assert_eq!(wait(journal.records(0, usize::MAX)).unwrap().len(), 11);
        let aside = lab.path().join("aside");
        match how {
            "deleted" => fs::rename(&database, &aside).unwrap(),
            "log deleted" => fs::rename(&log, &aside).unwrap(),
            "exchanged" => {
                fs::rename(&database, &aside).unwrap();
                fs::copy(other.path().join(DATABASE_FILE), &database).unwrap();
            }
            _ => {
                drop(older.open());
                fs::rename(&database, &aside).unwrap();
                fs::copy(older.path().join(DATABASE_FILE), &database).unwrap();
                fs::remove_file(&log).unwrap();
            }
        }
        // What a deleted log holds is worked into the database while the log is open still; after that the journal is whole again.
        let refusals = if how == "log deleted" { 1 } else { 2 };
        for n in 0..refusals {
            let refused = try_commit(&journal, &lab, n, 10);
            let replaced = matches!(
                refused,
                Err(CommitError::Unwritable(Trouble::Replaced(_) | Trouble::Key(_) | Trouble::Damaged(_)))
            );
            assert!(replaced, "{how}: {refused:?}");
        }
        assert!(how != "deleted" || !database.exists());
        if how == "deleted" || how == "log deleted" {
            // What was only moved away can come back.
            if how == "deleted" {
                fs::rename(&aside, &database).unwrap();
            }
            until("it recovers", || journal.trouble().is_none());
            assert_eq!(commit(&journal, vec![record(&lab, 1)]).first_seq, 12);
            assert_eq!(wait(journal.records(0, usize::MAX)).unwrap().len(), 13, "{how}");
            verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap();
        }
    }
}

#[test]
fn whatever_was_acknowledged_survives_being_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..20_u64 {
        let mut process = child("append", directory.path());
        process.env("ROUND", round.to_string()).stdout(Stdio::piped());
        let mut process: Child = process.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        // It is killed in the middle of what it does, a little later each time.
        let enough = 40 + usize::try_from(round).unwrap() * 15;
        let mut hear = |line: String| {
            if let Some((seq, hash)) = line.strip_prefix("acknowledged ").and_then(|told| told.split_once(' ')) {
                let before = acknowledged.insert(seq.parse::<u64>().unwrap(), hash.to_owned());
                assert_eq!(before, None, "record {seq} was acknowledged twice");
            }
        };
        lines.by_ref().map_while(Result::ok).take(enough).for_each(&mut hear);
        process.kill().unwrap();
        // What it said before it died counts as well; the last line may be cut off.
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        rest.into_iter().filter(|line| line.len() > 64 && line.ends_with('.')).for_each(&mut hear);
        process.wait().unwrap();
    }
    assert!(acknowledged.len() > 1_000, "{}", acknowledged.len());
    let report = verify(directory.path(), &Trust::default(), &mut |_, _| {}).unwrap();
    let journal = open(directory.path()).unwrap();
    let records = wait(journal.records(0, usize::MAX)).unwrap();
    assert_eq!(u64::try_from(records.len()).unwrap(), report.head.size);
    for (seq, hash) in acknowledged {
        assert_eq!(format!("{}.", records[usize::try_from(seq).unwrap()].hash), hash, "record {seq}");
    }
}

fn append_forever(directory: &Path) {
    let journal = Arc::new(open(directory).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // This process is killed, so nothing that it makes elsewhere would be tidied up.
    let lab = Arc::new(Lab::within(directory));
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let (journal, lab) = (Arc::clone(&journal), Arc::clone(&lab));
            runtime.spawn(async move {
                for n in 0.. {
                    let records = vec![record(&lab, task * 1_000 + n)];
                    let committed = journal.commit(Transaction { records, changes: Vec::new() }).await.unwrap();
                    let (seq, hash) = committed.last().unwrap();
                    // One write each, so that lines are whole.
                    let line = format!("acknowledged {seq} {hash}.\n");
                    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn many_callers_share_a_sync() {
    let (directory, mut command) = with_shim("group");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    let syncs = fs::metadata(directory.path().join("syncs")).unwrap().len();
    // 64 callers, 20 commits each: one sync a commit would be 1 280.
    assert!((20..640).contains(&syncs), "{syncs} syncs for 1280 commits");
    println!("{syncs} syncs for 1280 commits");
}

fn group(directory: &Path) {
    let journal = Arc::new(open(&directory.join("home")).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let (journal, lab) = (Arc::clone(&journal), Lab::new());
            runtime.spawn(async move {
                for n in 0..20 {
                    let records = vec![record(&lab, task * 100 + n)];
                    journal.commit(Transaction { records, changes: Vec::new() }).await.unwrap();
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn the_write_ahead_log_stays_short_without_the_writer_having_to_stop() {
    let lab = Lab::new();
    let journal = lab.open();
    // Six times as much as the length at which the log is worked into the database, and one and a half times the length at which the writer
    // would have to do it itself.
    for n in 0..24 {
        commit(&journal, vec![said(&lab, n, "x".repeat(1 << 20))]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let length = fs::metadata(lab.path().join("journal.db-wal")).unwrap().len();
    assert!(length < 14 << 20, "{length}");
    drop(journal);
    verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap();
}

#[test]
fn another_process_cannot_open_a_journal_that_is_in_use() {
    let lab = Lab::new();
    let journal = lab.open();
    let opened = || String::from_utf8(child("open", lab.path()).output().unwrap().stdout).unwrap();
    assert!(opened().contains("Some(InUse("), "{}", opened());
    drop(journal);
    assert!(opened().contains("None"), "{}", opened());
}

#[test]
fn a_wall_clock_that_jumps_does_not_harm_the_chain() {
    let lab = Lab::new();
    let clock: &ManualClock = &lab.clock;
    let journal = lab.open();
    for time in [0, 1_900_000_000_000, 5, i64::MAX, 1_800_000_000_000, i64::MIN / 2] {
        clock.set_wall(Timestamp::from_unix_millis(time));
        let body = palyra_journal::Body::new("{}".to_owned(), &SystemEntropy).unwrap();
        let (kind, subject) = (RecordKind::DaemonStarted, palyra_journal::Subject::default());
        let time = Timestamp::from_unix_millis(time);
        commit(&journal, vec![palyra_journal::NewRecord { kind, subject, time, body }]);
    }
    drop(journal);
    // What was the latest is known still, whatever the last record says.
    assert_eq!(wait(lab.open().latest()).unwrap(), Timestamp::from_unix_millis(i64::MAX));
    assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 7);
}
