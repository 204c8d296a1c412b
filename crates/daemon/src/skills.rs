//! Skills, from the gate's words into those of the wire; opens them when the daemon starts; and what this program does as their compiler.
//!
//! Guarantees: whatever keeps skills closed keeps nothing else from working, and is told where everybody looks.
//! Does not: keep or run skills. The gate does.

use std::{
    io::{stdin, stdout},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use palyra_api::skill as told;
use palyra_gate::{
    Gate,
    skills::{
        COMPILE_ARGUMENT, Inspection, InstalledSkill, OpeningSkills, SkillCompiler, SkillsGround, Standing,
        WasmPluginRunnerPolicy, child_main,
    },
};
use palyra_package::{Grants, PublisherKey, SkillLimits, SkillTool, TrustedPublishers, Unchosen};
use palyra_types::{AbsolutePath, Clock, Entropy, StateHome, ToolName};
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failure;

/// What a program of Palyra's does when it was started as the compiler of skills: compiles what it reads, and ends. Called before anything else, with
/// the arguments behind the program's name. Nothing for a program that was started as anything else.
#[must_use]
pub fn compiler_child(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    let is_alone = arguments.next().is_some_and(|word| word == COMPILE_ARGUMENT) && arguments.next().is_none();
    is_alone.then(|| child_main(stdin().lock(), stdout().lock()))
}

/// Begins to read what is installed.
pub fn begin(
    home: &StateHome,
    policy: &WasmPluginRunnerPolicy,
    (clock, entropy): (&Arc<dyn Clock>, &Arc<dyn Entropy>),
) -> Option<OpeningSkills> {
    let compiler = match own_program() {
        Ok(program) => SkillCompiler { program, args: vec![COMPILE_ARGUMENT.to_owned()] },
        Err(why) => {
            tracing::warn!(why, "skills are closed, because their compiler cannot be found; all else works");
            return None;
        }
    };
    let ground = SkillsGround {
        directory: directory(home),
        compiler,
        concurrent_calls: policy.concurrent_calls,
        all_memory_bytes: policy.all_memory_bytes,
    };
    Some(OpeningSkills::begin(ground, Arc::clone(clock), Arc::clone(entropy)))
}

/// Opens what is installed, and says in the log what came of it.
pub async fn open(gate: &Gate, opening: Option<OpeningSkills>) {
    let Some(opening) = opening else { return };
    match gate.take_skills(opening).await {
        Ok(()) => {
            let installed = gate.skills().map_or(0, |skills| skills.skills().len());
            tracing::info!(installed, "skills are open");
        }
        Err(refusal) => {
            tracing::warn!(why = %refusal, help = refusal.advice(), "skills are closed; all else works");
        }
    }
}

/// Whether a schema is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schemas {
    /// With the rest.
    Told,
    /// Not in lists, where they would be most of it.
    LeftOut,
}

/// A skill as it is told, with these of its grants. What it may is what the configuration leaves of them.
///
/// # Errors
/// Never, but for a broken build.
pub fn told(
    skill: &InstalledSkill,
    grants: &Grants,
    policy: &WasmPluginRunnerPolicy,
    schemas: Schemas,
) -> Result<told::Skill, Failure> {
    let manifest = &skill.manifest;
    let tools = manifest.tools.iter().filter_map(|one| Some(tool(manifest.tool_name(one).ok()?, one, schemas)));
    Ok(told::Skill {
        id: skill.id.skill_id().clone(),
        version: skill.version.to_string(),
        publisher: manifest.publisher.to_string(),
        signed_by: skill.signed_by.as_ref().map(PublisherKey::key_id),
        development: skill.development,
        license: manifest.license.clone(),
        summary: manifest.summary.clone(),
        description: manifest.description.clone(),
        homepage: manifest.homepage.clone(),
        tools: tools.collect(),
        capabilities: respelt(&manifest.capabilities)?,
        asks: manifest.capabilities.words(),
        grants: respelt(grants)?,
        may: policy.restrict(grants).words(),
        limits: limits(&manifest.limits.within(policy.limits)),
        quarantine: skill.quarantine.as_ref().map(|why| told::Quarantine {
            reason: why.reason.clone(),
            by: why.by.to_string(),
            at: why.at,
        }),
        package_sha256: skill.package,
        component_sha256: skill.component,
        installed_at: skill.installed_at,
        installed_by: skill.installed_by.to_string(),
    })
}

