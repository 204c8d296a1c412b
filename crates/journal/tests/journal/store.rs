//! What every store promises: transactions that touch nobody else's, budgets that hold, and commits that everybody hears of.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{sync::Arc, time::Duration};

use palyra_journal::{
    CommitError, JournalStore, SqliteJournal, Transaction, Trouble, Trust,
    state::{
        ApprovalRow, ApprovalState, CallKey, CallRow, CallState, Change, Charge, Conflict, KEY_LIFE, KeyRow, RunRow,
        TakenKey, VaultRow, Waiting,
    },
    verify,
};
use palyra_types::{
    IdempotencyKey, Sha256Digest,
    entropy::SystemEntropy,
    id::{ApprovalId, CallId, NodeId, RunId, SessionId},
};

use crate::lab::{Lab, pending, record, said, wait};

/// Commits 64 transactions at once, and says what came of each.
fn at_once(lab: &Lab, journal: &Arc<SqliteJournal>, change: impl Fn(u64) -> Change) -> Vec<Result<u64, CommitError>> {
    let transaction = |n| Transaction { records: vec![record(lab, n)], changes: vec![change(n)] };
    all_at_once(journal, (0..64).map(transaction).collect())
}

fn all_at_once(journal: &Arc<SqliteJournal>, transactions: Vec<Transaction>) -> Vec<Result<u64, CommitError>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let commit = |transaction| {
        let journal = Arc::clone(journal);
        runtime.spawn(async move { journal.commit(transaction).await.map(|committed| committed.first_seq) })
    };
    let tasks: Vec<_> = transactions.into_iter().map(commit).collect();
    tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect()
}

fn question(lab: &Lab, n: u64) -> ApprovalRow {
    ApprovalRow {
        id: ApprovalId::from_parts(lab.now(), n.into()),
        call: CallId::from_parts(lab.now(), n.into()),
        session: SessionId::from_parts(lab.now(), 1),
        principal: "agent:a".to_owned(),
        digest: Sha256Digest::of(b"x"),
        state: ApprovalState::Pending,
        document: "{}".to_owned(),
    }
}

#[test]
fn of_64_answers_to_one_question_exactly_one_counts() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let row = question(&lab, 1);
    let id = row.id;
    let add = Change::AddApproval { row, limits: pending(1, 1) };
    wait(journal.commit(Transaction { records: Vec::new(), changes: vec![add] })).unwrap();
    let outcomes = at_once(&lab, &journal, |n| Change::MoveApproval {
        id,
        from: ApprovalState::Pending,
        to: if n % 2 == 0 { ApprovalState::Approved } else { ApprovalState::Denied },
        document: Some(format!("{{\"by\":{n}}}")),
    });
    let won: Vec<_> = (0..64).filter(|&n| outcomes[n].is_ok()).collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    let stored = wait(journal.approval(id)).unwrap().unwrap();
    assert_eq!(stored.document, format!("{{\"by\":{}}}", won[0]));
    for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
        assert_eq!(*outcome, Err(Conflict::Approval(stored.state).into()));
    }
    // Those that lost wrote no record, and the one that won did.
    assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 2);
}

#[test]
fn conflicts_in_a_batch_do_not_touch_the_others() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let outcomes =
        at_once(&lab, &journal, |n| Change::AddApproval { row: question(&lab, n / 2), limits: pending(100, 100) });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 32);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(CommitError::Conflict(Conflict::Exists)))));
    let mut numbers: Vec<_> = outcomes.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..33).collect::<Vec<_>>());
    // Of several changes, all happen or none.
    let two = vec![
        Change::AddApproval { row: question(&lab, 90), limits: pending(100, 100) },
        Change::AddApproval { row: question(&lab, 0), limits: pending(100, 100) },
    ];
    let refused = wait(journal.commit(Transaction { records: vec![record(&lab, 1)], changes: two }));
    assert_eq!(refused, Err(Conflict::Exists.into()));
    assert_eq!(wait(journal.approval(question(&lab, 90).id)), Ok(None));
    assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 33);
}

