//! The registry: the tools there are, by name, each with its compiled schema.
//!
//! Guarantees: a tool is never handed arguments that do not fit its schema; a name that is not known is answered with the nearest
//! one that is. The names, summaries and capabilities of the built-in tools are those that `policies/tools.toml` gives to policy. Tools of
//! skills stand beside them, and cost nothing before they are asked for: a thousand of them do not hold up a start.
//! Does not: decide or perform anything; the functions that do are for this crate alone.
//!
//! ```compile_fail,E0603
//! use palyra_gate::tools::files::perform; // Performing takes a permit, and only this crate has them.
//! ```

mod arguments;
pub(crate) mod files;
mod fs_list;
mod fs_read;
mod fs_search;
mod fs_write;
pub(crate) mod http_fetch;
pub(crate) mod net_connect;
pub(crate) mod process_run;
mod program;
mod reports;
mod walk;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use palyra_package::schema::{Effort, TooMuchWork};
use palyra_policy::{DataError, builtin_tools};
use palyra_types::{JsonError, JsonObject, ToolMetadata, ToolName, WorkspaceName, visible::visible, word::nearest};
use serde::Deserialize;

use self::arguments::ArgumentCheck;
pub use self::{
    arguments::ArgumentsError,
    files::{FileError, OutputCaps},
};
use crate::{
    proposal::ToolProposal,
    service::{Service, ServiceOperation},
    tool::{IntendError, Intent, Look, Place, Tool, ToolDefinition},
};

/// The tools there are.
#[derive(Default, Clone)]
pub struct Registry {
    entries: BTreeMap<ToolName, Arc<Entry>>,
    /// Tools of skills, made when they are first asked for.
    skills: BTreeMap<ToolName, Arc<LaterEntry>>,
    /// Tools of servers that somebody else runs.
    upstream: BTreeMap<ToolName, Arc<Entry>>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    /// Compiled when arguments are first held to it, nothing if it does not compile. What is only listed is not compiled.
    check: OnceLock<Option<ArgumentCheck>>,
}

/// A tool that is made when it is first asked for.
struct LaterEntry {
    make: Maker,
    /// Nothing if it cannot be made.
    made: OnceLock<Option<Entry>>,
}

/// Makes a tool.
pub(crate) type Maker = Box<dyn Fn() -> Result<Arc<dyn Tool>, JsonError> + Send + Sync>;