/// What installing a package would mean, as it is told.
///
/// # Errors
/// Never, but for a broken build.
pub fn inspected(inspection: Inspection, known: &TrustedPublishers) -> Result<told::SkillInspection, Failure> {
    let Inspection { package, standing, installed, diff } = inspection;
    let manifest = &package.manifest;
    let offer = Grants::all_of(&manifest.capabilities);
    Ok(told::SkillInspection {
        id: manifest.id.skill_id().clone(),
        version: manifest.version.to_string(),
        package_sha256: package.digest,
        component_sha256: package.component_digest,
        signature: signature(&standing, known.of(&manifest.publisher).is_some(), manifest.publisher.as_str()),
        asks: manifest.capabilities.words(),
        installed: installed.map(|skill| skill.version.to_string()),
        added: diff.added,
        removed: diff.removed,
        offer: respelt(&offer.grants)?,
        unchosen: offer.unchosen.into_iter().map(unchosen).collect(),
        manifest: serde_json::to_value(manifest).map_err(|error| Failure::internal(error.to_string()))?,
        skill_md: package.skill_md,
    })
}

/// The publishers that are known, as they are told.
#[must_use]
pub fn publishers(known: &TrustedPublishers) -> told::Publishers {
    let publishers = known.iter().map(|(name, keys)| told::Publisher {
        name: name.to_string(),
        keys: keys
            .trusted
            .iter()
            .map(|(key, origin)| told::PublisherKey {
                key_id: key.key_id(),
                key: key.to_string(),
                how: origin.how.to_string(),
                by: origin.by.to_string(),
                at: origin.at,
            })
            .collect(),
        distrusted: keys
            .distrusted
            .iter()
            .map(|key| told::DistrustedKey { key_id: key.key_id(), key: key.to_string() })
            .collect(),
    });
    told::Publishers { publishers: publishers.collect() }
}

/// How much a call may use, as it is told.
#[must_use]
pub fn limits(limits: &SkillLimits) -> told::SkillLimits {
    told::SkillLimits {
        metering: limits.metering.to_string(),
        fuel: limits.fuel,
        cpu_ms: limits.cpu_ms,
        wall_ms: limits.wall_ms,
        memory_bytes: limits.memory_bytes,
        table_entries: limits.table_entries,
        output_bytes: limits.output_bytes,
        host_calls: limits.host_calls,
        host_bytes: limits.host_bytes,
        log_bytes: limits.log_bytes,
    }
}

/// What a skill is to be granted.
///
/// # Errors
/// When it is said in a way that means nothing.
pub fn grants(said: &told::SkillGrants) -> Result<Grants, Failure> {
    let value = serde_json::to_value(said).map_err(|error| Failure::internal(error.to_string()))?;
    let help = "grant what the skill asks for, or less: `GET /api/v1/skills/{publisher}/{name}` tells what that is";
    serde_json::from_value(value).map_err(|error| Failure::new("bad_grant", error.to_string(), help))
}

/// A key of a publisher.
///
/// # Errors
/// When it is none.
pub fn key(text: &str) -> Result<PublisherKey, Failure> {
    PublisherKey::parse(text).map_err(|error| Failure::new("bad_key", error.to_string(), error.advice()))
}

/// Where skills are kept.
fn directory(home: &StateHome) -> PathBuf {
    home.path().join("skills")
}

/// This very program, which compiles as well.
fn own_program() -> Result<AbsolutePath, String> {
    let path = std::env::current_exe().map_err(|error| error.to_string())?;
    let text = path.to_str().ok_or_else(|| "its path is no text".to_owned())?;
    // Linux says so of a program that another one was put in the place of, as an update does. That one compiles as well, and what it makes is
    // held to the version that loads it.
    let replaced = text.strip_suffix(" (deleted)").filter(|_| !path.exists());
    AbsolutePath::parse(replaced.unwrap_or(text)).map_err(|error| error.to_string())
}

fn tool(name: ToolName, tool: &SkillTool, schemas: Schemas) -> told::SkillTool {
    let is_told = schemas == Schemas::Told;
    told::SkillTool {
        name,
        summary: tool.summary.clone(),
        input_schema: is_told.then(|| tool.input.clone()),
        output_schema: tool.output.clone().filter(|_| is_told),
    }
}