#[test]
fn a_transaction_that_the_database_refuses_fails_alone() {
    // Nothing that a caller says makes SQLite refuse it, as far as is known, so the database is made to.
    let triggers = [
        "CREATE TRIGGER no BEFORE INSERT ON approvals WHEN new.principal = 'agent:bad' BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TRIGGER no BEFORE INSERT ON records WHEN new.body LIKE '%agent:bad%' BEGIN SELECT RAISE(ABORT, 'no'); END",
    ];
    for trigger in triggers {
        let lab = Lab::new();
        let journal = Arc::new(lab.open());
        lab.database().execute_batch(trigger).unwrap();
        let transaction = |n: u64| {
            let principal = if n % 8 == 3 { "agent:bad" } else { "agent:a" };
            let row = ApprovalRow { principal: principal.to_owned(), ..question(&lab, n) };
            let records = vec![record(&lab, n), said(&lab, n, format!("{{\"by\":\"{principal}\"}}"))];
            Transaction { records, changes: vec![Change::AddApproval { row, limits: pending(100, 100) }] }
        };
        let outcomes = all_at_once(&journal, (0..64).map(transaction).collect());
        let (mut numbers, mut refused) = (Vec::new(), Vec::new());
        for (n, outcome) in (0..).zip(outcomes) {
            match outcome {
                Ok(number) => numbers.push(number),
                Err(CommitError::Unwritable(Trouble::Refused(_))) => refused.push(n),
                other => panic!("{n}: {other:?}"),
            }
        }
        assert_eq!(refused, (0..64_u64).filter(|n| n % 8 == 3).collect::<Vec<_>>(), "{trigger}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..56).map(|n| 1 + 2 * n).collect::<Vec<_>>(), "{trigger}");
        // Nothing is wrong with the journal, and nothing of what was refused is in it.
        assert_eq!(journal.trouble(), None);
        assert_eq!(wait(journal.approval(question(&lab, 3).id)), Ok(None));
        assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 1 + 2 * 56);
    }
}

#[test]
fn a_stored_value_that_cannot_be_understood_troubles_only_who_needs_it() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let add = |n| Change::AddApproval { row: question(&lab, n), limits: pending(100, 100) };
    at_once(&lab, &journal, add);
    let harm = format!("UPDATE approvals SET state = 'nonsense' WHERE id = '{}'", question(&lab, 7).id);
    lab.database().execute_batch(&harm).unwrap();
    let outcomes = at_once(&lab, &journal, |n| Change::MoveApproval {
        id: question(&lab, n).id,
        from: ApprovalState::Pending,
        to: ApprovalState::Denied,
        document: None,
    });
    for (n, outcome) in outcomes.iter().enumerate() {
        let refused = matches!(outcome, Err(CommitError::Unwritable(Trouble::Refused(_))));
        assert_eq!((refused, outcome.is_ok()), (n == 7, n != 7), "{n}: {outcome:?}");
    }
    assert_eq!(journal.trouble(), None);
    assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 1 + 64 + 63);
}

#[test]
fn whoever_gives_up_waiting_keeps_no_answer_from_the_others() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for round in 0..20 {
        let tasks: Vec<_> = (0..64_u64)
            .map(|n| {
                let transaction = Transaction { records: vec![record(&lab, n)], changes: Vec::new() };
                let journal = Arc::clone(&journal);
                runtime.spawn(async move {
                    let commit = journal.commit(transaction);
                    // Every third one waits for as good as nothing.
                    let patience = if n % 3 == 0 { Duration::from_micros(n * round) } else { Duration::from_secs(20) };
                    tokio::time::timeout(patience, commit).await.map(|outcome| outcome.unwrap().first_seq)
                })
            })
            .collect();
        for (n, task) in (0..64).zip(tasks) {
            let outcome = runtime.block_on(task).unwrap();
            assert!(outcome.is_ok() || n % 3 == 0, "{n} heard nothing");
        }
    }
    // Whether somebody waits or not, what was handed over is written.
    assert_eq!(verify(lab.path(), &Trust::default(), &mut |_, _| {}).unwrap().records, 1 + 20 * 64);
}

