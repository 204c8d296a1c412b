//! How a call would run: candidate plans, strongest first.
//!
//! Guarantees: a plan says everything about how the work would be contained, and serialises the same for equal plans; no candidate is
//! weaker than the call asks for. Does not: choose among them. Policy does, in [`decide`](crate::decide).

use std::collections::{BTreeMap, BTreeSet};

use palyra_sandbox::{
    Containment, EgressHost, EgressPlan, EnclosurePlan, Interpreters, Limits, ProcessPlan, SandboxProcessRunError,
    SandboxProcessRunErrorKind, SandboxProcessRunner,
    egress::HostRules,
    tier_c::{TRUSTED, bubblewrap::HOME, linux::PROXY_PORT},
};
use palyra_types::{AbsolutePath, EgressEnforcementMode, SandboxTier};
use serde::{Deserialize, Serialize};

use crate::{
    config::{Candidate, ServersSection, ToolCallConfig},
    service::ServiceTerms,
    tool::{FetchWork, Look, ProcessWork, SkillTerms, Work},
};

/// How a call would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Plan {
    /// A process in a sandbox.
    Process {
        /// What contains it.
        tier: SandboxTier,
        /// Everything about it.
        process: ProcessPlan,
    },
    /// The daemon itself fetches something, by the rules of strict egress.
    Fetch {
        /// Where it may go.
        egress: EgressPlan,
        /// How long it may take, in milliseconds.
        wall_ms: u64,
        /// How much of it is told, in bytes.
        output_bytes: u64,
    },
    /// A skill in WebAssembly, with what it was granted: tier A.
    Skill {
        /// What it is granted, and how much it may use.
        #[serde(flatten)]
        terms: SkillTerms,
        /// Where it may go.
        egress: EgressPlan,
    },
    /// A part of the daemon does it, or a server that it speaks with.
    Service {
        /// How it is held.
        #[serde(flatten)]
        terms: ServiceTerms,
    },
    /// Another program does it, and nothing of Palyra contains it.
    Elsewhere,
    /// The daemon itself does it, without leaving the workspace.
    Daemon,
}

impl Plan {
    /// What contains it, as policy sees it.
    #[must_use]
    pub const fn tier(&self) -> Option<SandboxTier> {
        match self {
            Self::Process { tier, .. } => Some(*tier),
            Self::Skill { .. } => Some(SandboxTier::A),
            Self::Service { terms } => terms.tier,
            Self::Fetch { .. } | Self::Elsewhere | Self::Daemon => None,
        }
    }

    /// How its network is held, as policy sees it.
    #[must_use]
    pub const fn egress(&self) -> Option<EgressEnforcementMode> {
        match self {
            Self::Process { process, .. } => Some(process.egress.mode),
            Self::Fetch { egress, .. } | Self::Skill { egress, .. } => Some(egress.mode),
            Self::Service { terms } => terms.egress,
            Self::Elsewhere | Self::Daemon => None,
        }
    }

    /// The hosts that it declares.
    #[must_use]
    pub fn hosts(&self) -> &[EgressHost] {
        match self {
            Self::Process { process, .. } => &process.egress.hosts,
            Self::Fetch { egress, .. } | Self::Skill { egress, .. } => &egress.hosts,
            Self::Service { .. } | Self::Elsewhere | Self::Daemon => &[],
        }
    }

    /// How long it may run, in milliseconds.
    #[must_use]
    pub const fn wall_ms(&self) -> u64 {
        match self {
            Self::Process { process, .. } => process.limits.wall_ms,
            Self::Fetch { wall_ms, .. } => *wall_ms,
            Self::Skill { terms, .. } => terms.limits.wall_ms,
            Self::Service { terms } => terms.wall_ms,
            Self::Elsewhere => 0,
            Self::Daemon => DAEMON_WALL_MS,
        }
    }

    /// How much of its output is kept, in bytes.
    #[must_use]
    pub const fn output_bytes(&self) -> u64 {
        match self {
            // Standard output and standard error each.
            Self::Process { process, .. } => process.limits.output_bytes.saturating_mul(2),
            Self::Fetch { output_bytes, .. } => *output_bytes,
            Self::Skill { terms, .. } => terms.limits.output_bytes,
            Self::Service { terms } => terms.output_bytes,
            Self::Elsewhere => ELSEWHERE_OUTPUT_BYTES,
            Self::Daemon => DAEMON_OUTPUT_BYTES,
        }
    }

