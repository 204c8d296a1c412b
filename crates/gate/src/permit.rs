//! The permission to run one call, as a value.
//!
//! Guarantees: a [`Permit`] exists only after policy allowed the call, a person approved it where policy asks, what it may use was taken
//! from the run's budget, and all of that is durable in the journal as a `tool.started` record. It cannot be made, copied or kept elsewhere,
//! and running the call consumes it.
//!
//! Nothing runs without one:
//!
//! ```compile_fail,E0451
//! use palyra_gate::Permit;
//!
//! let forged = Permit { facts: todo!(), work: todo!(), plan: todo!() };
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

use palyra_journal::state::Charge;
use palyra_types::{Principal, Sha256Digest, Timestamp, id::ApprovalId};
use serde::Serialize;

use crate::{decide::ToolDecision, plan::Plan, proposal::ToolProposal, tool::Work};

/// The permission to run one call.
#[must_use = "a permit that is not used leaves a call that was started and never ran"]
#[derive(Debug)]
pub struct Permit {
    facts: Arc<CallFacts>,
    work: Work,
    plan: Plan,
}

impl Permit {
    /// The only place where a permit comes from. The facts name the durable record that the call was started with.
    pub(crate) const fn issue(facts: Arc<CallFacts>, work: Work, plan: Plan) -> Self {
        Self { facts, work, plan }
    }

    /// Takes the permit apart, which is what running the call does.
    pub(crate) fn spend(self) -> (Arc<CallFacts>, Work, Plan) {
        (self.facts, self.work, self.plan)
    }
}

/// What is known about a call when it starts; what its attestation repeats.
#[derive(Debug)]
pub(crate) struct CallFacts {
    pub(crate) proposal: ToolProposal,
    pub(crate) definition: Sha256Digest,
    pub(crate) decision: ToolDecision,
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
    /// What the answer covers, if more than this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covers: Option<String>,
}
