//! The configuration in force, with everything in it opened and worked out.
//!
//! Guarantees: whoever reads it sees one configuration, never parts of two; what a call was judged by stays open until it is over.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use palyra_policy::{PolicyEvaluationConfig, Snapshot};
use palyra_sandbox::{
    SandboxProcessRunner,
    egress::{
        Connector,
        fetch::{Authorities, Fetcher},
    },
};
use palyra_types::{AbsolutePath, WorkspaceName};

use crate::{
    config::GateConfig,
    elsewhere::elsewhere,
    gate::{Gate, Inner, OpenError},
    plan::Machine,
    skills::SkillShelf,
    tool::SearchPath,
    tools::Registry,
    way,
    workspace::{Workspace, WorkspaceError},
};

/// What the configuration says, with everything in it opened and worked out.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) config: Arc<GateConfig>,
    /// Adopted directories are among its workspaces.
    pub(crate) evaluation: Arc<PolicyEvaluationConfig>,
    workspaces: HashMap<WorkspaceName, Arc<Workspace>>,
    adopted: HashMap<WorkspaceName, Arc<Adopted>>,
    pub(crate) programs: SearchPath,
    /// Lets calls declare the hosts that are configured.
    pub(crate) runner: Arc<SandboxProcessRunner>,
    /// Fetches on behalf of calls.
    pub(crate) fetcher: Arc<Fetcher>,
    /// The ports of these hosts.
    pub(crate) ports: BTreeSet<u16>,
    /// Palyra's own directory, wherever it shows.
    pub(crate) hidden: Vec<AbsolutePath>,
    /// What is passed on of the daemon's own environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Counts the uses of adopted directories.
    uses: Arc<AtomicU64>,
}

/// A directory that nobody configured.
struct Adopted {
    workspace: Arc<Workspace>,
    /// When it was last used, counted in uses of any.
    used: AtomicU64,
}

/// What settings are made of, besides the configuration.
pub(crate) struct Ground {
    /// Palyra's own directory.
    pub(crate) state_directory: AbsolutePath,
    /// The daemon's own environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// The way into the world.
    pub(crate) net: Arc<Connector>,
}

impl Ground {
    /// Where the sandbox keeps what it makes for enclosures.
    fn sandbox_directory(&self) -> PathBuf {
        PathBuf::from(self.state_directory.as_str()).join("sandbox")
    }

    /// Where it stands which directories of servers there are.
    pub(crate) fn servers_directory(&self) -> PathBuf {
        self.sandbox_directory().join("servers")
    }

    /// Where temporary files are made.
    pub(crate) fn temporary(&self) -> AbsolutePath {
        let configured = self.environment.get("TMPDIR").and_then(|path| AbsolutePath::parse(path).ok());
        configured.or_else(|| AbsolutePath::parse("/tmp").ok()).unwrap_or_else(AbsolutePath::root)
    }
}

/// What is in force at one moment.
pub(crate) struct InForce {
    pub(crate) settings: Arc<Settings>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) policies: Arc<Snapshot>,
    /// Counts changes of settings, policies and postures.
    pub(crate) version: u64,
}

impl Inner {
    /// What is in force now, all as of one moment.
    pub(crate) fn in_force(&self) -> InForce {
        let _still = self.exchanging.read().unwrap_or_else(PoisonError::into_inner);
        InForce {
            version: *self.policies.borrow(),
            settings: self.settings.load_full(),
            registry: self.registry.load_full(),
            policies: self.engine.snapshot(),
        }
    }
}

impl Gate {
    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<GateConfig> {
        Arc::clone(&self.inner.settings.load().config)
    }

    /// What policy is told besides the policies themselves.
    #[must_use]
    pub fn evaluation(&self) -> Arc<PolicyEvaluationConfig> {
        Arc::clone(&self.inner.settings.load().evaluation)
    }

    /// The innermost configured workspace that holds a directory, by its path alone.
    #[must_use]
    pub fn workspace_holding(&self, directory: &AbsolutePath) -> Option<WorkspaceName> {
        let settings = self.inner.settings.load();
        let holding = settings.workspaces.values().filter(|one| directory.is_within(one.root()));
        holding.max_by_key(|one| one.root().as_str().len()).map(|one| one.name().clone())
    }