    /// What bounds it, for comparing it with another.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::Process { tier, process } => Bounds {
                tier: Some(*tier),
                egress: Some(process.egress.mode),
                hosts: process.egress.hosts.clone(),
                limits: Some(process.limits),
                interpreters: Some(process.interpreters),
            },
            // Its limits follow from its arguments, and what covers it covers exactly these.
            Self::Fetch { egress, .. } => Bounds {
                tier: None,
                egress: Some(egress.mode),
                hosts: egress.hosts.clone(),
                limits: None,
                interpreters: None,
            },
            // What it may reach follows from its work, and what covers it covers exactly that.
            Self::Skill { egress, .. } => Bounds {
                tier: Some(SandboxTier::A),
                egress: Some(egress.mode),
                hosts: egress.hosts.clone(),
                limits: None,
                interpreters: None,
            },
            // Its limits are the service's own, and what covers it covers exactly these arguments.
            Self::Service { terms } => {
                Bounds { tier: terms.tier, egress: terms.egress, hosts: Vec::new(), limits: None, interpreters: None }
            }
            Self::Elsewhere | Self::Daemon => {
                Bounds { tier: None, egress: None, hosts: Vec::new(), limits: None, interpreters: None }
            }
        }
    }
}

/// What bounds a plan. A standing approval covers plans within the bounds of the one that was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    tier: Option<SandboxTier>,
    egress: Option<EgressEnforcementMode>,
    hosts: Vec<EgressHost>,
    limits: Option<Limits>,
    interpreters: Option<Interpreters>,
}

impl Bounds {
    /// Whether the other is equal or narrower.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let limits = match (self.limits, other.limits) {
            (Some(wide), Some(narrow)) => within(&narrow, &wide),
            (None, None) => true,
            _ => false,
        };
        let interpreters = self.interpreters == other.interpreters
            || (self.interpreters, other.interpreters) == (Some(Interpreters::Allow), Some(Interpreters::Refuse));
        // Tiers and egress modes are ordered from weak to strong.
        limits
            && interpreters
            && self.tier.is_some() == other.tier.is_some()
            && other.tier >= self.tier
            && self.egress.is_some() == other.egress.is_some()
            && other.egress >= self.egress
            && other.hosts.iter().all(|host| self.hosts.contains(host))
    }
}

fn within(narrow: &Limits, wide: &Limits) -> bool {
    narrow.wall_ms <= wide.wall_ms
        && narrow.cpu_seconds <= wide.cpu_seconds
        && narrow.address_space <= wide.address_space
        && narrow.processes <= wide.processes
        && narrow.file_size <= wide.file_size
        && narrow.open_files <= wide.open_files
        && narrow.memory <= wide.memory
        && within_percent(narrow.processor_percent, wide.processor_percent)
        && narrow.output_bytes <= wide.output_bytes
}

/// Zero is no bound.
const fn within_percent(narrow: u64, wide: u64) -> bool {
    wide == 0 || (narrow != 0 && narrow <= wide)
}

/// What of the machine goes into plans.
pub(crate) struct Machine<'a> {
    pub(crate) config: &'a ToolCallConfig,
    pub(crate) runner: &'a SandboxProcessRunner,
    /// The configured hosts.
    pub(crate) hosts: &'a HostRules,
    /// Their ports.
    pub(crate) ports: &'a BTreeSet<u16>,
    /// Whether there are authorities that the machine itself does not trust.
    pub(crate) trusts_more: bool,
    /// Palyra's own directory, wherever it shows.
    pub(crate) hidden: &'a [AbsolutePath],
    /// The daemon's environment, as far as it is passed on.
    pub(crate) environment: &'a BTreeMap<String, String>,
}

/// A way to run, and what the sandbox would say to it.
#[derive(Debug, Clone)]
pub struct Way {
    /// The way.
    pub plan: Plan,
    /// Why the sandbox would refuse it, if it would.
    pub refused: Option<SandboxProcessRunError>,
}

