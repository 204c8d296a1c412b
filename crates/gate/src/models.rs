//! Models of other people: who asked which, what came of it, and the keys that the daemon asks them with.
//!
//! Guarantees: what is sent to a model's server is on record before it leaves; a key is leased to the daemon for the provider that the
//! configuration names, and to nobody who asks over the API.
//! Does not: keep what was asked or answered. The record has digests and sizes.

use palyra_journal::RecordKind;
use palyra_policy::{PolicyRequest, PolicyRequestContext};
use palyra_types::{
    Action, Resource, SecretRef, Sha256Digest, ToolMetadata,
    id::{RunId, SessionId},
};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::{gate::Gate, petitioner::Petitioner, refusal::Refusal, settings::InForce};

/// A request to a model, as it is recorded before it leaves.
#[derive(Debug, Clone, Serialize)]
pub struct ModelRequest {
    /// The id of the request.
    pub id: String,
    /// Who asks.
    pub principal: String,
    /// By which surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// With which token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The agent whose loop asks. None where a client's request is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The task that the calls belong to which the agent makes of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// What is asked for, such as `chat/completions`.
    pub endpoint: String,
    /// The model, as the client calls it.
    pub model: String,
    /// How many bytes are sent.
    pub bytes: u64,
    /// The digest of what is sent, but for the name of the model.
    pub sha256: Sha256Digest,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct ModelAnswer {
    /// The id of the request.
    pub id: String,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model, as they call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_model: Option<String>,
    /// The status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How often somebody was asked.
    pub attempts: u32,
    /// How many bytes came back.
    pub bytes: u64,
    /// What the model read, in tokens.
    pub input_tokens: u64,
    /// What it said, in tokens.
    pub output_tokens: u64,
    /// How long it took.
    pub took_ms: u64,
    /// What went wrong, in a word: `abandoned` where nobody waited for the end of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A session whose transcript, or a part of it, is about to be forgotten.
#[derive(Debug, Clone, Serialize)]
pub struct TranscriptForgotten {
    /// Which.
    pub session: SessionId,
    /// Whose it is.
    pub principal: String,
    /// How many runs go.
    pub runs: u64,
    /// Who wants it forgotten, or what: how old it is, or how much there is.
    pub by: String,
}

impl Gate {
    /// Records a request to a model. Nothing leaves before this has returned.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn model_requested(&self, request: &ModelRequest) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::ModelRequested, request).await
    }

    /// Records what came of a request to a model.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn model_answered(&self, answer: &ModelAnswer) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::ModelAnswered, answer).await
    }

    /// Records that a transcript is about to be forgotten. Nothing of it goes before this has returned.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn transcript_forgotten(&self, told: &TranscriptForgotten) -> Result<(), Refusal> {
        self.inner.tell(RecordKind::TranscriptForgotten, told).await
    }

    /// The key of a provider, for the daemon itself. None if there is no such secret, or the vault is closed, or it is no text.
    #[must_use]
    pub fn provider_key(&self, secret: &SecretRef) -> Option<Zeroizing<String>> {
        let lease = self.inner.opened_vault().ok()?.get(secret).ok()?;
        std::str::from_utf8(lease.value.expose()).ok().map(|text| Zeroizing::new(text.to_owned()))
    }

    /// Whether somebody could be let use a tool by the surface that they came in by, if its arguments, its plan and a person say so. What
    /// policy denies whatever these are is not worth being offered.
    #[must_use]
    pub fn could(&self, by: &Petitioner, tool: &ToolMetadata) -> bool {
        let registry = self.inner.registry.load();
        if let (Some(own), Some(bound)) = (registry.own_workspace(&tool.name), &by.member_of)
            && !bound.contains(own)
        {
            return false;
        }
        let InForce { settings, policies, .. } = self.inner.in_force();
        let request = PolicyRequest {
            principal: by.principal.clone(),
            action: Action::ToolExecute,
            resource: Resource::Tool(tool.name.clone()),
        };
        let context = PolicyRequestContext {
            channel: by.channel.clone(),
            device_id: by.device.clone(),
            token_id: by.token.clone(),
            member_of: by.member_of.clone(),
            tool_name: Some(tool.name.clone()),
            capabilities: tool.capabilities.clone(),
            posture: tool.default_posture(),
            skill_id: self.skill_of(&tool.name),
            ..PolicyRequestContext::at(self.inner.clock.now())
        };
        policies.could(&request, &context, &settings.evaluation)
    }

    fn skill_of(&self, tool: &palyra_types::ToolName) -> Option<palyra_types::SkillId> {
        let skills = self.skills().ok()?;
        skills.tool(tool).map(|(skill, _)| skill.id.skill_id().clone())
    }
}