impl Registry {
    /// The tools that the gate performs by itself: those of the table that no service has to be there for.
    ///
    /// # Errors
    /// When a built-in definition is broken, which is a broken build.
    pub fn bare() -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        for metadata in builtin_tools()?.into_values() {
            if let Some(tool) = builtin(metadata)? {
                registry.add(tool)?;
            }
        }
        Ok(registry)
    }

    /// The tools that ship with Palyra: each in the table is the gate's own or an operation of these services, and each of these is in the
    /// table.
    ///
    /// # Errors
    /// When a built-in definition is broken, or the table and the services differ, which is a broken build.
    pub fn builtin(services: Vec<ServiceOperation>) -> Result<Self, RegistryError> {
        let mut registry = Self::bare()?;
        let mut table = builtin_tools()?;
        table.retain(|name, _| !registry.entries.contains_key(name));
        for operation in services {
            let name = operation.tool;
            let metadata = table.remove(name).ok_or_else(|| RegistryError::NotInTable(name.to_owned()))?;
            registry.add(Arc::new(operation.tool(metadata)?))?;
        }
        match table.into_keys().next() {
            Some(name) => Err(RegistryError::NotBuiltIn(name)),
            None => Ok(registry),
        }
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// When there is one of that name, or its schema does not compile.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = tool.definition().name().clone();
        let check = ArgumentCheck::of_our_own(tool.definition())
            .map_err(|cause| RegistryError::Schema { tool: name.clone(), cause })?;
        if self.entries.contains_key(&name) {
            return Err(RegistryError::Twice(name));
        }
        self.entries.insert(name, Arc::new(Entry { tool, check: OnceLock::from(Some(check)) }));
        Ok(())
    }

    /// The same tools, with these of skills in the place of others of skills. One that is called like a built-in tool is left out.
    pub(crate) fn with_skills(&self, skills: impl IntoIterator<Item = (ToolName, Maker)>) -> Self {
        let later = |(name, make)| (name, Arc::new(LaterEntry { make, made: OnceLock::new() }));
        let skills = skills.into_iter().filter(|(name, _)| !self.entries.contains_key(name)).map(later);
        Self { entries: self.entries.clone(), skills: skills.collect(), upstream: self.upstream.clone() }
    }

    /// The same tools, with these of servers in the place of others of servers. One that is called like another tool is left out.
    pub(crate) fn with_upstream(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let entry = |tool: Arc<dyn Tool>| (tool.definition().name().clone(), Entry { tool, check: OnceLock::new() });
        let taken = |name: &ToolName| self.entries.contains_key(name) || self.skills.contains_key(name);
        let tools = tools.into_iter().map(entry).filter(|(name, _)| !taken(name));
        let upstream = tools.map(|(name, entry)| (name, Arc::new(entry))).collect();
        Self { entries: self.entries.clone(), skills: self.skills.clone(), upstream }
    }

    /// The service that performs a tool, for those that one does.
    pub(crate) fn service(&self, name: &ToolName) -> Option<Arc<dyn Service>> {
        self.entry(name).ok()?.tool.service()
    }

    /// The workspace that a tool works in wherever it is called, if it has one of its own.
    pub(crate) fn own_workspace(&self, name: &ToolName) -> Option<&WorkspaceName> {
        self.entry(name).ok()?.tool.own_workspace()
    }

    /// The definitions of the tools that can be called, in the order of their names.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        let own = self.entries.values().map(Arc::as_ref).filter(|entry| !entry.tool.is_internal());
        let of_skills = self.skills.values().filter_map(|later| later.entry());
        let upstream = self.upstream.values().map(Arc::as_ref);
        own.chain(of_skills).chain(upstream).map(|entry| entry.tool.definition())
    }

    /// Refuses what only the daemon itself proposes, as if there were no such tool.
    ///
    /// # Errors
    /// When it is one of those.
    pub fn callable(&self, name: &ToolName) -> Result<(), CallError> {
        match self.is_internal(name) {
            true => Err(self.unknown(name)),
            false => Ok(()),
        }
    }

    /// Whether only the daemon itself proposes it.
    pub(crate) fn is_internal(&self, name: &ToolName) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.tool.is_internal())
    }

    /// The definition of one tool.
    ///
    /// # Errors
    /// When there is no such tool.
    pub fn definition(&self, name: &ToolName) -> Result<&ToolDefinition, CallError> {
        self.entry(name).map(|entry| entry.tool.definition())
    }

    /// The definition of the tool that a proposal is about: of one that is known here, or of what another program has.
    ///
    /// # Errors
    /// When there is no such tool, or only the daemon itself proposes it.
    pub(crate) fn definition_for(&self, proposal: &ToolProposal) -> Result<Cow<'_, ToolDefinition>, CallError> {
        let known = self.definition(&proposal.tool);
        let Some(elsewhere) = &proposal.elsewhere else { return known.map(Cow::Borrowed) };
        self.callable(&proposal.tool)?;
        let defined = elsewhere.definition(&proposal.tool, known.ok().map(ToolDefinition::metadata));
        defined.map(Cow::Owned).map_err(|error| IntendError::Shape(error.to_string()).into())
    }

    /// Whether a tool can be called with such arguments, as far as its schema says. Takes long only for tools of skills and servers.
    ///
    /// # Errors
    /// When there is no such tool that can be called, or the arguments do not fit.
    pub fn fits(&self, name: &ToolName, args: &JsonObject) -> Result<(), CallError> {
        self.callable(name)?;
        let check = self.entry(name)?.check().ok_or_else(|| self.unknown(name))?;
        match check.misfit(args, Effort::Whole) {
            Ok(None) => Ok(()),
            Ok(Some(misfit)) => Err(CallError::Arguments(misfit)),
            Err(TooMuchWork(_)) => Err(CallError::Laborious(name.clone())),
        }
    }

    /// Checks the arguments of a call and reads them into what would be done. Changes nothing.
    ///
    /// # Errors
    /// When there is no such tool, or the arguments mean nothing that it could do.
    pub fn intend(&self, name: &ToolName, args: &JsonObject, place: &Place<'_>) -> Result<Intent, CallError> {
        let entry = self.entry(name)?;
        if !entry.tool.glances() {
            place.whole()?;
        }
        let effort = match place.look {
            Look::Glance => Effort::Brief,
            Look::Whole => Effort::Whole,
        };
        // SECURITY: a schema of a skill can take long to compile, and that is not for where others wait.
        if entry.check.get().is_none() {
            place.whole()?;
        }
        match entry.check().ok_or_else(|| self.unknown(name))?.misfit(args, effort) {
            Ok(None) => Ok(entry.tool.intend(args, place)?),
            Ok(Some(misfit)) => Err(CallError::Arguments(misfit)),
            Err(TooMuchWork(Effort::Brief)) => Err(CallError::Intend(IntendError::TakesLonger)),
            Err(TooMuchWork(Effort::Whole)) => Err(CallError::Laborious(name.clone())),
        }
    }

    fn entry(&self, name: &ToolName) -> Result<&Entry, CallError> {
        let own = self.entries.get(name).map(Arc::as_ref);
        own.or_else(|| self.skills.get(name)?.entry())
            .or_else(|| self.upstream.get(name).map(Arc::as_ref))
            .ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &ToolName) -> CallError {
        let own = self.entries.iter().filter(|(_, entry)| !entry.tool.is_internal()).map(|(name, _)| name);
        let known: Vec<&str> =
            own.chain(self.skills.keys()).chain(self.upstream.keys()).map(ToolName::as_str).collect();
        CallError::UnknownTool { name: name.clone(), near: nearest(name.as_str(), &known).map(str::to_owned) }
    }
}