/// The ways this work could run, strongest first, and why others cannot. A glance does not ask what the sandbox would refuse.
pub(crate) fn candidates(
    work: &Work,
    root: Option<&AbsolutePath>,
    machine: &Machine<'_>,
    look: Look,
) -> (Vec<Way>, Vec<Unfit>) {
    let (work, root) = match (work, root) {
        (Work::Process(work), Some(root)) => (work, root),
        (Work::Fetch(work), _) => {
            let egress = fetch_egress(work);
            let refused = unlisted(&egress, machine);
            let output_bytes = work.max_bytes.saturating_mul(2).saturating_add(FETCH_HEAD_BYTES);
            let plan = Plan::Fetch { egress, wall_ms: u64::from(work.timeout_seconds) * 1_000, output_bytes };
            return (vec![Way { plan, refused }], Vec::new());
        }
        (Work::Skill(work), _) => {
            let hosts = work.hosts.iter().map(|one| EgressHost { host: one.host.clone(), port: one.port });
            let egress = EgressPlan { mode: EgressEnforcementMode::Strict, hosts: hosts.collect() };
            let refused = unlisted(&egress, machine);
            return (vec![Way { plan: Plan::Skill { terms: work.terms.clone(), egress }, refused }], Vec::new());
        }
        (Work::Service(work), _) => {
            return (vec![Way { plan: Plan::Service { terms: work.terms }, refused: None }], Vec::new());
        }
        (Work::Elsewhere(_), _) => return (vec![Way { plan: Plan::Elsewhere, refused: None }], Vec::new()),
        _ => return (vec![Way { plan: Plan::Daemon, refused: None }], Vec::new()),
    };
    let (mut ways, mut unfit) = (Vec::new(), Vec::new());
    // Whoever lists the weaker one first still gets the stronger one where policy lets it run.
    let mut strongest_first: Vec<&Candidate> = machine.config.plans.iter().collect();
    strongest_first.sort_by_key(|candidate| std::cmp::Reverse((candidate.tier, candidate.egress)));
    for candidate in strongest_first {
        if let Err(reason) = fitness(work, candidate, machine) {
            unfit.push(Unfit { tier: Some(candidate.tier), reason });
            continue;
        }
        let process = process_plan(work, root, *candidate, machine);
        let refused = match look {
            Look::Whole => {
                let checked = machine.runner.check(&process, work.opened.0.as_ref());
                checked.err().or_else(|| unlisted(&process.egress, machine))
            }
            Look::Glance => None,
        };
        ways.push(Way { plan: Plan::Process { tier: candidate.tier, process }, refused });
    }
    (ways, unfit)
}

/// How a server runs: as a program of tier C does, for as long as it likes. There is no weaker way.
///
/// # Errors
/// Why it cannot.
pub(crate) fn of_server(
    work: &ProcessWork,
    root: &AbsolutePath,
    egress: EgressEnforcementMode,
    machine: &Machine<'_>,
) -> Result<ProcessPlan, Unfit> {
    let candidate = Candidate { tier: SandboxTier::C, egress };
    let unfit = |reason| Unfit { tier: Some(candidate.tier), reason };
    fitness(work, &candidate, machine).map_err(unfit)?;
    let plan = process_plan(work, root, candidate, machine);
    let ServersSection { cpu_seconds, stderr_bytes, .. } = machine.config.servers;
    let cpu_seconds = if cpu_seconds == 0 { u64::MAX } else { cpu_seconds };
    let limits = Limits { wall_ms: u64::MAX, cpu_seconds, output_bytes: stderr_bytes, ..plan.limits };
    let plan = ProcessPlan { limits, ..plan };
    let checked = machine.runner.check(&plan, work.opened.0.as_ref());
    checked.map_err(|error| unfit(UnfitReason::Refused(error)))?;
    Ok(plan)
}

/// Why a strict plan cannot reach a host that it declares, unless a person lets it.
fn unlisted(egress: &EgressPlan, machine: &Machine<'_>) -> Option<SandboxProcessRunError> {
    let strict = egress.mode == EgressEnforcementMode::Strict;
    let missing = egress.hosts.iter().find(|one| machine.hosts.find(&one.host, one.port).is_none());
    missing.filter(|_| strict).map(|EgressHost { host, port }| SandboxProcessRunError {
        kind: SandboxProcessRunErrorKind::EgressDenied,
        detail: format!("no rule under [[egress.host]] names `{host}` with port {port}"),
    })
}

