//! What agents keep between calls, as tools: notes and files.
//!
//! | you look for | read |
//! |---|---|
//! | notes: `memory.*` | [`memory`] |
//! | files: `artifact.*` | [`artifacts`] |
//! | whose something is, as calls say it | [`scope`] |
//!
//! Guarantees: a call says in which scope it works before anything is decided, so policy decides about that scope and a person approves it;
//! what is in another scope is as unknown as what never was. Databases are worked with on threads that may block.
//! Does not: decide who may read or write where. Policy does. Nothing of a content is logged.

pub mod artifacts;
pub mod memory;
pub mod scope;

use std::sync::Arc;

use palyra_gate::{IntendError, Performed, ServiceOperation};
use palyra_notebook::{ArtifactError, ArtifactStore, MemoryError, MemoryStore};
use palyra_types::{Clock, Entropy, JsonObject, StateHome};
use serde::de::DeserializeOwned;

/// The stores of what is kept.
#[derive(Debug, Clone)]
pub struct Keeping {
    /// Notes.
    pub memory: Arc<MemoryStore>,
    /// Files.
    pub artifacts: Arc<ArtifactStore>,
}

impl Keeping {
    /// Opens what is kept in a state directory. Blocks.
    ///
    /// # Errors
    /// When a store cannot be opened.
    pub fn open(home: &StateHome, clock: &Arc<dyn Clock>, entropy: &Arc<dyn Entropy>) -> Result<Self, KeepingError> {
        let directory = home.path().join(DIRECTORY);
        let memory = MemoryStore::open(&directory, Arc::clone(clock), Arc::clone(entropy))?;
        let artifacts = ArtifactStore::open(&directory, Arc::clone(clock), Arc::clone(entropy))?;
        Ok(Self { memory: Arc::new(memory), artifacts: Arc::new(artifacts) })
    }

    /// The tools that work on it.
    #[must_use]
    pub fn operations(&self) -> Vec<ServiceOperation> {
        let mut operations = memory::operations(Arc::clone(&self.memory));
        operations.extend(artifacts::operations(Arc::clone(&self.artifacts)));
        operations
    }
}

/// Why what is kept cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum KeepingError {
    /// The notes.
    #[error("the memory cannot be opened: {0}")]
    Memory(#[from] MemoryError),
    /// The files.
    #[error("the artifacts cannot be opened: {0}")]
    Artifacts(#[from] ArtifactError),
}

impl KeepingError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Memory(error) => error.advice(),
            Self::Artifacts(error) => error.advice(),
        }
    }
}

/// Does something with a database, where blocking holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Performed> + Send + 'static,
) -> Result<T, Performed> {
    let crashed = |_| Performed::failed("it failed inside the daemon", "look at the daemon's log, and report this");
    tokio::task::spawn_blocking(work).await.map_err(crashed)?
}

/// Reads arguments that fit their schema.
pub(crate) fn read<T: DeserializeOwned>(args: &JsonObject) -> Result<T, IntendError> {
    T::deserialize(args.value()).map_err(|error| IntendError::Shape(error.to_string()))
}

/// The same for what was read before, and so can be read again.
pub(crate) fn read_again<T: DeserializeOwned>(args: &JsonObject) -> Result<T, Performed> {
    T::deserialize(args.value())
        .map_err(|error| Performed::failed(error.to_string(), "look at the input schema of the tool"))
}

/// What is told about an operation that a service does not know. It was decided about as one that it knows, so it is not reached.
pub(crate) fn unknown_operation(name: &str) -> Performed {
    Performed::failed(format!("there is no operation `{name}`"), "`tool.list` tells which tools there are")
}

/// Where it is in the state directory.
const DIRECTORY: &str = "keeping";
