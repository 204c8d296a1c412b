//! What is proposed: a tool, its arguments, and who asks for it from where.
//!
//! Guarantees: a proposal is made of parsed parts only. Holding one permits nothing.

use std::{collections::BTreeSet, sync::Arc};

use palyra_journal::{
    record::Subject,
    state::{CallKey, Waiting},
};
use palyra_types::{
    Channel, DeviceId, JsonObject, Principal, TokenId, ToolName, WorkspaceName,
    id::{CallId, RunId, SessionId},
    json::Limits,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{foreign::Elsewhere, petitioner::Petitioner, service::Asker};

/// A call as it is proposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProposal {
    /// The call.
    pub call: CallId,
    /// The task it belongs to, whose budget it uses.
    pub run: RunId,
    /// The conversation it belongs to.
    pub session: SessionId,
    /// Who proposes it.
    pub principal: Principal,
    /// The user that they act for.
    pub on_behalf_of: Option<Principal>,
    /// The surface that received it.
    pub channel: Option<Channel>,
    /// The device it came from.
    pub device: Option<DeviceId>,
    /// The API token it was made with.
    pub token: Option<TokenId>,
    /// The workspaces that its proposer is bound to; none means that they are bound to none in particular.
    pub member_of: Option<BTreeSet<WorkspaceName>>,
    /// The configured workspace it works in.
    pub workspace: Option<WorkspaceName>,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments.
    pub args: JsonObject,
    /// Who waits for the outcome.
    pub waiting: Waiting,
    /// What tells it from another call when it is proposed again. It says nothing about what is done, and is kept beside the records.
    pub key: Option<CallKey>,
    /// The call that wants it, for what the daemon proposes: a running one, or the one that scheduled it.
    pub within: Option<Within>,
    /// What another program would do itself. Absent for what Palyra would run.
    pub elsewhere: Option<Arc<Elsewhere>>,
}

/// A call that wants something more: now that it runs, or later, because it scheduled that. It is told to whoever is asked, and no part of what they approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// The call.
    pub call: CallId,
    /// What it does, in one line.
    pub summary: String,
}

impl ToolProposal {
    /// Who proposes it, and by which credential.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            principal: self.principal.clone(),
            device: self.device.clone(),
            token: self.token.clone(),
            workspace: self.workspace.clone(),
            tool: self.tool.clone(),
        }
    }

    /// Who asks for it, and where.
    pub(crate) const fn asker(&self) -> Asker<'_> {
        Asker {
            principal: &self.principal,
            device: self.device.as_ref(),
            token: self.token.as_ref(),
            member_of: self.member_of.as_ref(),
            channel: self.channel.as_ref(),
            session: self.session,
            workspace: self.workspace.as_ref(),
        }
    }

    /// Who proposes it, as they stood then.
    pub(crate) fn petitioner(&self) -> Petitioner {
        Petitioner {
            principal: self.principal.clone(),
            channel: self.channel.clone(),
            device: self.device.clone(),
            token: self.token.clone(),
            member_of: self.member_of.clone(),
        }
    }

    /// What records about this call belong to.
    #[must_use]
    pub const fn subject(&self) -> Subject {
        Subject { session: Some(self.session), run: Some(self.run), call: Some(self.call), approval: None }
    }

    /// Whether its arguments are too long to be kept for a call that does not run.
    ///
    /// SECURITY: what is refused costs its caller nothing. Whoever could have megabytes journalled with every refused call would push the
    /// rest of the history out of a journal that is bounded in size.
    pub(crate) fn is_too_long_to_refuse(&self) -> bool {
        let elsewhere = self.elsewhere.as_deref().map_or(0, Elsewhere::length);
        self.args.canonical().len().max(elsewhere) > LONGEST_REFUSED
    }

    /// The proposal as it is kept for a call that does not run: long arguments by their digest and their beginning.
    pub(crate) fn brief(&self) -> ProposalDocument {
        let mut document = self.document();
        if self.is_too_long_to_refuse() {
            let text = self.args.canonical();
            let beginning: String = text.chars().take(BEGINNING).collect();
            document.args = serde_json::json!({ "left_out": {
                "sha256": self.args.digest(), "bytes": text.len(), "beginning": beginning,
            } });
            // It says the same in other words.
            document.elsewhere = self.elsewhere.as_deref().map(Elsewhere::brief);
        }
        document
    }

    /// The proposal as it is kept.
    pub(crate) fn document(&self) -> ProposalDocument {
        ProposalDocument {
            call: self.call,
            run: self.run,
            session: self.session,
            principal: self.principal.clone(),
            on_behalf_of: self.on_behalf_of.clone(),
            channel: self.channel.clone(),
            device: self.device.clone(),
            token: self.token.clone(),
            member_of: self.member_of.clone(),
            workspace: self.workspace.clone(),
            tool: self.tool.clone(),
            args: self.args.value().clone(),
            waiting: self.waiting,
            within: self.within.clone(),
            elsewhere: self.elsewhere.as_deref().cloned(),
        }
    }
}

/// Who proposes a call, by which credential, and where it works.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) principal: Principal,
    pub(crate) device: Option<DeviceId>,
    pub(crate) token: Option<TokenId>,
    pub(crate) workspace: Option<WorkspaceName>,
    /// The tool that is called.
    pub(crate) tool: ToolName,
}

/// A proposal as it is kept in the journal and beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposalDocument {
    call: CallId,
    run: RunId,
    session: SessionId,
    principal: Principal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_behalf_of: Option<Principal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<Channel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<DeviceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<TokenId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member_of: Option<BTreeSet<WorkspaceName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<WorkspaceName>,
    tool: ToolName,
    args: Value,
    waiting: Waiting,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<Within>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elsewhere: Option<Elsewhere>,
}

impl ProposalDocument {
    /// Who proposed it, and by which credential.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            principal: self.principal.clone(),
            device: self.device.clone(),
            token: self.token.clone(),
            workspace: self.workspace.clone(),
            tool: self.tool.clone(),
        }
    }

    /// The proposal, if its arguments still read as they did.
    pub(crate) fn proposal(self) -> Option<ToolProposal> {
        Some(ToolProposal {
            call: self.call,
            run: self.run,
            session: self.session,
            principal: self.principal,
            on_behalf_of: self.on_behalf_of,
            channel: self.channel,
            device: self.device,
            token: self.token,
            member_of: self.member_of,
            workspace: self.workspace,
            tool: self.tool,
            args: JsonObject::try_from_value(self.args, Limits::default()).ok()?,
            waiting: self.waiting,
            // It was taken when the call was first recorded.
            key: None,
            within: self.within,
            elsewhere: self.elsewhere.map(Arc::new),
        })
    }
}

/// The longest arguments, in bytes, that are kept whole for a call that does not run.
pub(crate) const LONGEST_REFUSED: usize = 16 << 10;

/// How many characters of longer ones are kept.
const BEGINNING: usize = 512;
