//! What a skill asks for and may use, as the daemon tells it and as packages say it.

use palyra_api::skill::{Skill, SkillCapabilities, SkillGrants};
use palyra_package::{Capabilities, Grants};
use palyra_types::{SkillId, visible::visible};
use serde::{Serialize, de::DeserializeOwned};

use super::granting::{flags_for_the_rest, still_to_choose};
use crate::{
    exit::Exit,
    failure::Failure,
    terminal::{Terminal, WAIT, shown},
};

/// What an installed skill asks for.
pub(super) fn asked_by(skill: &Skill) -> Result<Capabilities, Failure> {
    capabilities(&skill.capabilities)
}

/// What it may use.
pub(super) fn granted_to(skill: &Skill) -> Result<Grants, Failure> {
    same(&skill.grants)
}

/// What is asked for, as packages say it.
pub(super) fn capabilities(told: &SkillCapabilities) -> Result<Capabilities, Failure> {
    same(told)
}

/// What is granted, as the daemon is told.
pub(super) fn told(grants: &Grants) -> Result<SkillGrants, Failure> {
    same(grants)
}

/// Says what a skill asks for and may not use, and the command that would grant it.
pub(super) fn tell_the_rest(skill: &Skill, terminal: &Terminal) -> Result<(), Failure> {
    let (asked, granted) = (asked_by(skill)?, granted_to(skill)?);
    let flags = flags_for_the_rest(&asked, &granted);
    if flags.is_empty() {
        return Ok(());
    }
    terminal.talk(terminal.paint_err(WAIT, "! it asks for more than it may use; this would grant it:"));
    terminal.talk_rows(format!("  palyra skills grant {} {}", name(&skill.id), flags.join(" ")));
    still_to_choose(&asked, &granted).iter().for_each(|line| terminal.talk_rows(format!("  {line}")));
    Ok(())
}

/// The id of a skill on a command line.
pub(super) fn name(id: &SkillId) -> String {
    visible(id.as_str())
}

/// Sentences that the daemon made.
pub(super) fn sentences(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| shown(line)).collect()
}

/// The wire spells capabilities and grants as manifests do.
fn same<T: Serialize, U: DeserializeOwned>(value: &T) -> Result<U, Failure> {
    let read = serde_json::to_value(value).and_then(serde_json::from_value);
    read.map_err(|error| {
        let what = "the answer cannot be understood";
        let help = "check that the daemon and this program have the same version: `palyra status`";
        Failure::new(Exit::Unreachable, "protocol", what, error.to_string(), help)
    })
}

#[cfg(test)]
mod tests {
    use palyra_package::{Destination, FileAccess, FileGrant, KvQuota};
    use palyra_types::SecretRef;

    use super::*;

    #[test]
    fn what_is_granted_travels_as_it_is() {
        let grants = Grants {
            log: true,
            kv: Some(KvQuota { bytes: 10, entries: 2 }),
            http: [Destination::parse("[2001:db8::7]:443").unwrap()].into(),
            secrets: [("token".into(), SecretRef::parse("global/github").unwrap())].into(),
            files: [("notes".into(), FileGrant { path: ".".into(), access: FileAccess::Read })].into(),
            ..Grants::default()
        };
        assert_eq!(same::<SkillGrants, Grants>(&told(&grants).unwrap()).unwrap(), grants);
    }
}
