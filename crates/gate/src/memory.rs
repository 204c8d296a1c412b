//! What is remembered of the journal, so that most calls read nothing from the disk before they are decided.
//!
//! Guarantees: what is remembered is what the journal says. Of a run only that is remembered that never changes; a posture is forgotten
//! as soon as any is set. What a run has used is never remembered: the transaction that a call is paid by looks at it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use palyra_journal::{
    ReadError,
    state::{Charge, PostureRow, RunRow},
};
use palyra_types::{ToolName, id::RunId};

use crate::gate::Inner;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Memory {
    runs: Mutex<HashMap<RunId, Arc<KnownRun>>>,
    postures: Mutex<Postures>,
}

/// A run: whose it is, and what it may use.
pub(crate) struct KnownRun {
    /// As if nothing were used yet.
    pub(crate) row: RunRow,
    /// The tools whose last call here was let through, so that it had to be read in full.
    read: Mutex<HashSet<ToolName>>,
}

impl KnownRun {
    /// Whether a glance may be enough for the next call of a tool. Where it was not for the last, it most likely is not.
    pub(crate) fn is_worth_a_glance(&self, tool: &ToolName) -> bool {
        !self.read.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// Remembers whether a glance would have been enough for a call of a tool.
    pub(crate) fn remember(&self, tool: &ToolName, a_glance_is_enough: bool) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if a_glance_is_enough {
            read.remove(tool);
        } else if !read.contains(tool) {
            read.insert(tool.clone());
        }
    }
}

/// The postures of tools as of a version of policies and postures.
#[derive(Default)]
struct Postures {
    version: u64,
    of: HashMap<ToolName, Arc<[PostureRow]>>,
}

impl Inner {
    /// A run: whose it is, and what it may use.
    pub(crate) async fn known_run(&self, run: RunId) -> Result<Option<Arc<KnownRun>>, ReadError> {
        let known = self.memory.runs.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(row) = self.store.run(run).await? else { return Ok(None) };
        let row = RunRow { used: Charge::default(), ..row };
        let known = Arc::new(KnownRun { row, read: Mutex::default() });
        let mut runs = self.memory.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= MOST_RUNS {
            runs.clear();
        }
        Ok(Some(Arc::clone(runs.entry(run).or_insert(known))))
    }

    /// The postures that are set for a tool, as of a version that was current before this was called.
    pub(crate) async fn known_postures(&self, tool: &ToolName, version: u64) -> Result<Arc<[PostureRow]>, ReadError> {
        // What could not be written may be there all the same; until that is known, nothing is taken from memory nor put there.
        if self.store.trouble().is_some() {
            return Ok(self.store.postures(tool.clone()).await?.into());
        }
        if let Some(known) = self.memory.postures(version, |postures| postures.of.get(tool).cloned()) {
            return Ok(known);
        }
        // SECURITY: whoever sets one makes the next version once it is durable. What is read here before that is kept for this version,
        // which nobody asks for any more after it.
        let read: Arc<[PostureRow]> = self.store.postures(tool.clone()).await?.into();
        self.memory.postures(version, |postures| {
            postures.of.insert(tool.clone(), Arc::clone(&read));
            Some(())
        });
        Ok(read)
    }
}

impl Memory {
    /// The postures of this version; those of an older one are forgotten. Nothing for a version that is over.
    fn postures<T>(&self, version: u64, ask: impl FnOnce(&mut Postures) -> Option<T>) -> Option<T> {
        let mut postures = self.postures.lock().unwrap_or_else(PoisonError::into_inner);
        if postures.version < version {
            *postures = Postures { version, of: HashMap::new() };
        }
        if postures.version == version { ask(&mut postures) } else { None }
    }
}

/// How many runs are remembered. Then they are looked up anew.
const MOST_RUNS: usize = 4_096;
