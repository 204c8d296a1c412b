//! A tool of an installed skill, beside the built-in tools.
//!
//! Guarantees: what a call would do names the package and everything that it can reach as of then, so that a person approves exactly that; a
//! directory is the one that the grant names in the call's workspace, by its real path.
//! Does not: run it.

use std::sync::Arc;

use palyra_package::{FileAccess, FileGrant};
use palyra_policy::Touch;
use palyra_skills::store::InstalledSkill;
use palyra_types::{JsonError, JsonObject, ToolMetadata, ToolName};
use serde_json::Value;

use super::policy::WasmPluginRunnerPolicy;
use crate::{
    secret::{Handed, SecretUse},
    tool::{HostPort, IntendError, Intent, Place, SkillDirectory, SkillTerms, SkillWork, Tool, ToolDefinition, Work},
    tools::Maker,
    workspace::Resolved,
};

/// The tools of these skills, to be made when they are asked for.
pub(crate) fn makers<'a>(
    skills: impl Iterator<Item = &'a Arc<InstalledSkill>>,
    policy: &Arc<WasmPluginRunnerPolicy>,
) -> Vec<(ToolName, Maker)> {
    let all = skills.flat_map(|skill| {
        let tools = skill.manifest.tools.iter().enumerate();
        tools.filter_map(move |(number, tool)| Some((skill.manifest.tool_name(tool).ok()?, skill, number)))
    });
    all.map(|(name, skill, number)| {
        let (skill, policy, called) = (Arc::clone(skill), Arc::clone(policy), name.clone());
        let make = move || -> Result<Arc<dyn Tool>, JsonError> {
            Ok(Arc::new(SkillTool::new(Arc::clone(&skill), number, called.clone(), &policy)?))
        };
        (name, Box::new(make) as Maker)
    })
    .collect()
}

struct SkillTool {
    definition: ToolDefinition,
    skill: Arc<InstalledSkill>,
    /// Its name in the skill.
    tool: String,
    terms: SkillTerms,
    /// Whether it may run: what nobody signed runs only where skills are developed.
    may_run: bool,
}

impl SkillTool {
    fn new(
        skill: Arc<InstalledSkill>,
        number: usize,
        name: ToolName,
        policy: &WasmPluginRunnerPolicy,
    ) -> Result<Self, JsonError> {
        let manifest = &skill.manifest;
        let (tool, summary, description, input) = match manifest.tools.get(number) {
            Some(tool) => (tool.name.clone(), tool.summary.clone(), tool.description.clone(), tool.input.clone()),
            // It was counted among these very tools.
            None => (String::new(), String::new(), None, Value::Bool(false)),
        };
        let metadata = ToolMetadata { name, summary: summary.clone(), capabilities: manifest.tool_capabilities() };
        let description = description.unwrap_or(summary);
        let definition = ToolDefinition::new(metadata, &description, input)?;
        let terms =
            SkillTerms { grants: policy.restrict(&skill.grants), limits: manifest.limits.within(policy.limits) };
        let may_run = policy.development || !skill.development;
        Ok(Self { definition, tool, terms, may_run, skill })
    }

    fn directory(&self, name: &str, grant: &FileGrant, place: &Place<'_>) -> Result<SkillDirectory, IntendError> {
        let found = place.workspace()?.resolve(&grant.path).and_then(Resolved::directory);
        let path = found.map_err(|cause| IntendError::GrantedDirectory { name: name.to_owned(), cause })?;
        Ok(SkillDirectory { path, access: grant.access })
    }
}

impl Tool for SkillTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn glances(&self) -> bool {
        true
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        if !self.may_run {
            return Err(IntendError::NotDeveloping(self.skill.id.skill_id().clone()));
        }
        let grants = &self.terms.grants;
        if !grants.files.is_empty() {
            place.whole()?;
        }
        let tool = self.definition.name();
        let hosts: Vec<HostPort> =
            grants.http.iter().map(|one| HostPort { host: one.host.clone(), port: one.port }).collect();
        let directories =
            grants.files.iter().map(|(name, grant)| Ok((name.clone(), self.directory(name, grant, place)?)));
        let directories = directories.collect::<Result<std::collections::BTreeMap<_, _>, IntendError>>()?;
        let secrets = grants.secrets.iter().map(|(name, secret)| SecretUse {
            name: name.clone(),
            secret: secret.clone(),
            handed: Handed::Unseen,
            bindings: (place.bindings)(secret, tool),
        });
        let secrets: Vec<SecretUse> = secrets.collect();
        let skill = self.skill.id.skill_id().clone();
        let mut touches = vec![Touch::Execute(skill.clone())];
        touches.extend(hosts.iter().map(|one| Touch::Connect(one.host.clone(), one.port)));
        for SkillDirectory { path, access } in directories.values() {
            touches.push(Touch::Read(path.clone()));
            if *access == FileAccess::Write {
                touches.push(Touch::Write(path.clone()));
            }
        }
        touches.extend(secrets.iter().map(SecretUse::touch));
        let work = SkillWork {
            skill,
            version: self.skill.version.to_string(),
            package_sha256: self.skill.package,
            component_sha256: self.skill.component,
            signed_by: self.skill.signed_by.as_ref().map(palyra_package::PublisherKey::key_id),
            tool: self.tool.clone(),
            hosts,
            directories,
            secrets,
            terms: self.terms.clone(),
            input: args.canonical().to_owned(),
        };
        Ok(Intent { touches, work: Work::Skill(Box::new(work)) })
    }
}