    /// Another configuration comes into force: all of it, or nothing when it cannot be used. Calls that run go on as they were started;
    /// calls that wait are decided anew, and those that are denied now, or whose workspace is gone, are withdrawn.
    ///
    /// Runs that are open keep their budget, and questions that are asked their deadlines. A lower bound on running calls holds once
    /// enough of them are over. What the gate was opened with stays until a restart: the journal, the tools, the state directory and the
    /// PIN; `presence` under `[approvals]` changes, but needs a PIN that was there from the start. The policies are the engine's: whoever
    /// changes `preset` loads them, too.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a workspace cannot be used.
    pub fn reconfigure(&self, config: GateConfig) -> Result<(), OpenError> {
        self.exchange(config, None)
    }

    /// As [`Self::reconfigure`], with other policies at the same moment: nothing is judged by the one of before and the other of after.
    ///
    /// # Errors
    /// When a workspace cannot be used. Then nothing has changed.
    pub fn put_in_force(&self, config: GateConfig, policies: Arc<Snapshot>) -> Result<(), OpenError> {
        self.exchange(config, Some(policies))
    }

    fn exchange(&self, config: GateConfig, policies: Option<Arc<Snapshot>>) -> Result<(), OpenError> {
        let inner = &self.inner;
        let changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = Arc::clone(&inner.settings.load().config);
        let settings = inner.settings.load().next(config, &inner.ground)?.with_skills(&inner.skills);
        let registry = inner.registry_with_skills(&settings.config.skills);
        let calls = settings.config.calls;
        let exchanging = inner.exchanging.write().unwrap_or_else(PoisonError::into_inner);
        inner.settings.store(Arc::new(settings));
        inner.registry.store(Arc::new(registry));
        if let Some(policies) = policies {
            inner.engine.adopt(policies);
        }
        // Whoever was judged by what held before hears of it before anything is started.
        inner.policies.send_modify(|count| *count += 1);
        drop(exchanging);
        inner.admission.resize(calls);
        drop(changing);
        self.stop_skills_that_may_less(&before.skills);
        Ok(())
    }

    /// The workspace for somebody's own working directory: the innermost configured one that holds it, else the directory itself, which is
    /// a workspace from then on until the daemon ends, under a name that its real path gives it. Of many such directories the ones that
    /// were used last stay; a call that waits in one that went is withdrawn when it is decided anew.
    ///
    /// SECURITY: presets let whoever names a workspace read in it unasked. This is for a person who works in that directory, and says so
    /// through the daemon's own surface; an agent's word must not get here, nor a name from here into an agent's proposal.
    ///
    /// # Errors
    /// When the directory cannot be opened, or is the whole machine, or holds the state directory or lies within it.
    pub fn adopt_directory(&self, path: &AbsolutePath) -> Result<WorkspaceName, WorkspaceError> {
        let inner = &self.inner;
        let configured: Vec<AbsolutePath> =
            inner.settings.load().workspaces.values().map(|one| one.root().clone()).collect();
        // Before the lock: a file system may take its time.
        let directory = Workspace::adopt(path, &inner.ground.state_directory, &configured)?;
        let changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = inner.settings.load();
        let holding = settings.workspaces.values().filter(|one| directory.root().is_within(one.root()));
        if let Some(innermost) = holding.max_by_key(|one| one.root().as_str().len()) {
            return Ok(innermost.name().clone());
        }
        if directory.holds_state() {
            return Err(WorkspaceError::HoldsState(directory.root().clone()));
        }
        let name = directory.name().clone();
        match settings.workspace(&name) {
            Some(known) if known.is_same_as(&directory) => {}
            Some(_) if settings.workspaces.contains_key(&name) => {
                let cause = format!("a configured workspace is called `{name}`, as it would be");
                return Err(WorkspaceError::Failed { path: directory.root().to_string(), cause });
            }
            // Not known, or another directory was at its place.
            Some(_) | None => inner.settings.store(Arc::new(settings.with(directory))),
        }
        drop(changing);
        Ok(name)
    }
}

impl Settings {
    /// Opens and works out what a configuration says, for the first time.
    pub(crate) fn first(config: GateConfig, ground: &Ground) -> Result<Self, OpenError> {
        let runner =
            SandboxProcessRunner::new(config.egress.host.iter().cloned())?.with_connector(Arc::clone(&ground.net));
        let runner = runner.with_tier_c(&config.sandbox.tier_c(ground.sandbox_directory(), &config.egress.trust));
        Self::new(config, ground, runner, None)
    }