#[test]
fn no_budget_is_spent_twice_and_no_queue_grows_beyond_its_limit() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let run = RunId::from_parts(lab.now(), 1);
    let limits = Charge { calls: 10, wall_ms: 1_000, output_bytes: 1_000 };
    let row = RunRow {
        run,
        session: SessionId::from_parts(lab.now(), 1),
        principal: "agent:a".to_owned(),
        limits,
        used: Charge::default(),
    };
    wait(journal.commit(Transaction { records: Vec::new(), changes: vec![Change::AddRun(row)] })).unwrap();
    let amount = Charge { calls: 1, wall_ms: 150, output_bytes: 10 };
    let outcomes = at_once(&lab, &journal, |_| Change::Reserve { run, amount });
    let (won, used) =
        (outcomes.iter().filter(|outcome| outcome.is_ok()).count(), wait(journal.run(run)).unwrap().unwrap().used);
    assert_eq!((won, used), (6, Charge { calls: 6, wall_ms: 900, output_bytes: 60 }));
    let refused = CommitError::from(Conflict::OverBudget { limits, used });
    assert!(outcomes.into_iter().filter_map(Result::err).all(|error| error == refused));
    let outcomes = at_once(&lab, &journal, |n| Change::AddApproval { row: question(&lab, n), limits: pending(7, 5) });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 5);
}

#[test]
fn subscribers_hear_every_commit_in_order() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let mut heard = journal.subscribe();
    let row = |n| Change::AddApproval { row: question(&lab, n), limits: pending(999, 999) };
    at_once(&lab, &journal, row);
    at_once(&lab, &journal, |n| row(n + 64));
    let mut numbers = Vec::new();
    while let Ok(events) = heard.try_recv() {
        numbers.extend(events.iter().map(|event| event.seq));
    }
    assert_eq!(numbers, (1..129).collect::<Vec<_>>());
}

#[test]
fn two_cannot_use_one_journal() {
    let lab = Lab::new();
    let journal = lab.open();
    let second = SqliteJournal::open(lab.path(), lab.clock.clone(), Arc::new(SystemEntropy));
    assert_eq!(second.err(), Some(Trouble::InUse(lab.path().to_owned())));
    drop(journal);
    drop(lab.open());
}

fn keyed(lab: &Lab, n: u64, principal: &str, key: &str) -> Transaction {
    let row = CallRow {
        call: CallId::from_parts(lab.now(), n.into()),
        node: NodeId::from_parts(lab.now(), 1),
        session: SessionId::from_parts(lab.now(), 1),
        run: RunId::from_parts(lab.now(), 2),
        waiting: Waiting::Attached,
        state: CallState::Ended,
        first_seq: 0,
        last_seq: 0,
        document: String::new(),
    };
    let key = CallKey { key: IdempotencyKey::parse(key).unwrap(), body: Sha256Digest::of(&n.to_be_bytes()) };
    let key = Some(TakenKey { principal: principal.to_owned(), key, time: lab.now() });
    Transaction { records: vec![record(lab, n)], changes: vec![Change::AddCall { row, key }] }
}

fn holder(lab: &Lab, journal: &SqliteJournal, principal: &str, key: &str) -> Option<KeyRow> {
    wait(journal.call_by_key(principal.to_owned(), IdempotencyKey::parse(key).unwrap(), lab.now())).unwrap()
}

#[test]
fn of_64_calls_with_one_key_exactly_one_takes_it() {
    let lab = Lab::new();
    let journal = Arc::new(lab.open());
    let outcomes = all_at_once(&journal, (0..64).map(|n| keyed(&lab, n, "agent:a", "k")).collect());
    let taken = holder(&lab, &journal, "agent:a", "k").unwrap();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
        assert_eq!(*outcome, Err(Conflict::KeyTaken(taken.call).into()));
    }
    assert!(wait(journal.call(taken.call)).unwrap().is_some());
    let count: i64 = lab.database().query_row("SELECT count(*) FROM calls", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1, "a call without its key is there");
}

