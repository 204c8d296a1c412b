//! The digest that binds the chain: what exactly is approved, run and attested.
//!
//! Guarantees: two calls share a digest only if the same principal, in the same session and workspace, would do the same work in the same
//! way with the same tool definition. Approver, executor and receipt all speak of it.

use palyra_types::{
    JsonError, JsonObject, Principal, Sha256Digest, ToolName, WorkspaceName, id::SessionId, json::digest_of,
};
use serde::Serialize;

use crate::{plan::Plan, proposal::ToolProposal, tool::Work};

/// What a call would do: who, what, with what, how. The call's own id is not part of it, so that equal calls can be answered together.
#[derive(Debug, Clone)]
pub struct CallAction {
    /// The digest of everything.
    pub digest: Sha256Digest,
    /// The digest of everything but the plan; what a standing approval for exact arguments compares.
    pub intent: Sha256Digest,
}

impl CallAction {
    /// The action of a proposal, read as this work, to be run by this plan.
    ///
    /// # Errors
    /// When a part has no canonical form.
    pub fn of(proposal: &ToolProposal, definition: Sha256Digest, work: &Work, plan: &Plan) -> Result<Self, JsonError> {
        let intent = Intended {
            v: 1,
            principal: name(&proposal.principal),
            on_behalf_of: proposal.on_behalf_of.as_ref().map(name),
            session: proposal.session,
            workspace: proposal.workspace.as_ref(),
            tool: &proposal.tool,
            definition,
            args: &proposal.args,
            work,
            secrets: [],
        };
        let digest = digest_of(&Whole { intent: &intent, plan })?;
        Ok(Self { digest, intent: digest_of(&intent)? })
    }
}

#[derive(Serialize)]
struct Intended<'a> {
    v: u8,
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_behalf_of: Option<String>,
    session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a WorkspaceName>,
    tool: &'a ToolName,
    definition: Sha256Digest,
    args: &'a JsonObject,
    work: &'a Work,
    /// The names of the secrets it is given; none can be yet.
    secrets: [&'a str; 0],
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    intent: &'a Intended<'a>,
    plan: &'a Plan,
}

/// Roles are left out: a promotion while a question waits changes who somebody is to policy, not what they want to do.
fn name(principal: &Principal) -> String {
    principal.to_string()
}
