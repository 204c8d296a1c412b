//! What can be asked of a daemon about skills, their publishers, and calls of them.
//!
//! Does not: hold a package to anything. The daemon does.

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::Method;
use palyra_api::skill::{
    NewSkill, PinKey, Publishers, QuarantineSkill, Replayed, Skill, SkillGrants, SkillInspection, Skills,
};
use palyra_types::{SkillId, id::CallId};

use crate::{
    client::{Ask, Client, Wait},
    error::ClientError,
    query::segment,
};

/// # Errors
/// Every method fails when the daemon cannot be asked, refuses, or answers something else than the wire types say.
impl Client {
    /// The skills that are installed, without the schemas of their tools.
    ///
    /// # Errors
    /// See above.
    pub async fn skills(&self) -> Result<Skills, ClientError> {
        self.ask(Ask::get("/api/v1/skills")).await
    }

    /// One skill, with the schemas of its tools.
    ///
    /// # Errors
    /// See above.
    pub async fn skill(&self, skill: &SkillId) -> Result<Skill, ClientError> {
        self.ask(Ask::get(place(skill))).await
    }

    /// What installing a package would mean. Changes nothing.
    ///
    /// # Errors
    /// See above.
    pub async fn inspect_skill(&self, new: &NewSkill) -> Result<SkillInspection, ClientError> {
        self.ask(Ask::post("/api/v1/skills/inspect").json(new)?.wait(Wait::Long)).await
    }

    /// Installs or updates a skill.
    ///
    /// # Errors
    /// See above.
    pub async fn install_skill(&self, new: &NewSkill) -> Result<Skill, ClientError> {
        self.ask(Ask::post("/api/v1/skills").json(new)?.wait(Wait::Long)).await
    }

    /// Says what a skill may use, instead of what was said before.
    ///
    /// # Errors
    /// See above.
    pub async fn grant_skill(&self, skill: &SkillId, grants: &SkillGrants) -> Result<Skill, ClientError> {
        let path = format!("{}/grants", place(skill));
        self.ask(Ask::new(Method::PUT, path).json(grants)?.wait(Wait::Long)).await
    }

    /// Keeps a skill from running, and stops it where it runs.
    ///
    /// # Errors
    /// See above.
    pub async fn quarantine_skill(&self, skill: &SkillId, reason: &str) -> Result<Skill, ClientError> {
        let why = QuarantineSkill { reason: reason.to_owned() };
        self.ask(Ask::post(format!("{}/quarantine", place(skill))).json(&why)?.wait(Wait::Long)).await
    }

    /// Lets a skill run again.
    ///
    /// # Errors
    /// See above.
    pub async fn release_skill(&self, skill: &SkillId) -> Result<Skill, ClientError> {
        let path = format!("{}/quarantine", place(skill));
        self.ask(Ask::new(Method::DELETE, path).wait(Wait::Long)).await
    }

    /// Removes a skill and everything that it kept.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_skill(&self, skill: &SkillId) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, place(skill)).wait(Wait::Long)).await
    }

    /// The publishers that are known, and their keys.
    ///
    /// # Errors
    /// See above.
    pub async fn publishers(&self) -> Result<Publishers, ClientError> {
        self.ask(Ask::get("/api/v1/publishers")).await
    }

    /// Lets a key count for a publisher. Answers with all publishers.
    ///
    /// # Errors
    /// See above.
    pub async fn pin_key(&self, publisher: &str, key: &str) -> Result<Publishers, ClientError> {
        let path = format!("/api/v1/publishers/{}/keys", segment(publisher));
        self.ask(Ask::new(Method::PUT, path).json(&PinKey { key: key.to_owned() })?.wait(Wait::Long)).await
    }

    /// Says that a key of a publisher counts no more.
    ///
    /// # Errors
    /// See above.
    pub async fn distrust_key(&self, publisher: &str, key_id: &str) -> Result<(), ClientError> {
        let path = format!("/api/v1/publishers/{}/keys/{}", segment(publisher), segment(key_id));
        self.tell(Ask::new(Method::DELETE, path).wait(Wait::Long)).await
    }

    /// Runs a call of a skill once more, from what was recorded.
    ///
    /// # Errors
    /// See above.
    pub async fn replay_call(&self, call: CallId) -> Result<Replayed, ClientError> {
        self.ask(Ask::post(format!("/api/v1/calls/{call}/replay")).wait(Wait::Long)).await
    }
}

/// A package as it is sent: signed or not, granted nothing, and let pass in nothing.
#[must_use]
pub fn new_skill(package: &[u8], signature: Option<String>) -> NewSkill {
    NewSkill {
        package: BASE64_STANDARD.encode(package),
        signature,
        grants: None,
        trust_on_first_use: None,
        allow_downgrade: false,
        development: false,
    }
}

/// The path of a skill: its publisher and its name, each a part of its own.
fn place(skill: &SkillId) -> String {
    let (publisher, name) = skill.as_str().split_once('/').unwrap_or((skill.as_str(), ""));
    format!("/api/v1/skills/{}/{}", segment(publisher), segment(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_has_a_path_and_a_made_up_id_leads_nowhere_else() {
        let path = |text: &str| place(&SkillId::parse(text).unwrap());
        assert_eq!(path("acme/text-diff"), "/api/v1/skills/acme/text-diff");
        assert_eq!(path("a/b/c"), "/api/v1/skills/a/b%2Fc");
        assert_eq!(path("inspect"), "/api/v1/skills/inspect/");
    }

    #[test]
    fn a_package_is_sent_in_base_64_and_asks_for_nothing_to_pass() {
        let new = new_skill(b"\0\xff", Some("signature".to_owned()));
        assert_eq!((new.package.as_str(), new.signature.as_deref()), ("AP8=", Some("signature")));
        assert_eq!(
            (new.grants, new.trust_on_first_use, new.allow_downgrade, new.development),
            (None, None, false, false)
        );
    }
}