#[test]
fn a_key_is_taken_for_a_day_through_restarts_and_by_its_principal_only() {
    let lab = Lab::new();
    let journal = lab.open();
    wait(journal.commit(keyed(&lab, 1, "agent:a", "k"))).unwrap();
    let first = holder(&lab, &journal, "agent:a", "k").unwrap();
    let expected = KeyRow { call: first.call, body: Sha256Digest::of(&1_u64.to_be_bytes()), time: lab.now() };
    assert_eq!(first, expected);
    wait(journal.commit(keyed(&lab, 2, "agent:b", "k"))).unwrap();
    wait(journal.commit(keyed(&lab, 3, "agent:a", "other"))).unwrap();
    drop(journal);
    let journal = lab.open();
    lab.clock.advance(u32::try_from(KEY_LIFE).unwrap() - 1);
    assert_eq!(holder(&lab, &journal, "agent:a", "k"), Some(first));
    assert_eq!(wait(journal.commit(keyed(&lab, 4, "agent:a", "k"))), Err(Conflict::KeyTaken(first.call).into()));
    lab.clock.advance(1);
    assert_eq!(holder(&lab, &journal, "agent:a", "k"), None);
    wait(journal.commit(keyed(&lab, 5, "agent:a", "k"))).unwrap();
    assert_ne!(holder(&lab, &journal, "agent:a", "k").unwrap().call, first.call);
    // Maintenance forgets what is over, and leaves what was taken anew.
    wait(journal.maintain(lab.now())).unwrap();
    let count: i64 = lab.database().query_row("SELECT count(*) FROM call_keys", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_call_that_exists_already_takes_no_key() {
    let lab = Lab::new();
    let journal = lab.open();
    wait(journal.commit(keyed(&lab, 1, "agent:a", "k"))).unwrap();
    assert_eq!(wait(journal.commit(keyed(&lab, 1, "agent:a", "other"))), Err(Conflict::Exists.into()));
    assert_eq!(holder(&lab, &journal, "agent:a", "other"), None);
}

#[test]
fn a_journal_from_before_there_were_keys_gets_them() {
    let lab = Lab::new();
    drop(lab.open());
    lab.harm("DROP TABLE call_keys; DROP TABLE vault; PRAGMA user_version = 1");
    let journal = lab.open();
    wait(journal.commit(keyed(&lab, 1, "agent:a", "k"))).unwrap();
    assert!(holder(&lab, &journal, "agent:a", "k").is_some());
}

#[test]
fn the_vault_goes_on_from_where_it_was_and_from_nowhere_else() {
    let lab = Lab::new();
    let journal = lab.open();
    assert_eq!(wait(journal.vault()).unwrap(), None);
    let at = |generation| VaultRow { generation, digest: Sha256Digest::of(&[u8::try_from(generation).unwrap()]) };
    let go = |from, to| {
        wait(journal.commit(Transaction { records: Vec::new(), changes: vec![Change::SetVault { from, to }] }))
    };
    assert_eq!(go(Some(at(1)), at(2)).unwrap_err(), Conflict::Vault.into());
    go(None, at(1)).unwrap();
    go(Some(at(1)), at(2)).unwrap();
    assert_eq!(go(None, at(3)).unwrap_err(), Conflict::Vault.into());
    let other = VaultRow { digest: Sha256Digest::of(b"other"), ..at(2) };
    assert_eq!(go(Some(other), at(3)).unwrap_err(), Conflict::Vault.into());
    assert_eq!(wait(journal.vault()).unwrap(), Some(at(2)));
    drop(journal);
    assert_eq!(wait(lab.open().vault()).unwrap(), Some(at(2)));
}

#[test]
fn a_journal_from_before_there_was_a_vault_knows_of_none() {
    let lab = Lab::new();
    drop(lab.open());
    lab.harm("DROP TABLE vault; PRAGMA user_version = 2");
    assert_eq!(wait(lab.open().vault()).unwrap(), None);
}