fn signature(standing: &Standing, publisher_is_known: bool, publisher: &str) -> told::SkillSignature {
    use told::SignatureState::{Refused, Trusted, UnknownPublisher, Unsigned};
    let (state, key_id, words) = match standing {
        Standing::Unsigned => (Unsigned, None, "nobody signed it".to_owned()),
        Standing::Trusted(key) => {
            (Trusted, Some(key.key_id()), format!("signed with key {}, which counts for {publisher}", key.key_id()))
        }
        Standing::Unknown { key_id } if publisher_is_known => {
            let words = format!("signed with key {key_id}, as it says, which does not count for {publisher}");
            (Refused, Some(key_id.clone()), words)
        }
        Standing::Unknown { key_id } => {
            let words = format!("signed with key {key_id}, as it says, and no key is known for {publisher}");
            (UnknownPublisher, Some(key_id.clone()), words)
        }
        Standing::Broken { why } => (Refused, None, why.clone()),
    };
    told::SkillSignature { state, key_id, words }
}

fn unchosen(one: Unchosen) -> told::Unchosen {
    match one {
        Unchosen::Secret { name, purpose } => told::Unchosen::Secret { name, purpose },
        Unchosen::Directory { name, access } => told::Unchosen::Directory { name, access: self::access(access) },
    }
}

/// How a directory may be used, as it is told.
#[must_use]
pub const fn access(access: palyra_package::FileAccess) -> told::FileAccess {
    match access {
        palyra_package::FileAccess::Read => told::FileAccess::Read,
        palyra_package::FileAccess::Write => told::FileAccess::Write,
    }
}

/// The same in a type of the wire, which spells it alike.
fn respelt<T: DeserializeOwned>(one: &impl Serialize) -> Result<T, Failure> {
    let respelt = serde_json::to_value(one).and_then(serde_json::from_value);
    respelt.map_err(|error| Failure::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use palyra_package::{Capabilities, Destination, FileAccess, FileGrant, KvQuota};
    use palyra_types::SecretRef;

    use super::*;

    fn everything() -> Grants {
        Grants {
            log: true,
            clock: true,
            random: true,
            kv: Some(KvQuota { bytes: 10, entries: 1 }),
            http: [Destination::parse("example.org:443").unwrap(), Destination::parse("[2001:db8::7]:80").unwrap()]
                .into(),
            secrets: [("token".to_owned(), SecretRef::parse("global/github").unwrap())].into(),
            files: [("notes".to_owned(), FileGrant { path: "docs".to_owned(), access: FileAccess::Write })].into(),
        }
    }

    #[test]
    fn what_is_granted_goes_over_the_wire_and_back_as_it_was() {
        let over: told::SkillGrants = respelt(&everything()).unwrap();
        assert_eq!(grants(&over).unwrap(), everything());
        let wrong = told::SkillGrants { http: vec!["example.org".to_owned()], ..told::SkillGrants::default() };
        assert_eq!(grants(&wrong).unwrap_err().detail.code, "bad_grant");
    }

    #[test]
    fn what_is_asked_for_goes_over_the_wire() {
        let asked = Capabilities {
            http: everything().http,
            secrets: [("token".to_owned(), "to sign in".to_owned())].into(),
            files: [("notes".to_owned(), FileAccess::Read)].into(),
            inert: ["wasi:sockets".to_owned()].into(),
            ..Capabilities::default()
        };
        let over: told::SkillCapabilities = respelt(&asked).unwrap();
        assert_eq!(respelt::<Capabilities>(&over).unwrap(), asked);
    }

    #[test]
    fn only_the_one_argument_makes_a_compiler() {
        let started = |words: &[&str]| compiler_child(words.iter().map(Into::into)).is_some();
        assert!(!started(&[]));
        assert!(!started(&["--help"]));
        assert!(!started(&["compile-skill", "more"]));
        assert!(!started(&["more", "compile-skill"]));
    }

    #[test]
    fn a_key_that_is_not_known_is_told_apart_from_one_that_does_not_count() {
        let unknown = Standing::Unknown { key_id: "00FF".to_owned() };
        let state = |known| signature(&unknown, known, "acme").state;
        assert_eq!(
            (state(false), state(true)),
            (told::SignatureState::UnknownPublisher, told::SignatureState::Refused)
        );
        let broken = signature(&Standing::Broken { why: "it does not fit".to_owned() }, true, "acme");
        assert_eq!((broken.state, broken.words.as_str()), (told::SignatureState::Refused, "it does not fit"));
    }
}
