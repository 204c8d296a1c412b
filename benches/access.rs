//! What identity and access cost, in one run: handshakes with certificates on both sides and requests behind them, next to a bare axum route
//! behind the same TLS; requests with an API token next to the bare route; what callers feel while 10 000 wrong tokens a second arrive; and
//! finding a token among many next to finding one among few.
//!
//! Daemon and floor are processes of their own, asked by the same threads over as many connections, in turns. Whoever asks shares the
//! processors with them, so what the server itself was busy with is told as well. The daemon is the one that this profile
//! built, which `make bench` does first. A missed target ends the program with an error.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be made ends, and its tables are as long as they are written"
)]

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use palyra_access::{
    AccessRegistry, Actor, CredentialKind, Membership, NewToken, Refusal, RegistryStore, Scope, StoreError, TokenKind,
    TokenText,
};
use palyra_benches::{
    daemon::Daemon,
    floor::{self, Floor},
    judge,
    load::{Fared, Flood, FloodPlan, Flooded, PORTION, Reached, as_fast_as_it_goes, steadily},
    median, middle, processor, time,
    wire::{Wire, identity_request},
};
use palyra_identity::client_config;
use palyra_types::{Principal, PrincipalId, PrincipalKind, WorkspaceRole, clock::SystemClock, entropy::SystemEntropy};
use rustls::ClientConfig;

fn main() -> std::process::ExitCode {
    floor::serve_if_told();
    let begun = Instant::now();
    let lab = Lab::open();
    println!("{:<34}{:>12}{:>12}{:>9}{:>22}", "", "bare", "daemon", "share", "server's own time");
    let shaken = lab.handshakes().told("handshakes and one request, mTLS");
    let kept = lab.requests_by_device().told("requests on a connection, mTLS");
    lab.requests_by_token().told("requests on a connection, token");
    let [unknown, malformed] = lab.wrong_tokens();
    drop(lab);
    let growth = lookups();
    println!("measured in {:.0} s", begun.elapsed().as_secs_f64());
    judge(&[
        ("handshakes ≥ 0.5 of a bare route behind the same TLS", shaken >= 0.5),
        ("requests over mTLS ≥ 0.5 of a bare route behind the same TLS", kept >= 0.5),
        ("10 000 unknown tokens a second are refused", unknown.refused >= ENOUGH),
        ("10 000 unknown tokens a second slow the median of others by ≤ 20 %", unknown.slowdown <= 1.2),
        ("10 000 malformed tokens a second are refused", malformed.refused >= ENOUGH),
        ("10 000 malformed tokens a second slow the median of others by ≤ 20 %", malformed.slowdown <= 1.2),
        ("a token among 10 000, 10 in use, is found in ≤ 1.2 times of one among 10", growth <= 1.2),
    ])
}

/// A daemon, the floor, and who is known to them.
struct Lab {
    daemon: Daemon,
    floor: Floor,
    device: Arc<ClientConfig>,
    tokens: Vec<String>,
}

impl Lab {
    fn open() -> Self {
        let daemon = Daemon::start();
        let device = client_config(&daemon.device(), Arc::new(SystemClock::new())).expect("a device");
        let tokens = daemon.tokens(CONNECTIONS + CALLERS);
        let mut wire = Wire::tls(daemon.control(), &device);
        let answer = wire.ask(&identity_request(daemon.control(), None));
        assert_eq!(answer.status, 200);
        let floor = Floor::start(&daemon, std::str::from_utf8(answer.body).expect("JSON"));
        Self { daemon, floor, device, tokens }
    }

    /// A new connection for each request, with all that belongs to it: none is resumed.
    fn handshakes(&self) -> Compared {
        self.compare(|server, address| {
            let request = &identity_request(address.control, None);
            as_fast_as_it_goes(SHAKING, ROUND, server, |_| {
                move || assert_eq!(Wire::tls(address.control, &self.device).ask(request).status, 200)
            })
        })
    }

    fn requests_by_device(&self) -> Compared {
        self.compare(|server, address| {
            let request = &identity_request(address.control, None);
            as_fast_as_it_goes(CONNECTIONS, ROUND, server, |_| {
                let mut wire = Wire::tls(address.control, &self.device);
                assert_eq!(wire.ask(request).status, 200);
                move || assert_eq!(wire.ask(request).status, 200)
            })
        })
    }

    /// Each connection has a token of its own, so that none goes faster than a token may.
    fn requests_by_token(&self) -> Compared {
        self.compare(|server, address| {
            as_fast_as_it_goes(CONNECTIONS, ROUND, server, |number| {
                let request = identity_request(address.local, Some(&self.tokens[number]));
                let mut wire = Wire::plain(address.local);
                move || assert_eq!(wire.ask(&request).status, 200)
            })
        })
    }

