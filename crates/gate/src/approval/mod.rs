//! Step two: approve. What a person is asked, what they answer, and how long that holds.
//!
//! | you look for | read |
//! |---|---|
//! | the question and the answer | [`record`] |
//! | who may answer, and what becomes of it | [`answer`] |
//! | answers that hold for more than one call | [`grant`] |
//! | the PIN that shows that a person is there | [`presence`] |

pub mod answer;
pub mod grant;
pub mod presence;
pub mod record;

pub use answer::{Answer, AnswerError, Answerer, apply_tool_approval_outcome};
pub use grant::{CachedApproval, StandingApproval, resolve_cached_tool_approval_for_proposal};
pub use presence::{PresenceError, PresencePin};
pub use record::{ApprovalPromptRecord, ApprovalRecord, DecisionScope, PendingToolApproval, RefusalRecord};
