//! What agents keep between calls: memories, artifacts, and what was said in their runs.
//!
//! | you look for | read |
//! |---|---|
//! | notes that are found again by their words | [`memory`] |
//! | files that a run made, stored once however often they are kept | [`artifacts`] |
//! | the messages of a run, and responses that can be continued | [`transcripts`] |
//! | whose something is | [`scope`] |
//! | ids of entries and artifacts | [`id`] |
//! | why a file was not opened, or not written | [`StoreError`] |
//!
//! Each store is a SQLite file of its own in a directory that is handed in. Guarantees: the directory and the files are for their owner alone;
//! a file of another purpose, another owner or a later version is refused and left as it is; a change is there whole or not at all, also when
//! the program is killed; what is deleted leaves the files. Time and randomness are handed in.
//! Does not: decide who may read or write what. That is policy's. Methods block.

pub mod artifacts;
pub mod id;
pub mod memory;
pub mod scope;
pub mod transcripts;

mod blobs;
mod database;
mod directory;
mod error;
mod label;
mod page;

pub use artifacts::{Artifact, ArtifactError, ArtifactStore, Content, MediaType, NewArtifact};
pub use error::StoreError;
pub use id::{ArtifactId, EntryId};
pub use label::LabelError;
pub use memory::{Entry, Hit, MemoryError, MemoryStore, NewEntry, Place, Query, Usage};
pub use page::Page;
pub use scope::{MemoryScope, MemoryScopeError};
pub use transcripts::{
    DueRuns, Line, Message, NewMessage, NewResponse, Response, Role, RunOf, RunSummary, SessionSummary,
    TranscriptError, TranscriptStore,
};
