//! MCP servers behind the gateway: which there are, how they are, and which of their tools are offered to the gate.
//!
//! Guarantees: a tool is offered while its server says exactly what a person has pinned, tools of servers are switched on, and what is pinned
//! can be read; whatever is added, pinned or removed is on record before it is in force, and what is taken away is not held up by a record.
//! No server holds up a start of the daemon.
//! Does not: decide about calls. The gate does.

mod changes;
mod keeping;
mod link;
mod offering;
mod sent;
mod server;
mod telling;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use palyra_access::{AccessRegistry, FeatureFlag};
use palyra_gate::Gate;
use palyra_journal::RecordKind;
use palyra_types::{Principal, Sha256Digest, ToolName};
use palyra_upstream::{Definition, ServerName, ServerSection, Standing, Tool, ToolState};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub use self::telling::section;
use self::{
    changes::{Change, Changed, Changes},
    keeping::Keeping,
    link::Unreached,
    offering::{McpService, Offered},
    server::{Origin, Server, Up},
};
use crate::failure::Failure;

/// The servers there are.
pub struct Upstreams {
    gate: Gate,
    access: AccessRegistry,
    now: Mutex<Now>,
    /// Held while something is changed, so that changes are one after the other.
    changing: tokio::sync::Mutex<()>,
    moved: watch::Sender<u64>,
}

/// How everything is now.
struct Now {
    keeping: Keeping,
    /// The servers of `config.toml`.
    configured: Vec<ServerSection>,
    servers: BTreeMap<ServerName, Arc<Server>>,
    offered: BTreeMap<ToolName, Offered>,
    /// How the servers of those are configured.
    offered_of: BTreeMap<ServerName, ServerSection>,
    /// What was put on record of tools that are not what was pinned.
    changes: Changes,
}

impl Now {
    /// How the tools of a server stand.
    fn standings(&mut self, server: &Server) -> Arc<[Standing]> {
        self.keeping.standings(&server.section, server.tools())
    }
}

impl Upstreams {
    /// Begins with what is configured and what is kept in the state directory. Servers are reached in the background.
    #[must_use]
    pub fn begin(gate: Gate, access: AccessRegistry, home: &Path, configured: Vec<ServerSection>) -> Arc<Self> {
        let keeping = Keeping::read(home);
        if let Some(why) = keeping.trouble() {
            tracing::error!(why, "nothing of any MCP server is offered");
        }
        let now = Now {
            keeping,
            configured,
            servers: BTreeMap::new(),
            offered: BTreeMap::new(),
            offered_of: BTreeMap::new(),
            changes: Changes::default(),
        };
        let upstreams = Arc::new(Self {
            gate,
            access,
            now: Mutex::new(now),
            changing: tokio::sync::Mutex::default(),
            moved: watch::channel(0).0,
        });
        upstreams.settle();
        upstreams.offer();
        tokio::spawn(follow(Arc::downgrade(&upstreams)));
        upstreams
    }

    /// Follows another configuration: servers that are gone are stopped, and those that changed are started anew.
    pub fn configure(self: &Arc<Self>, configured: Vec<ServerSection>) {
        self.now().configured = configured;
        self.settle();
        self.offer();
    }

    /// Stops all servers.
    pub fn stop(&self) {
        let servers = std::mem::take(&mut self.now().servers);
        drop(servers);
    }

    /// What a model is told about a tool, as it is pinned.
    #[must_use]
    pub fn told(&self, tool: &ToolName) -> Option<Arc<Tool>> {
        self.now().offered.get(tool).map(|offered| Arc::clone(offered.definition.tool()))
    }