    /// Opens and works out what another configuration says.
    fn next(&self, config: GateConfig, ground: &Ground) -> Result<Self, OpenError> {
        let runner = self.runner.with_hosts(config.egress.host.iter().cloned());
        // Made anew, so that what enclosures are given to read is as the machine has it now. Those that wait are ended with the old one.
        let runner = runner.with_tier_c(&config.sandbox.tier_c(ground.sandbox_directory(), &config.egress.trust));
        Self::new(config, ground, runner, Some(self))
    }

    /// The workspace of this name. One that was adopted counts as used.
    pub(crate) fn workspace(&self, name: &WorkspaceName) -> Option<Arc<Workspace>> {
        if let Some(configured) = self.workspaces.get(name) {
            return Some(Arc::clone(configured));
        }
        let adopted = self.adopted.get(name)?;
        adopted.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(&adopted.workspace))
    }

    /// What of the machine goes into plans.
    pub(crate) fn machine(&self) -> Machine<'_> {
        Machine {
            config: &self.config.sandbox,
            runner: &self.runner,
            hosts: &self.config.egress.host,
            ports: &self.ports,
            trusts_more: !self.config.egress.trust.is_empty(),
            hidden: &self.hidden,
            environment: &self.environment,
        }
    }

    /// The same, with those skills kept from running that are in quarantine by now.
    pub(crate) fn with_skills(&self, skills: &SkillShelf) -> Self {
        let mut evaluation = PolicyEvaluationConfig::clone(&self.evaluation);
        evaluation.quarantined_skills.clone_from(&self.config.policy.quarantined_skills);
        if let Ok(shelf) = skills.open() {
            evaluation.quarantined_skills.extend(shelf.quarantined());
        }
        Self { evaluation: Arc::new(evaluation), ..self.clone() }
    }

    /// The same, with a directory that nobody configured.
    fn with(&self, directory: Workspace) -> Self {
        let mut adopted = self.adopted.clone();
        let (name, used) = (directory.name().clone(), self.uses.fetch_add(1, Ordering::Relaxed).into());
        adopted.insert(name, Arc::new(Adopted { workspace: Arc::new(directory), used }));
        while adopted.len() > MOST_ADOPTED {
            let last_used = |(_, one): &(&WorkspaceName, &Arc<Adopted>)| one.used.load(Ordering::Relaxed);
            let Some(oldest) = adopted.iter().min_by_key(last_used).map(|(name, _)| name.clone()) else { break };
            adopted.remove(&oldest);
        }
        let mut evaluation = PolicyEvaluationConfig::clone(&self.evaluation);
        evaluation.workspaces.retain(|name, _| !self.adopted.contains_key(name) || self.workspaces.contains_key(name));
        show(&mut evaluation, &adopted);
        let evaluation = Arc::new(evaluation);
        Self { adopted, evaluation, ..self.clone() }
    }

    fn new(
        config: GateConfig,
        ground: &Ground,
        runner: SandboxProcessRunner,
        before: Option<&Self>,
    ) -> Result<Self, OpenError> {
        let mut evaluation = config.evaluation(&ground.state_directory)?;
        let mut workspaces = HashMap::new();
        let roots: Vec<AbsolutePath> = config.workspace.iter().filter_map(|one| real(&one.path)).collect();
        check(&config, &roots)?;
        for section in &config.workspace {
            let own = real(&section.path);
            let others: Vec<AbsolutePath> = roots.iter().filter(|root| own.as_ref() != Some(root)).cloned().collect();
            let workspace =
                Workspace::open_among(section.name.clone(), &section.path, &ground.state_directory, &others)?;
            let known = before.and_then(|known| known.workspaces.get(&section.name));
            // Policy judges real paths, so it is told where the workspace really is.
            evaluation.workspaces.insert(section.name.clone(), workspace.root().clone());
            workspaces.insert(section.name.clone(), kept(workspace, known));
        }
        let (adopted, uses) = before.map(|known| (known.adopted.clone(), Arc::clone(&known.uses))).unwrap_or_default();
        show(&mut evaluation, &adopted);
        let programs = SearchPath::new(config.sandbox.search_path.clone());
        let passed = |(name, _): &(&String, &String)| config.sandbox.pass_environment.contains(*name);
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let environment = ground.environment.iter().filter(passed).map(pair).collect();
        let ports = config.egress.host.iter().flat_map(|rule| rule.ports.iter().copied()).collect();
        let fetcher = Arc::new(Fetcher::new(Arc::clone(&ground.net), authorities(&config.egress.trust)?));
        let (evaluation, runner) = (Arc::new(evaluation), Arc::new(runner));
        let config = Arc::new(config);
        let state = real(&ground.state_directory).unwrap_or_else(|| ground.state_directory.clone());
        let hidden = elsewhere(&state).into_iter().chain([state]).collect();
        Ok(Self {
            config,
            evaluation,
            workspaces,
            adopted,
            programs,
            runner,
            fetcher,
            ports,
            hidden,
            environment,
            uses,
        })
    }
}

