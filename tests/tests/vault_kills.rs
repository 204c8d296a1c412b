//! `kill -9` of the daemon at any moment of a change of its vault: every secret that was acknowledged can be read, nothing half-made is there,
//! and the vault opens by itself every time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on ends"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_api::{token::NewToken, vault::VaultState};
use palyra_client::Client;
use palyra_tests::{
    daemon::{DaemonLab, DaemonPlan},
    random::Random,
    token::token,
    vault::{contents, value},
};
use palyra_types::SecretRef;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_secret_that_was_acknowledged_survives_every_kill() {
    let mut trial = Trial::start(DaemonPlan::default(), Changes::Puts);
    while trial.puts() < 500 || trial.kills < 30 {
        trial.round().await;
    }
    trial.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_every_kill_while_the_key_is_replaced() {
    let mut trial = Trial::start(DaemonPlan::default().ordinary_user(), Changes::PutsAndRotations);
    while trial.rotations() < 40 || trial.kills < 25 {
        trial.round().await;
    }
    trial.check().await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    Puts,
    PutsAndRotations,
}

/// A daemon that is killed again and again while others change its vault.
struct Trial {
    lab: DaemonLab,
    token: String,
    changes: Changes,
    kills: usize,
    random: Random,
    begun: Instant,
    known: Arc<Known>,
}

/// What was sent, and what was acknowledged.
#[derive(Default)]
struct Known {
    secrets: Mutex<BTreeMap<String, History>>,
    puts: AtomicUsize,
    rotations: AtomicUsize,
}

/// What a secret was last acknowledged to be, and what was sent since.
type History = (Option<usize>, Vec<usize>);

impl Trial {
    fn start(plan: DaemonPlan, changes: Changes) -> Self {
        let random = Random::new();
        Self {
            lab: plan.make(),
            token: String::new(),
            changes,
            kills: 0,
            random,
            begun: Instant::now(),
            known: Arc::default(),
        }
    }

    fn puts(&self) -> usize {
        self.known.puts.load(Ordering::Relaxed)
    }

    fn rotations(&self) -> usize {
        self.known.rotations.load(Ordering::Relaxed)
    }

    /// Starts the daemon, lets others change its vault for a moment, and kills it.
    async fn round(&mut self) {
        assert!(self.begun.elapsed() < Duration::from_secs(150), "{} puts, {} kills", self.puts(), self.kills);
        self.lab.start();
        let status = self.lab.owner().vault().await.unwrap();
        assert_eq!(status.state, VaultState::Open, "{status:?} after {} kills", self.kills);
        if self.token.is_empty() {
            let new = NewToken { per_minute: Some(60_000), ..token("user:owner", &["vault.manage"]) };
            let minted = self.lab.owner().mint_token(&new).await.unwrap();
            self.token = minted.secret;
        }
        // Without TLS, so that most of the time goes into changes.
        let holder = || self.lab.holder_of(&self.token);
        let mut working = Vec::new();
        for writer in 0..WRITERS {
            working.push(tokio::spawn(put(holder(), writer, Arc::clone(&self.known))));
        }
        if self.changes == Changes::PutsAndRotations {
            working.push(tokio::spawn(rotate(holder(), Arc::clone(&self.known))));
        }
        tokio::time::sleep(Duration::from_millis(self.random.below(900))).await;
        self.lab.kill();
        self.kills += 1;
        for one in working {
            one.await.unwrap();
        }
    }

    /// Every secret is what it was acknowledged to be, or what was sent to it since, and was never acknowledged.
    async fn check(mut self) {
        self.lab.start();
        let there: BTreeMap<_, _> = contents(&self.lab.owner()).await.into_iter().collect();
        let known = self.known.secrets.lock().unwrap();
        for (name, (acknowledged, sent)) in known.iter() {
            match (there.get(name), acknowledged) {
                (None, None) => {}
                (None, Some(value)) => panic!("{name} is lost, which was acknowledged as {value}"),
                (Some(value), acknowledged) => {
                    let number: usize = value.strip_prefix("value ").unwrap().parse().unwrap();
                    assert!(*acknowledged == Some(number) || sent.contains(&number), "{name} is {value}");
                }
            }
        }
        assert!(there.keys().all(|name| known.contains_key(name)));
        let (puts, rotations, kills) = (self.puts(), self.rotations(), self.kills);
        println!("{puts} puts and {rotations} new keys were acknowledged over {kills} kills; {} secrets", there.len());
    }
}

/// Puts values until the daemon is gone, some of them into secrets that are there already.
async fn put(by: Client, writer: usize, known: Arc<Known>) {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Another value of one that is there writes the file anew; a first value goes to its end.
        let which = if number.is_multiple_of(10) { number % 100 } else { number };
        let name = format!("global/of-{writer}-{which}");
        let secret = SecretRef::parse(&name).unwrap();
        known.secrets.lock().unwrap().entry(name.clone()).or_default().1.push(number);
        if by.put_secret(&secret, &value(&format!("value {number}"))).await.is_err() {
            return;
        }
        known.secrets.lock().unwrap().insert(name, (Some(number), Vec::new()));
        known.puts.fetch_add(1, Ordering::Relaxed);
    }
}

async fn rotate(by: Client, known: Arc<Known>) {
    while by.rotate_vault().await.is_ok() {
        known.rotations.fetch_add(1, Ordering::Relaxed);
    }
}

const WRITERS: usize = 3;

/// No two values are the same.
static NEXT: AtomicUsize = AtomicUsize::new(0);