    /// Adds a server.
    ///
    /// # Errors
    /// When there is one of its name, or it cannot be recorded or kept.
    pub async fn add(&self, section: ServerSection, by: &Principal) -> Result<(), Failure> {
        let _alone = self.changing.lock().await;
        let mut added = {
            let now = self.now();
            if now.keeping.has_added(&section.name) || now.configured.iter().any(|one| one.name == section.name) {
                return Err(Failure::new(
                    "mcp_exists",
                    format!("there is an MCP server called `{}`", section.name),
                    "call it otherwise, or remove the other one first: `palyra mcp remove`",
                ));
            }
            now.keeping.added.clone().map_err(|why| unusable(&why))?
        };
        let body = json!({ "by": by.to_string(), "server": section });
        self.gate.record_mcp(RecordKind::McpAdded, &body).await?;
        added.push(section);
        self.now().keeping.keep_added(added).map_err(|why| unusable(&why))?;
        self.settle();
        Ok(())
    }

    /// Removes a server that was added by command, with what is pinned of it.
    ///
    /// # Errors
    /// When there is none, or it cannot be kept or recorded. What could be taken away is taken away.
    pub async fn remove(self: &Arc<Self>, name: &ServerName, by: &Principal) -> Result<(), Failure> {
        let _alone = self.changing.lock().await;
        {
            let mut now = self.now();
            if !now.keeping.has_added(name) {
                let is_configured = now.configured.iter().any(|one| one.name == *name);
                return Err(if is_configured { in_config(name) } else { unknown(name) });
            }
            let added = now.keeping.added.clone().map_err(|why| unusable(&why))?;
            let added = added.into_iter().filter(|one| one.name != *name).collect();
            now.keeping.keep_added(added).map_err(|why| unusable(&why))?;
            if let Ok(mut pins) = now.keeping.pinned.clone() {
                pins.forget(name);
                now.keeping.keep_pins(pins).map_err(|why| unusable(&why))?;
            }
        }
        self.settle();
        self.offer();
        let body = json!({ "by": by.to_string(), "server": name });
        Ok(self.gate.record_mcp(RecordKind::McpRemoved, &body).await?)
    }

    /// Lets definitions count that somebody has seen: all of them, or none.
    ///
    /// # Errors
    /// When one of them is not what the server says now, or cannot be offered, or it cannot be recorded or kept.
    pub async fn pin(
        self: &Arc<Self>,
        name: &ServerName,
        seen: &BTreeMap<String, Sha256Digest>,
        by: &Principal,
    ) -> Result<(), Failure> {
        let _alone = self.changing.lock().await;
        let (standings, mut pins, section) = {
            let mut now = self.now();
            let server = now.servers.get(name).cloned().ok_or_else(|| unknown(name))?;
            let pins = now.keeping.pinned.clone().map_err(|why| unusable(&why))?;
            (now.standings(&server), pins, server.section.clone())
        };
        let wanted: Wanted =
            seen.iter().map(|(tool, digest)| pinnable(&standings, tool, *digest)).collect::<Result<_, _>>()?;
        let wanted = tokio::task::spawn_blocking(move || usable(wanted)).await;
        let wanted = wanted.map_err(|error| Failure::internal(error.to_string()))??;
        let told = wanted.iter().map(|(definition, before)| {
            json!({ "tool": definition.name(), "digest": definition.digest(), "before": before })
        });
        let body = json!({ "by": by.to_string(), "server": name, "tools": told.collect::<Vec<_>>() });
        self.gate.record_mcp(RecordKind::McpPinned, &body).await?;
        let (at, by) = (self.gate.clock().now(), by.to_string());
        for (definition, _) in wanted {
            pins.pin(&section, definition, (at, &by));
        }
        self.now().keeping.keep_pins(pins).map_err(|why| unusable(&why))?;
        self.offer();
        Ok(())
    }