fn fetch_egress(work: &FetchWork) -> EgressPlan {
    let hosts = vec![EgressHost { host: work.host.clone(), port: work.port }];
    EgressPlan { mode: EgressEnforcementMode::Strict, hosts }
}

fn fitness(work: &ProcessWork, candidate: &Candidate, machine: &Machine<'_>) -> Result<(), UnfitReason> {
    // Tier B is the weakest, so whoever asks for C does not get B.
    if work.tier.is_some_and(|asked| candidate.tier < asked) {
        return Err(UnfitReason::WeakerThanAsked);
    }
    match (candidate.tier, machine.runner.tier_c()) {
        (SandboxTier::B, _) | (SandboxTier::C, Ok(_)) => {}
        (SandboxTier::C, Err(missing)) => return Err(UnfitReason::NotHere(missing.detail.clone())),
        (SandboxTier::A, _) => return Err(UnfitReason::NotHere("it is for skills".to_owned())),
    }
    if candidate.tier == SandboxTier::B && candidate.egress == EgressEnforcementMode::Strict {
        return Err(UnfitReason::CannotEnforceEgress);
    }
    // Elsewhere nobody could put a secret in the place of its placeholder, or keep one that is handed over from other programs.
    let is_strict = candidate.tier == SandboxTier::C && candidate.egress == EgressEnforcementMode::Strict;
    match work.secrets.iter().any(|one| !one.is_revealed()) {
        true if !is_strict => Err(UnfitReason::SecretsUnseenNeedStrict),
        false if !work.secrets.is_empty() && candidate.tier != SandboxTier::C => Err(UnfitReason::SecretsNeedEnclosure),
        _ => Ok(()),
    }
}

fn process_plan(work: &ProcessWork, root: &AbsolutePath, candidate: Candidate, machine: &Machine<'_>) -> ProcessPlan {
    let mut limits = machine.config.limits;
    if let Some(seconds) = work.timeout_seconds {
        limits.wall_ms = limits.wall_ms.min(u64::from(seconds) * 1_000);
    }
    let mut env = machine.environment.clone();
    env.extend(work.env.clone());
    env.entry("PATH".to_owned()).or_insert_with(|| search_path(machine.config));
    // In tier C it is empty, and gone afterwards: what programs leave there does not end up among the files of the workspace.
    let home = if candidate.tier == SandboxTier::C { HOME.to_owned() } else { root.to_string() };
    env.entry("HOME".to_owned()).or_insert(home);
    if candidate.egress == EgressEnforcementMode::Strict {
        env.extend(proxy_variables());
    }
    let intercepts = work.secrets.iter().any(|one| !one.is_revealed());
    if candidate.tier == SandboxTier::C && (machine.trusts_more || intercepts) {
        // Node trusts a list of its own, and this one too.
        env.insert("NODE_EXTRA_CA_CERTS".to_owned(), format!("/etc/{TRUSTED}"));
    }
    if candidate.tier == SandboxTier::C && intercepts {
        // So do these, instead of theirs.
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "PIP_CERT"] {
            env.entry(name.to_owned()).or_insert_with(|| format!("/etc/{TRUSTED}"));
        }
    }
    let hosts = work.hosts.iter().map(|one| EgressHost { host: one.host.clone(), port: one.port });
    let containment = match candidate.tier {
        SandboxTier::C => Containment::Enclosure(enclosure(work, machine)),
        SandboxTier::A | SandboxTier::B => Containment::None,
    };
    let interpreters = match candidate.tier {
        SandboxTier::A | SandboxTier::C => Interpreters::Allow,
        SandboxTier::B => machine.config.tier_b_interpreters,
    };
    ProcessPlan {
        program: work.program.clone(),
        argv0: Some(work.argv0.clone()),
        args: work.args.clone(),
        cwd: work.cwd.clone(),
        env,
        workspace: root.clone(),
        hidden: machine.hidden.to_vec(),
        limits,
        egress: EgressPlan { mode: candidate.egress, hosts: hosts.collect() },
        interpreters,
        containment,
    }
}

