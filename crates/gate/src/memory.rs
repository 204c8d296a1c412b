//! What is remembered of the journal, so that a call that policy denies reads nothing from the disk.
//!
//! Guarantees: what is remembered is what the journal says. Of a run only that is remembered that never changes; a posture is forgotten
//! as soon as any is set. What a call is paid from is never remembered but read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use palyra_journal::{
    ReadError,
    state::{PostureRow, RunRow},
};
use palyra_types::{ToolName, id::RunId};

use crate::gate::Inner;

/// What is remembered.
#[derive(Default)]
pub(crate) struct Memory {
    runs: Mutex<HashMap<RunId, Arc<RunRow>>>,
    postures: Mutex<Postures>,
}

/// The postures of tools as of a version of policies and postures.
#[derive(Default)]
struct Postures {
    version: u64,
    of: HashMap<ToolName, Arc<[PostureRow]>>,
}

impl Inner {
    /// A run: whose it is, and what it may use. What it has used is as of when it was first asked for.
    pub(crate) async fn known_run(&self, run: RunId) -> Result<Option<Arc<RunRow>>, ReadError> {
        let known = self.memory.runs.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(row) = self.store.run(run).await?.map(Arc::new) else { return Ok(None) };
        let mut runs = self.memory.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= MOST_RUNS {
            runs.clear();
        }
        runs.insert(run, Arc::clone(&row));
        Ok(Some(row))
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