    /// Whether tools of servers are switched on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.access.snapshot().state().is_on(FeatureFlag::McpGateway)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts and stops servers until those run that are configured.
    fn settle(&self) {
        let mut now = self.now();
        let mut wanted: BTreeMap<ServerName, (ServerSection, Origin)> = BTreeMap::new();
        for section in now.keeping.added.iter().flatten() {
            wanted.insert(section.name.clone(), (section.clone(), Origin::Command));
        }
        for section in &now.configured {
            let before = wanted.insert(section.name.clone(), (section.clone(), Origin::Config));
            if before.is_some() {
                let name = &section.name;
                tracing::warn!(server = %name, "config.toml has an MCP server of this name, so the one that was added is left alone");
            }
        }
        let keeps = |name: &ServerName, server: &Arc<Server>| {
            wanted.get(name).is_some_and(|(section, origin)| server.section == *section && server.origin == *origin)
        };
        let before = std::mem::take(&mut now.servers);
        now.servers = before.into_iter().filter(|(name, server)| keeps(name, server)).collect();
        for (name, known) in wanted {
            let begin = || Arc::new(Server::begin(self.gate.clone(), known, self.moved.clone()));
            now.servers.entry(name).or_insert_with(begin);
        }
        let Now { servers, changes, keeping, .. } = &mut *now;
        changes.keep(|name| servers.contains_key(name));
        keeping.keep_standings(|name| servers.contains_key(name));
    }

    /// The conversation with a server, if it is still configured so.
    async fn up(&self, section: &ServerSection, within: Duration) -> Result<Arc<Up>, Unreached> {
        let server = self.now().servers.get(&section.name).filter(|server| server.section == *section).cloned();
        let gone = || Unreached::new("the server is not configured so any more", "call it again");
        server.ok_or_else(gone)?.up(within).await
    }

    /// A tool that is offered, by its server's name for it.
    fn offered_tool(&self, server: &ServerName, tool: &str) -> Option<Offered> {
        let now = self.now();
        now.offered.values().find(|one| one.server == *server && one.definition.name() == tool).cloned()
    }

    /// Whether what the server says now, and what is pinned, are both this.
    fn is_as_pinned(&self, section: &ServerSection, tool: &str, digest: Sha256Digest) -> bool {
        let mut now = self.now();
        let Some(server) = now.servers.get(&section.name).cloned() else { return false };
        // SECURITY: looked at once, as a server that tells of its tools for the first time does so in between.
        let Some(listed) = server.tools() else { return false };
        let standings = now.keeping.standings(&server.section, Some(listed));
        let known = standings.iter().find(|one| one.tool == tool);
        known.and_then(Standing::offer).is_some_and(|(_, definition)| definition.digest() == digest)
    }
}

/// Follows whatever decides what is offered: what servers say, and whether tools of servers are switched on.
async fn follow(upstreams: Weak<Upstreams>) {
    let Some((mut moved, mut switched)) = upstreams.upgrade().map(|one| (one.moved.subscribe(), one.access.changes()))
    else {
        return;
    };
    let mut next = None;
    loop {
        let is_over = tokio::select! {
            changed = moved.changed() => changed.is_err(),
            changed = switched.changed() => changed.is_err(),
            () = until(next) => false,
        };
        let Some(upstreams) = upstreams.upgrade().filter(|_| !is_over) else { return };
        let changed = upstreams.offer();
        let (due, later) = upstreams.now().changes.due(changed, Instant::now());
        next = later;
        for (server, changed) in due {
            let count = changed.len();
            tracing::warn!(%server, count, "tools of an MCP server are not what was pinned, so they are not offered");
            let told = changed
                .iter()
                .map(|(tool, change)| json!({ "tool": tool, "pinned": change.pinned, "says": change.says }));
            let body = json!({ "server": server, "tools": told.collect::<Vec<_>>() });
            // They are not offered, whether that can be put on record or not.
            if let Err(error) = upstreams.gate.record_mcp(RecordKind::McpChanged, &body).await {
                tracing::warn!(%error, "changed tools could not be recorded");
            }
        }
    }
}

/// Waits until then, or for ever.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}

