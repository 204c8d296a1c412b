//! The permission to run one call, as a value.
//!
//! Guarantees: a [`Permit`] exists only after policy allowed the call, a person approved it where policy asks, what it may use was taken
//! from the run's budget, and all of that is durable in the journal as a `tool.started` record. It can neither be made nor copied elsewhere,
//! and running the call consumes it.
//!
//! Nothing runs without one:
//!
//! ```compile_fail,E0451
//! use palyra_gate::Permit;
//!
//! let forged = Permit { facts: todo!(), work: todo!(), plan: todo!(), found: todo!() };
//! ```
//!
//! and one permit runs one call:
//!
//! ```compile_fail,E0382
//! async fn twice(permit: palyra_gate::Permit, executor: &palyra_gate::Executor) {
//!     let once = palyra_gate::execute_tool_call(permit, executor).await;
//!     let again = palyra_gate::execute_tool_call(permit, executor).await;
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn copied(permit: &palyra_gate::Permit) -> palyra_gate::Permit {
//!     permit.clone()
//! }
//! ```

use std::sync::Arc;

use palyra_journal::{mask::masked, state::Charge};
use palyra_types::{
    Principal, Sha256Digest, Timestamp,
    id::{ApprovalId, AttestationId},
};
use serde::Serialize;

use crate::{decide::ToolDecision, plan::Plan, proposal::ToolProposal, tool::Work};

/// The permission to run one call.
#[must_use = "a permit that is not used leaves a call that was started and never ran"]
#[derive(Debug)]
pub struct Permit {
    facts: Arc<CallFacts>,
    work: Work,
    plan: Plan,
    found: Option<Sha256Digest>,
}

impl Permit {
    /// The only place where a permit comes from. The facts name the durable record that the call was started with; `found` is the digest
    /// of this very work and plan, if they have one.
    pub(crate) const fn issue(facts: Arc<CallFacts>, work: Work, plan: Plan, found: Option<Sha256Digest>) -> Self {
        Self { facts, work, plan, found }
    }

    /// Takes the permit apart, which is what running the call does.
    pub(crate) fn spend(self) -> Spent {
        let Self { facts, work, plan, found } = self;
        Spent { facts, work, plan, found }
    }
}

/// What a permit held.
pub(crate) struct Spent {
    pub(crate) facts: Arc<CallFacts>,
    pub(crate) work: Work,
    pub(crate) plan: Plan,
    /// The digest of the work and the plan.
    pub(crate) found: Option<Sha256Digest>,
}

/// What is known about a call when it starts; what its attestation repeats.
#[derive(Debug)]
pub(crate) struct CallFacts {
    /// The id of the statement that will be made about it.
    pub(crate) attestation: AttestationId,
    pub(crate) proposal: Arc<ToolProposal>,
    /// The digest of the arguments.
    pub(crate) input: Sha256Digest,
    pub(crate) definition: Sha256Digest,
    pub(crate) decision: ToolDecision,
    /// The digest of the decision as it is recorded.
    pub(crate) decision_digest: Sha256Digest,
    pub(crate) digest: Sha256Digest,
    pub(crate) approver: Option<Approver>,
    pub(crate) reserved: Charge,
    pub(crate) proposed_at: Timestamp,
    pub(crate) started_at: Timestamp,
    pub(crate) started_seq: u64,
}

/// Who approved a call, and by which answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approver {
    /// Who.
    pub by: Principal,
    /// The question that they answered.
    pub approval: ApprovalId,
    /// What the answer covers, if more than this call: the beginning of it, without tokens. The answer's own record has all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
}

impl Approver {
    /// Whoever gave this answer.
    pub(crate) fn new(by: Principal, approval: ApprovalId, covers: Option<String>) -> Self {
        Self { by, approval, covers: covers.map(|covers| beginning(masked(covers))) }
    }
}

/// What is attested is signed, and stays small however large the call is.
fn beginning(text: String) -> String {
    match text.char_indices().nth(MOST_COVERED) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// How many characters of what an answer covers are attested.
const MOST_COVERED: usize = 400;
