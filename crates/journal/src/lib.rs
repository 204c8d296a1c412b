//! The append-only, hash-chained, signed record of everything that was decided and done.
//!
//! Guarantees: what was acknowledged survives `kill -9` and a power cut; nothing that was written can be changed, removed, reordered or
//! cut off without verification telling, and naming the first bad record; what was said can be erased while the chain stays whole.
//! Does not: decide anything, or know what a call is. The gate writes; everybody may verify.
//!
//! | you look for | read |
//! |---|---|
//! | what a record is | [`record`], [`body`], [`mask`] |
//! | the seam that other stores implement | [`store`] |
//! | the state that goes with the records | [`state`] |
//! | the SQLite journal and its group commit | [`sqlite`] |
//! | the tree, checkpoints and signatures | [`tree`], [`checkpoint`], [`key`] |
//! | whether a journal is what was written | [`verify`](mod@verify), [`trust`], [`fault`], [`ranges`] |
//! | how much is kept, and erasing | [`keep`] |
//! | what a stranger can check | [`proof`], [`export`](mod@export) |
//! | checkpoints that are kept elsewhere | [`sink`] |
//! | what can be wrong with the disk | [`trouble`] |

pub mod body;
mod chain;
pub mod checkpoint;
pub mod export;
pub mod fault;
pub mod keep;
pub mod key;
pub mod mask;
pub mod proof;
pub mod ranges;
pub mod record;
pub mod sink;
pub mod sqlite;
pub mod state;
pub mod store;
pub mod tree;
pub mod trouble;
pub mod trust;
pub mod verify;

pub use body::Body;
pub use checkpoint::Checkpoint;
pub use export::{Bundle, ExportError, Extent, export, verify_bundle};
pub use fault::{Failure, Fault};
pub use keep::{Erased, Keeping, Maintained, Retention, Rotation, Selection};
pub use key::{JournalKey, VerifyKey};
pub use proof::{ConsistencyProof, InclusionProof, ProofError};
pub use ranges::Ranges;
pub use record::{NewRecord, Record, RecordKind, StoredRecord, Subject};
pub use sink::{CheckpointSink, FileSink, Pace, Publisher, SinkError, SinkStatus, WebhookSink};
pub use sqlite::SqliteJournal;
pub use store::{Announced, CommitError, Committed, Event, JournalStore, Later, ReadError, Transaction};
pub use trouble::Trouble;
pub use trust::Trust;
pub use verify::{Report, verify};
