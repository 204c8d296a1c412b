//! `/api/v1/tools`: the tools there are.

use std::{collections::BTreeSet, sync::Arc};

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    tool::{Tool, Tools},
};
use palyra_gate::{Gate, ToolDefinition, skills::SkillSnapshot};
use palyra_types::SkillId;

use crate::{app::App, caller::Caller, failure::Failure, reply::Reply};

/// The tools there are, with what each needs and how it is called.
#[utoipa::path(get, path = "/api/v1/tools", tag = "tools", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Tools), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<Tools>, Failure> {
    Ok(Reply(Tools { tools: all(&app.gate) }))
}

/// The tools there are now, as they are told. Where skills are closed there are none of theirs.
pub(crate) fn all(gate: &Gate) -> Vec<Tool> {
    let skills = gate.skills().ok();
    let config = gate.config();
    let kept_back = &config.policy.quarantined_skills;
    gate.registry().definitions().map(|one| told(one, skills.as_deref(), kept_back)).collect()
}

/// A tool as it is told. Skills are kept back by what was said about them, or by the configuration.
fn told(definition: &ToolDefinition, skills: Option<&SkillSnapshot>, kept_back: &BTreeSet<SkillId>) -> Tool {
    let metadata = definition.metadata();
    let of_skill = skills.and_then(|skills| skills.tool(&metadata.name));
    Tool {
        name: metadata.name.clone(),
        summary: metadata.summary.clone(),
        description: definition.description().to_owned(),
        capabilities: metadata.capabilities.iter().copied().collect(),
        default_posture: metadata.default_posture(),
        input_schema: definition.input_schema().clone(),
        output_schema: of_skill.and_then(|(_, tool)| tool.output.clone()),
        skill: of_skill.map(|(skill, _)| skill.id.skill_id().clone()),
        publisher: of_skill.map(|(skill, _)| skill.manifest.publisher.to_string()),
        quarantined: of_skill
            .is_some_and(|(skill, _)| skill.quarantine.is_some() || kept_back.contains(skill.id.skill_id())),
        digest: definition.digest(),
    }
}
