//! The digest that binds the chain: what exactly is approved, run and attested.
//!
//! Guarantees: two calls share a digest only if the same principal, in the same session and workspace, would do the same work in the same
//! way with the same tool definition. Approver, executor and receipt all speak of it.

use palyra_types::{
    JsonError, JsonObject, Principal, SecretRef, Sha256Digest, ToolName, WorkspaceName, id::SessionId,
    json::canonical_of,
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
        let before =
            Before { args: &proposal.args, definition, on_behalf_of: proposal.on_behalf_of.as_ref().map(name) };
        let after = After {
            principal: name(&proposal.principal),
            secrets: work.secrets().iter().map(|one| &one.secret).collect(),
            session: proposal.session,
            tool: &proposal.tool,
            v: 1,
            work,
            workspace: proposal.workspace.as_ref(),
        };
        let (before, plan, after) = (canonical_of(&before)?, canonical_of(plan)?, canonical_of(&after)?);
        // Both are canonical objects with members, so the members between their braces can stand in one object.
        let (before, after) = (members(&before), members(&after));
        Ok(Self {
            digest: Sha256Digest::of(format!("{{{before},\"plan\":{plan},{after}}}").as_bytes()),
            intent: Sha256Digest::of(format!("{{{before},{after}}}").as_bytes()),
        })
    }
}

/// What goes into the digest and is sorted before `plan`.
#[derive(Serialize)]
struct Before<'a> {
    args: &'a JsonObject,
    definition: Sha256Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_behalf_of: Option<String>,
}

/// What goes into the digest and is sorted after `plan`.
#[derive(Serialize)]
struct After<'a> {
    principal: String,
    /// The names of the secrets that it uses. How, and where they may go, is in the work.
    secrets: Vec<&'a SecretRef>,
    session: SessionId,
    tool: &'a ToolName,
    v: u8,
    work: &'a Work,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a WorkspaceName>,
}

fn members(object: &str) -> &str {
    object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(object)
}

/// Roles are left out: a promotion while a question waits changes who somebody is to policy, not what they want to do.
fn name(principal: &Principal) -> String {
    principal.to_string()
}

#[cfg(test)]
mod tests {
    use palyra_journal::state::Waiting;
    use palyra_types::{
        Timestamp,
        id::{CallId, RunId},
        json::{Limits, digest_of},
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::tool::Report;

    fn proposal(workspace: Option<&str>, user: Option<&str>) -> ToolProposal {
        let (now, text) = (Timestamp::from_unix_millis(1), "agent:claude");
        ToolProposal {
            call: CallId::from_parts(now, 1),
            run: RunId::from_parts(now, 1),
            session: SessionId::from_parts(now, 1),
            principal: Principal::parse(text).unwrap(),
            on_behalf_of: user.map(|user| Principal::parse(user).unwrap()),
            channel: None,
            device: None,
            token: None,
            member_of: None,
            workspace: workspace.map(|name| WorkspaceName::parse(name).unwrap()),
            tool: ToolName::parse("daemon.status").unwrap(),
            args: JsonObject::try_from_value(json!({ "z": 1, "a": "}{" }), Limits::default()).unwrap(),
            waiting: Waiting::Attached,
            key: None,
            within: None,
            elsewhere: None,
        }
    }

    #[test]
    fn the_digest_is_that_of_one_canonical_object() {
        let (definition, work) = (Sha256Digest::of(b"x"), Work::Report { about: Report::Status });
        for (workspace, user) in [(None, None), (Some("lab"), Some("user:ada"))] {
            let proposal = proposal(workspace, user);
            let action = CallAction::of(&proposal, definition, &work, &Plan::Daemon).unwrap();
            let mut whole = json!({
                "v": 1, "principal": "agent:claude", "session": proposal.session, "tool": "daemon.status",
                "definition": definition, "args": proposal.args.value(), "work": work, "secrets": [],
            });
            if let (Some(workspace), Some(user), Value::Object(whole)) = (workspace, user, &mut whole) {
                whole.extend([("workspace".to_owned(), json!(workspace)), ("on_behalf_of".to_owned(), json!(user))]);
            }
            assert_eq!(action.intent, digest_of(&whole).unwrap());
            whole["plan"] = serde_json::to_value(Plan::Daemon).unwrap();
            assert_eq!(action.digest, digest_of(&whole).unwrap());
        }
    }
}