/// What can be told of a configuration without opening anything: that no program could have chosen a directory that others are given to read, and
/// that enclosures have room for what is listed.
fn check(config: &GateConfig, workspaces: &[AbsolutePath]) -> Result<(), OpenError> {
    let unusable = |key: &'static str, why: String| Err(OpenError::Setting { key, why });
    if config.sandbox.plans.is_empty() {
        return unusable("plans", "no program could run".to_owned());
    }
    if config.sandbox.limits.wall_ms == 0 {
        return unusable("limits.wall_ms", "every program would be out of time at once".to_owned());
    }
    let read_only = &config.sandbox.read_only;
    // SECURITY: the machine's own would take the place of what an enclosure has instead, its processes and sockets included.
    let is_own = |path: &AbsolutePath| {
        let is_within = |own: &str| AbsolutePath::parse(own).is_ok_and(|own| path.is_within(&own));
        let is_above = |own: &str| AbsolutePath::parse(own).is_ok_and(|own| own.is_within(path));
        NEVER_READ.iter().any(|own| is_within(own) || is_above(own)) || OWN.iter().any(|own| is_above(own))
    };
    for path in read_only {
        let is_there = std::path::Path::new(path.as_str()).exists();
        let real = if is_there { way::follow(path, workspaces)? } else { path.clone() };
        if is_own(path) || is_own(&real) {
            return unusable("read_only", format!("an enclosure has its own in the place of `{path}`"));
        }
    }
    let ports: BTreeSet<u16> = config.egress.host.iter().flat_map(|rule| rule.ports.iter().copied()).collect();
    for (what, count) in [("ports under [[egress.host]]", ports.len()), ("directories in `read_only`", read_only.len())]
    {
        if count > MOST_LISTED {
            return Err(OpenError::TooMany { what, count, most: MOST_LISTED });
        }
    }
    Ok(())
}

/// The real path of a directory, if it is there.
fn real(path: &AbsolutePath) -> Option<AbsolutePath> {
    std::fs::canonicalize(path.as_str()).ok()?.to_str().and_then(|path| AbsolutePath::parse(path).ok())
}

/// What of the machine no enclosure is given, nor anything in it.
const NEVER_READ: [&str; 5] = ["/proc", "/dev", "/sys", "/run", "/etc"];
/// What every enclosure has of its own. What lies in the machine's can be given.
const OWN: [&str; 2] = ["/tmp", "/var/tmp"];

/// How many ports, and how many directories to be read, enclosures have room for, and some more that calls may declare.
const MOST_LISTED: usize = 200;

/// The authorities whose certificates are in these files.
fn authorities(files: &[AbsolutePath]) -> Result<Authorities, OpenError> {
    let mut authorities = Authorities::default();
    for path in files {
        let unusable = |cause: String| OpenError::Trust { path: path.clone(), cause };
        let pem = std::fs::read(path.as_str()).map_err(|error| unusable(error.to_string()))?;
        authorities.add_pem(&pem).map_err(|error| unusable(error.to_string()))?;
    }
    Ok(authorities)
}

/// Lets policy see adopted directories as it sees configured ones. What is configured under such a name stays what it is.
fn show(evaluation: &mut PolicyEvaluationConfig, adopted: &HashMap<WorkspaceName, Arc<Adopted>>) {
    for (name, one) in adopted {
        evaluation.workspaces.entry(name.clone()).or_insert_with(|| one.workspace.root().clone());
    }
}

/// The workspace as it was opened before, if it is the same directory: calls that write there wait for each other.
fn kept(opened: Workspace, known: Option<&Arc<Workspace>>) -> Arc<Workspace> {
    known.filter(|known| known.is_same_as(&opened)).map_or_else(|| Arc::new(opened), Arc::clone)
}

/// How many directories that nobody configured are workspaces at the same time. Each keeps a descriptor.
const MOST_ADOPTED: usize = 256;
