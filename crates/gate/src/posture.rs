//! How freely a tool may be used, by layer: session, agent, workspace, global.
//!
//! Guarantees: `disabled` in any layer wins; otherwise the most specific layer that says something does; a layer that cannot be read means
//! that the tool cannot be used.

use std::sync::Arc;

use palyra_journal::{
    CommitError, RecordKind, Subject,
    state::{Change, PostureRow},
};
use palyra_types::{Action, Posture, Resource, ToolMetadata, ToolName, WorkspaceName, word::words};

use crate::{
    gate::{Gate, internal},
    petitioner::{Petitioner, Where},
    proposal::ToolProposal,
    refusal::Refusal,
};

words! {
    /// Where a posture holds, most specific first.
    pub enum PostureLayer ("layer of postures") {
        /// In one conversation.
        Session = "session",
        /// For one principal.
        Agent = "agent",
        /// In one workspace.
        Workspace = "workspace",
        /// Everywhere.
        Global = "global",
    }
}

impl PostureLayer {
    /// The key of a call in this layer; `None` where the call is in no such place.
    #[must_use]
    pub fn key(self, proposal: &ToolProposal) -> Option<String> {
        match self {
            Self::Session => Some(proposal.session.to_string()),
            Self::Agent => Some(proposal.principal.to_string()),
            Self::Workspace => proposal.workspace.as_ref().map(ToString::to_string),
            Self::Global => Some(String::new()),
        }
    }
}

/// How freely a tool is to be used in a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostureSetting {
    /// The layer.
    pub layer: PostureLayer,
    /// What of that layer: a session, an agent, a workspace; empty for all.
    pub key: String,
    /// The tool.
    pub tool: ToolName,
    /// How freely; nothing leaves it to the next layer.
    pub posture: Option<Posture>,
}

impl Gate {
    /// Sets how freely a tool may be used in a layer, or leaves it to the next layer again.
    ///
    /// # Errors
    /// When policy does not let them, it cannot be recorded, or there was nothing to take away.
    pub async fn set_posture(&self, setting: &PostureSetting, by: &Petitioner) -> Result<(), Refusal> {
        let inner = &self.inner;
        let PostureSetting { layer, key, tool, posture } = setting;
        let workspace = match layer {
            PostureLayer::Workspace => WorkspaceName::parse(key).ok(),
            PostureLayer::Session | PostureLayer::Agent | PostureLayer::Global => None,
        };
        // SECURITY: what holds beyond a workspace is not for those who are bound to some.
        if workspace.is_none() && by.member_of.is_some() {
            return Err(Refusal::NotPermitted("it holds beyond the workspaces that they belong to".to_owned()));
        }
        let resource = Resource::Tool(tool.clone());
        inner.may_there(by, Action::PostureSet, resource, Where { workspace, role: None })?;
        let told = by.principal.to_string();
        let body = serde_json::json!({ "layer": layer, "key": key, "tool": tool, "posture": posture, "by": told });
        let record = inner.record(RecordKind::PostureSet, Subject::default(), &body)?;
        let row = PostureRow {
            layer: layer.as_str().to_owned(),
            key: key.clone(),
            tool: tool.clone(),
            posture: posture.unwrap_or(Posture::Disabled),
        };
        let change = Change::SetPosture { row, remove: posture.is_none() };
        let inner = Arc::clone(inner);
        // On a task of its own: whoever asked for it may go away while it is written, and calls are still to hear of it.
        let writing = tokio::spawn(async move {
            let written = inner.commit(vec![record], vec![change]).await;
            inner.policies.send_modify(|count| *count += 1);
            written
        });
        match writing.await.map_err(internal)? {
            Ok(_) => Ok(()),
            Err(CommitError::Conflict(_)) => Err(Refusal::NoPosture),
            Err(error) => Err(error.into()),
        }
    }

    /// Every posture that is set, by tool.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn postures(&self) -> Result<Vec<PostureSetting>, Refusal> {
        let rows = self.inner.store.postures_all().await?;
        let setting = |PostureRow { layer, key, tool, posture }| {
            let layer = PostureLayer::parse(&layer).map_err(internal)?;
            Ok(PostureSetting { layer, key, tool, posture: Some(posture) })
        };
        rows.into_iter().map(setting).collect()
    }
}

/// A posture and where it comes from; `None` is the tool's own default.
pub type Effective = (Posture, Option<PostureLayer>);

/// The posture that holds for a call.
#[must_use]
pub fn effective(rows: &[PostureRow], proposal: &ToolProposal, tool: &ToolMetadata) -> Effective {
    let set: Vec<_> =
        PostureLayer::ALL.iter().filter_map(|&layer| Some((said(rows, layer, proposal)?, layer))).collect();
    let disabled = set.iter().find(|(posture, _)| *posture == Posture::Disabled);
    match disabled.or(set.first()) {
        Some(&(posture, layer)) => (posture, Some(layer)),
        None => (tool.default_posture(), None),
    }
}

fn said(rows: &[PostureRow], layer: PostureLayer, proposal: &ToolProposal) -> Option<Posture> {
    let key = layer.key(proposal)?;
    rows.iter().find(|row| row.layer == layer.as_str() && row.key == key).map(|row| row.posture)
}
