//! How freely a tool may be used, by layer: session, agent, workspace, global.
//!
//! Guarantees: `disabled` in any layer wins; otherwise the most specific layer that says something does; a layer that cannot be read means
//! that the tool cannot be used.

use palyra_journal::state::PostureRow;
use palyra_types::{Posture, ToolMetadata, word::words};

use crate::proposal::ToolProposal;

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