impl Upstreams {
    /// Offers to the gate what counts now. Returns what has changed since it was pinned.
    fn offer(self: &Arc<Self>) -> BTreeMap<ServerName, Changed> {
        let is_enabled = self.is_enabled();
        let mut now = self.now();
        let is_readable = now.keeping.trouble().is_none();
        let (mut offered, mut tools) = (BTreeMap::new(), Vec::new());
        let mut changed: BTreeMap<ServerName, Changed> = BTreeMap::new();
        for (name, server) in &now.servers.clone() {
            let service = Arc::new(McpService::new(server.section.clone(), Arc::downgrade(self)));
            for standing in now.standings(server).iter() {
                if let (ToolState::Changed, Some(says)) = (standing.state, &standing.now) {
                    let pinned = standing.pin.as_ref().map(|pin| pin.digest);
                    let change = Change { pinned, says: says.digest() };
                    changed.entry(name.clone()).or_default().insert(standing.tool.clone(), change);
                }
                let Some((tool, definition)) = standing.offer().filter(|_| is_enabled && is_readable) else { continue };
                match offering::tool(tool, definition, &service) {
                    Ok(made) => {
                        let one = Offered { server: name.clone(), definition: definition.clone() };
                        offered.insert(tool.clone(), (one, server.section.clone()));
                        tools.push(made);
                    }
                    Err(error) => tracing::warn!(server = %name, %tool, %error, "a tool cannot be offered"),
                }
            }
        }
        let key = |one: &Offered| (one.server.clone(), one.definition.digest());
        let is_same = now.offered.len() == offered.len()
            && now.offered.iter().zip(&offered).all(|((a, one), (b, (other, _)))| a == b && key(one) == key(other));
        let sections: BTreeMap<ServerName, ServerSection> =
            offered.values().map(|(one, section)| (one.server.clone(), section.clone())).collect();
        let is_same = is_same && now.offered_of == sections;
        now.offered = offered.into_iter().map(|(name, (one, _))| (name, one)).collect();
        now.offered_of = sections;
        // Offering has everything that waits judged anew.
        if !is_same {
            self.gate.offer(tools);
        }
        changed
    }
}

/// A definition that somebody has seen, if it can be pinned.
fn pinnable(
    standings: &[Standing],
    tool: &str,
    seen: Sha256Digest,
) -> Result<(Definition, Option<Sha256Digest>), Failure> {
    let shown = palyra_types::visible::visible(tool);
    let help = "`palyra mcp show` shows what the server says now";
    let known = standings.iter().find(|one| one.tool == tool);
    let Some(known) = known else {
        return Err(Failure::new("unknown_tool", format!("the server has no tool `{shown}`"), help));
    };
    if let Err(refused) = &known.name {
        return Err(Failure::new("mcp_refused", format!("`{shown}` cannot be offered: {refused}"), help));
    }
    match &known.now {
        Some(definition) if definition.digest() == seen => {
            Ok((definition.clone(), known.pin.as_ref().map(|pin| pin.digest)))
        }
        _ => Err(Failure::new("mcp_changed", format!("what the server says of `{shown}` is not what was seen"), help)),
    }
}

type Wanted = Vec<(Definition, Option<Sha256Digest>)>;

/// Definitions whose arguments can be held to their schemas. Finding that out can take a while.
fn usable(wanted: Wanted) -> Result<Wanted, Failure> {
    for (definition, _) in &wanted {
        if let Err(error) = palyra_package::schema::of(offering::arguments(definition)) {
            let name = palyra_types::visible::visible(definition.name());
            let message = format!("the schema of the arguments of `{name}` cannot be used: {error}");
            return Err(Failure::new("mcp_refused", message, "leave this tool out, or ask whoever made the server"));
        }
    }
    Ok(wanted)
}

fn unknown(name: &ServerName) -> Failure {
    Failure::new("unknown_mcp_server", format!("there is no MCP server `{name}`"), "`palyra mcp list` lists them")
}

fn in_config(name: &ServerName) -> Failure {
    Failure::new(
        "mcp_in_config",
        format!("the MCP server `{name}` is configured in config.toml"),
        "remove it from there, then `palyra reload`",
    )
}

fn unusable(why: &str) -> Failure {
    let help = "look at the file; without it nothing is pinned, and every tool has to be pinned anew";
    Failure::new("mcp_unusable", why, help)
}