    /// Asks the floor and the daemon in turns, so that a busy moment of the machine meets both alike.
    fn compare(&self, ask: impl Fn(u32, Addresses) -> Reached) -> Compared {
        let (daemon, floor) = (&self.daemon, &self.floor);
        let rounds = (0..ROUNDS).map(|_| {
            let floor = ask(floor.pid(), Addresses { control: floor.tls, local: floor.plain });
            (floor, ask(daemon.pid(), Addresses { control: daemon.control(), local: daemon.local() }))
        });
        Compared(rounds.collect())
    }

    /// How callers at a steady pace fare alone, and while wrong tokens arrive beside them: unknown ones and malformed ones. What sending and
    /// answering so much costs on this machine in any case shows where the same flood goes to the bare route instead.
    fn wrong_tokens(&self) -> [Felt; 2] {
        let (to, expected) = (self.daemon.local(), 401);
        let callers: Vec<_> =
            self.tokens[CONNECTIONS..].iter().map(|token| identity_request(to, Some(token))).collect();
        let [unknown, malformed] = [str::to_owned, cut].map(|spell| Arc::new(self.portions(spell)));
        let ways = [
            ("callers at a steady pace, alone", None),
            ("  with unknown tokens", Some(FloodPlan { to, portions: Arc::clone(&unknown), expected })),
            ("  with malformed tokens", Some(FloodPlan { to, portions: malformed, expected })),
            (
                "  with as much at the bare route",
                Some(FloodPlan { to: self.floor.plain, portions: unknown, expected: 200 }),
            ),
        ];
        let mut felt: [Vec<Round>; 4] = Default::default();
        for _ in 0..FLOOD_ROUNDS {
            for ((_, plan), rounds) in ways.iter().zip(&mut felt) {
                rounds.push(self.round(&callers, plan.clone()));
            }
        }
        println!(
            "\n{:<34}{:>10}{:>10}{:>10}{:>12}{:>12}{:>10}{:>10}",
            "", "p50", "p99", "slowdown", "answered/s", "flood/s", "daemon", "flood"
        );
        let felt = [0, 1, 2, 3].map(|way| Felt::told(ways[way].0, &felt[way], &felt[0]));
        [felt[1], felt[2]]
    }

    fn round(&self, callers: &[Vec<u8>], plan: Option<FloodPlan>) -> Round {
        let flood = plan.map(Flood::begin);
        // By then the flood is there, and a processor that had rested before has woken up. Without this, whichever flood comes behind the quiet
        // round seems to cost 15 to 25 % more than the next one.
        thread::sleep(Duration::from_millis(700));
        let (begun, busy) = (Instant::now(), processor::time_of_process(self.daemon.pid()));
        let fared = steadily(self.daemon.local(), callers, PACE, FLOOD_ROUND);
        let busy = processor::time_of_process(self.daemon.pid()).saturating_sub(busy);
        Round { fared, share: busy.as_secs_f64() / begun.elapsed().as_secs_f64(), flooded: flood.map(Flood::end) }
    }

    /// Ten thousand requests with tokens that nobody minted, each another one, in portions.
    fn portions(&self, spell: impl Fn(&str) -> String) -> Vec<Vec<u8>> {
        let wrong = || {
            let (text, _) = TokenText::generate(CredentialKind::Agent, &SystemEntropy).expect("randomness");
            identity_request(self.daemon.local(), Some(&spell(&text)))
        };
        (0..1_000).map(|_| (0..PORTION).flat_map(|_| wrong()).collect()).collect()
    }
}

/// The token without its last letter.
fn cut(token: &str) -> String {
    token.chars().take(token.len() - 1).collect()
}

/// Where a server is.
#[derive(Clone, Copy)]
struct Addresses {
    control: SocketAddr,
    local: SocketAddr,
}

/// The floor and the daemon, round by round.
struct Compared(Vec<(Reached, Reached)>);

impl Compared {
    /// Tells it, and returns how much of the floor's rate the daemon has.
    fn told(&self, name: &str) -> f64 {
        let of = |figure: fn(&(Reached, Reached)) -> f64| middle(self.0.iter().map(figure).collect());
        let (floor, daemon) = (of(|(floor, _)| floor.per_second), of(|(_, daemon)| daemon.per_second));
        let share = of(|(floor, daemon)| daemon.per_second / floor.per_second);
        let floor_time = of(|(floor, _)| floor.server_time.as_secs_f64() * 1e6);
        let daemon_time = of(|(_, daemon)| daemon.server_time.as_secs_f64() * 1e6);
        println!("{name:<34}{floor:>10.0}/s{daemon:>10.0}/s{share:>9.2}{floor_time:>10.0} → {daemon_time:.0} µs each");
        share
    }
}

/// What callers felt for a while.
struct Round {
    fared: Fared,
    /// How much of a processor the daemon took.
    share: f64,
    flooded: Option<Flooded>,
}

/// What callers felt in the middle.
#[derive(Clone, Copy)]
struct Felt {
    slowdown: f64,
    /// How many of the others were answered each second.
    refused: f64,
}

