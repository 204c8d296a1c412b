//! Why something that was said is not kept.

use palyra_types::{ObjectId, id::RunId};

use super::{MOST_RUN_BYTES, responses::MOST_RESPONSE_BYTES};
use crate::{error::StoreError, label::LabelError};

/// Why a message or a response is not kept, or not to be had.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// A name, the id of a call or a principal cannot be written so.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The run is another session's, or somebody else's.
    #[error("run {0} belongs to another session or principal")]
    OtherSession(RunId),
    /// The run has no room left.
    #[error("run {0} holds {MOST_RUN_BYTES} bytes of messages, which is the limit")]
    Full(RunId),
    /// There is such a response.
    #[error("there is a response {0} already")]
    Taken(ObjectId),
    /// The conversation is too long to be continued later.
    #[error("the conversation is {0} bytes long; the limit is {MOST_RESPONSE_BYTES}")]
    TooLong(usize),
    /// The file cannot be opened, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TranscriptError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Label(error) => error.advice(),
            Self::OtherSession(_) => "append to a run of this session, or start one",
            Self::Full(_) => "start a new run",
            Self::Taken(_) => "give each response an id of its own",
            Self::TooLong(_) => "start a new conversation, and begin it with a summary of this one",
            Self::Store(error) => error.advice(),
        }
    }
}