impl Entry {
    fn check(&self) -> Option<&ArgumentCheck> {
        self.check.get_or_init(|| ArgumentCheck::compile(self.tool.definition()).ok()).as_ref()
    }
}

impl LaterEntry {
    fn entry(&self) -> Option<&Entry> {
        let made = self.made.get_or_init(|| Some(Entry { tool: (self.make)().ok()?, check: OnceLock::new() }));
        made.as_ref()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.keys().chain(self.skills.keys()).chain(self.upstream.keys())).finish()
    }
}

fn builtin(metadata: ToolMetadata) -> Result<Option<Arc<dyn Tool>>, JsonError> {
    Ok(Some(match metadata.name.as_str() {
        "process.run" => Arc::new(process_run::ProcessRun::new(metadata)?),
        "fs.read" => Arc::new(fs_read::FsRead::new(metadata)?),
        "fs.list" => Arc::new(fs_list::FsList::new(metadata)?),
        "fs.search" => Arc::new(fs_search::FsSearch::new(metadata)?),
        "fs.write" => Arc::new(fs_write::FsWrite::new(metadata)?),
        "http.fetch" => Arc::new(http_fetch::HttpFetch::new(metadata)?),
        net_connect::NET_CONNECT => Arc::new(net_connect::NetConnect::new(metadata)?),
        "tool.list" => Arc::new(reports::ToolReport::tools(metadata)?),
        "daemon.status" => Arc::new(reports::ToolReport::status(metadata)?),
        _ => return Ok(None),
    }))
}

/// Reads arguments that fit their schema into the struct of a tool.
fn read<'a, T: Deserialize<'a>>(args: &'a JsonObject) -> Result<T, IntendError> {
    T::deserialize(args.value()).map_err(|error| IntendError::Shape(error.to_string()))
}

/// Why a tool cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The table of built-in tools is broken.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The table of built-in tools names one that is not.
    #[error("`{0}` is in the table of built-in tools, but there is no such tool")]
    NotBuiltIn(ToolName),
    /// A service performs what the table does not name.
    #[error("`{0}` is not in the table of built-in tools")]
    NotInTable(String),
    /// A schema that cannot be digested.
    #[error("a tool definition cannot be used: {0}")]
    Definition(#[from] JsonError),
    /// A schema that does not compile.
    #[error("the input schema of `{tool}` cannot be used: {}", visible(.cause))]
    Schema {
        /// The tool.
        tool: ToolName,
        /// What is wrong with it.
        cause: String,
    },
    /// A second tool of the same name.
    #[error("there are two tools called `{0}`")]
    Twice(ToolName),
}

/// Why a call means nothing that could be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no such tool.
    #[error("there is no tool `{name}`{}", .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownTool {
        /// The name.
        name: ToolName,
        /// The nearest name there is.
        near: Option<String>,
    },
    /// The arguments do not fit the schema.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// Nobody knows whether the arguments fit.
    #[error("holding the arguments of `{0}` to its schema takes more work than a call may cause")]
    Laborious(ToolName),
    /// The arguments fit, but mean nothing that could be done.
    #[error(transparent)]
    Intend(#[from] IntendError),
    /// It uses secrets, and there is no vault to have them from.
    #[error("it uses a secret, and the vault is {}", if *.is_locked { "locked" } else { "closed" })]
    NoVault {
        /// Whether it only waits to be unlocked.
        is_locked: bool,
    },
}

impl CallError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::UnknownTool { .. } => "`tool.list` tells which tools there are",
            Self::Arguments(error) => error.advice(),
            Self::Laborious(_) => "nest the arguments less, or ask whoever made the tool for a plainer schema",
            Self::Intend(error) => error.advice(),
            Self::NoVault { is_locked: true } => "a person opens it with `palyra vault unlock`",
            Self::NoVault { is_locked: false } => "`palyra vault status` says why, and what to do",
        }
    }
}

#[cfg(test)]
mod tests;