fn enclosure(work: &ProcessWork, machine: &Machine<'_>) -> EnclosurePlan {
    let ToolCallConfig { read_only, temporary_bytes, unix_sockets, .. } = machine.config;
    let there = |path: &&AbsolutePath| std::path::Path::new(path.as_str()).is_dir();
    EnclosurePlan {
        read_only: read_only.iter().filter(there).cloned().collect(),
        temporary_bytes: *temporary_bytes,
        unix_sockets: *unix_sockets,
        ports: work.hosts.iter().map(|one| one.port).chain(machine.ports.iter().copied()).chain([80, 443]).collect(),
        intercepts: work.secrets.iter().any(|one| !one.is_revealed()),
    }
}

/// What tells programs of the proxy in their enclosure.
fn proxy_variables() -> impl Iterator<Item = (String, String)> {
    let http = format!("http://127.0.0.1:{PROXY_PORT}");
    let socks = format!("socks5h://127.0.0.1:{PROXY_PORT}");
    let own = "localhost,127.0.0.1,::1".to_owned();
    let all = [("http_proxy", http.clone()), ("https_proxy", http), ("all_proxy", socks), ("no_proxy", own)];
    all.into_iter().flat_map(|(name, value)| [(name.to_ascii_uppercase(), value.clone()), (name.to_owned(), value)])
}

fn search_path(config: &ToolCallConfig) -> String {
    config.search_path.iter().map(AbsolutePath::as_str).collect::<Vec<_>>().join(":")
}

/// A way to run that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The tier; absent where the daemon itself would do it.
    pub tier: Option<SandboxTier>,
    /// Why.
    pub reason: UnfitReason,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.tier {
            Some(tier) => write!(f, "tier {tier}: {}", self.reason),
            None => write!(f, "{}", self.reason),
        }
    }
}

impl Unfit {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match &self.reason {
            UnfitReason::WeakerThanAsked => "ask for a weaker tier",
            UnfitReason::NotHere(_) => "let `palyra doctor` say why the tier is missing",
            UnfitReason::SecretsUnseenNeedStrict | UnfitReason::SecretsNeedEnclosure => {
                "let tier c run with strict egress: `plans` under [sandbox] in config.toml, and `palyra doctor` if it is missing"
            }
            UnfitReason::CannotEnforceEgress => "give tier b the egress mode `preflight` or `none` under [sandbox]",
            UnfitReason::Refused(SandboxProcessRunError {
                kind: SandboxProcessRunErrorKind::InterpreterDenied,
                ..
            }) => {
                "call the program itself instead of a shell, or let tier b, which contains nothing, run interpreters: \
                 `tier_b_interpreters = \"allow\"` under [sandbox] in config.toml"
            }
            UnfitReason::Refused(error) => error.advice(),
        }
    }
}

impl Serialize for Unfit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a way to run does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitReason {
    /// The call asks for a stronger tier.
    #[error("weaker than the call asks for")]
    WeakerThanAsked,
    /// This machine or this build cannot.
    #[error("not available here: {0}")]
    NotHere(String),
    /// Tier B with strict egress is a contradiction.
    #[error("cannot enforce strict egress")]
    CannotEnforceEgress,
    /// A placeholder would reach the host as it is.
    #[error("secrets are used unseen with strict egress only")]
    SecretsUnseenNeedStrict,
    /// Other programs could read what is handed over.
    #[error("secrets are handed over in an enclosure only")]
    SecretsNeedEnclosure,
    /// The sandbox refuses the plan.
    #[error(transparent)]
    Refused(SandboxProcessRunError),
}

/// What the head of a response, and where it came from, take at most in what is told about it.
const FETCH_HEAD_BYTES: u64 = 128 << 10;

/// What is told about something that another program was let do.
const ELSEWHERE_OUTPUT_BYTES: u64 = 256;

/// How long the daemon works on a file tool at most.
const DAEMON_WALL_MS: u64 = 30_000;

/// The most that a file tool answers: its content as base 64, and names.
const DAEMON_OUTPUT_BYTES: u64 = 1 << 20;