impl Felt {
    /// Tells it, next to the rounds in which the callers were alone.
    fn told(name: &str, rounds: &[Round], alone: &[Round]) -> Self {
        let of = |figure: &dyn Fn(&Round) -> f64| middle(rounds.iter().map(figure).collect());
        let flooded = |figure: fn(Flooded) -> f64| of(&|round| round.flooded.map_or(0.0, figure));
        let percentile = |percent| of(&|round| micros(round.fared.percentile(percent)));
        let slowdowns = rounds.iter().zip(alone);
        let slowdowns = slowdowns
            .map(|(round, alone)| micros(round.fared.percentile(50)) / micros(alone.fared.percentile(50)))
            .collect();
        let felt = Self { slowdown: middle(slowdowns), refused: flooded(|flooded| flooded.per_second) };
        println!(
            "{name:<34}{:>7.0} µs{:>7.0} µs{:>10.2}{:>12.0}{:>12.0}{:>8.0} %{:>8.0} %",
            percentile(50),
            percentile(99),
            felt.slowdown,
            of(&|round| round.fared.per_second),
            felt.refused,
            of(&|round| round.share) * 100.0,
            flooded(|flooded| flooded.own_share) * 100.0,
        );
        felt
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Finds tokens among few and among many, and says how much longer the latter takes: when the same few are in use, and when all are in turn,
/// which is more than the caches next to a processor hold.
fn lookups() -> f64 {
    let ((few, few_texts), (many, texts)) = (registry_of(FEW), registry_of(MANY));
    // As many texts in each case, so that reading them costs the same.
    let [few_texts, some_texts] = [&few_texts, &texts].map(|texts| texts.iter().take(FEW).cycle().take(MANY).cloned());
    let cases: [(&AccessRegistry, Vec<String>); 3] =
        [(&few, few_texts.collect()), (&many, some_texts.collect()), (&many, texts.clone())];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..LOOKUP_ROUNDS {
        for ((registry, texts), times) in cases.iter().zip(&mut times) {
            times.push(time(|| texts.iter().for_each(|text| assert!(registry.by_token(text).is_ok()))));
        }
    }
    let [few, some, all] = times.map(|times| median(times).as_secs_f64() * 1e9 / texts.len() as f64);
    println!("\na token is found among {FEW:<18}{few:>9.0} ns");
    println!("  among {MANY}, {FEW} of them in use    {some:>9.0} ns   {:.2} times", some / few);
    println!("  among {MANY}, each of them in use  {all:>9.0} ns   {:.2} times", all / few);
    some / few
}

/// A registry of so many tokens, and their texts.
fn registry_of(count: usize) -> (AccessRegistry, Vec<String>) {
    let owner = PrincipalId::parse("owner").expect("a name");
    let clock = Arc::new(SystemClock::new());
    let registry = AccessRegistry::create(Arc::new(Nowhere), clock, Arc::new(SystemEntropy), owner.clone());
    let registry = registry.expect("a registry");
    let owner = Principal::new(PrincipalKind::User, owner).with_roles([WorkspaceRole::Owner]).expect("an owner");
    let (owner, mut texts) = (Actor::in_person(owner), Vec::new());
    let minting = registry.prepare(|state, at| {
        for number in 0..count {
            let (text, fresh) = registry.fresh_token(TokenKind::Agent).expect("a token");
            state.mint(&owner, token(number), fresh, at)?;
            texts.push(text.to_string());
        }
        Ok::<_, Refusal>(())
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async { minting.await.expect("tokens").commit().await.expect("a registry") });
    (registry, texts)
}

fn token(number: usize) -> NewToken {
    let agent = PrincipalId::parse(&format!("agent-{number}")).expect("a name");
    NewToken {
        name: format!("measurement {number}"),
        principal: Principal::new(PrincipalKind::Agent, agent),
        role: None,
        workspaces: Membership::All,
        scopes: [Scope::CallsCreate, Scope::CallsRead].into(),
        channel: None,
        lifetime: Duration::from_secs(3_600),
        per_minute: None,
        concurrent: None,
    }
}

/// Keeps nothing.
struct Nowhere;

impl RegistryStore for Nowhere {
    fn load(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn save(&self, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(600);

/// How many shake hands at once.
const SHAKING: usize = 8;

/// How many connections are kept.
const CONNECTIONS: usize = 16;

/// How many ask at a steady pace, and how often each: together 2 000 times a second.
const CALLERS: usize = 4;
const PACE: Duration = Duration::from_millis(2);

const FLOOD_ROUNDS: usize = 15;
const FLOOD_ROUND: Duration = Duration::from_millis(400);

/// What counts as 10 000 a second: the last portion of a flood is answered after the time for it is over.
const ENOUGH: f64 = 9_900.0;

const FEW: usize = 10;
const MANY: usize = 10_000;
const LOOKUP_ROUNDS: usize = 101;
