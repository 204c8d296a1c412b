//! Skills: what is installed, what it asks for and may use, who published it, and calls of it that are run once more.
//!
//! Guarantees: what a skill asks for and what it may use are spelt as in its manifest, so that one can be made of the other; beside each stand sentences
//! that say the same to people.
//! Does not: hold a value of a secret. A grant names secrets.

use std::{collections::BTreeMap, fmt};

use palyra_types::{SecretRef, Sha256Digest, SkillId, Timestamp, ToolName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{schema, strict};

/// The skills that are installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skills {
    /// In the order of their ids.
    pub skills: Vec<Skill>,
}

/// A skill that is installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skill {
    /// What it is called: its publisher and its name, such as `acme/text-diff`.
    #[schema(value_type = schema::SkillText)]
    pub id: SkillId,
    /// Its version.
    pub version: String,
    /// Who publishes it.
    #[schema(value_type = schema::PublisherText)]
    pub publisher: String,
    /// The id of the key that its package is signed with; absent for one that is being developed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyId>)]
    pub signed_by: Option<String>,
    /// Whether nobody signed it, because somebody works on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub development: bool,
    /// Under which license, in the words of SPDX.
    pub license: String,
    /// What it does, in a sentence.
    pub summary: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where there is more about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
    /// Its tools.
    pub tools: Vec<SkillTool>,
    /// What it asks for.
    pub capabilities: SkillCapabilities,
    /// What it asks for, in sentences.
    pub asks: Vec<String>,
    /// What it may use. Secrets that whoever asks may not see are left out.
    pub grants: SkillGrants,
    /// What it may use, in sentences.
    pub may: Vec<String>,
    /// How much a call of it may use, as far as the configuration allows.
    pub limits: SkillLimits,
    /// Why it must not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// The digest of its package.
    #[schema(value_type = schema::Digest)]
    pub package_sha256: Sha256Digest,
    /// The digest of its program.
    #[schema(value_type = schema::Digest)]
    pub component_sha256: Sha256Digest,
    /// When this version was installed.
    #[schema(value_type = schema::Time)]
    pub installed_at: Timestamp,
    /// Who installed it.
    #[schema(value_type = schema::PrincipalText)]
    pub installed_by: String,
}

/// A tool of a skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SkillTool {
    /// What it is called beside every other tool, such as `skill.acme.text-diff.diff`.
    #[schema(value_type = schema::Name)]
    pub name: ToolName,
    /// What it does, in a sentence.
    pub summary: String,
    /// The JSON Schema of its arguments. Not told in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Value>,
    /// The JSON Schema of its answer, if it has one. Not told in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Value>,
}

/// What a skill asks for, as its manifest says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkillCapabilities {
    /// To write lines into the log of its call.
    pub log: bool,
    /// To know the time.
    pub clock: bool,
    /// To have randomness.
    pub random: bool,
    /// To keep something for its later calls, and how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvQuota>,
    /// To fetch from these hosts, each with its port: `example.org:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// To use secrets without seeing them: the name it calls each by, and what for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// To use directories of the workspace: the name it calls each by, and how.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileAccess>,
    /// Packages of WASI that its program imports and that lead nowhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inert: Vec<String>,
}

/// What a skill may use. What it did not ask for cannot be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkillGrants {
    /// Whether it may write lines into the log of its call.
    pub log: bool,
    /// Whether it may know the time.
    pub clock: bool,
    /// Whether it may have randomness.
    pub random: bool,
    /// How much it may keep for later.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "strict::optional")]
    pub kv: Option<KvQuota>,
    /// The hosts that it may fetch from, each with its port: `example.org:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub http: Vec<String>,
    /// The secrets behind the names that it calls them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, schema::SecretText>)]
    pub secrets: BTreeMap<String, SecretRef>,
    /// The directories behind the names that it calls them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "strict::under_names")]
    pub files: BTreeMap<String, FileGrant>,
}

/// How much a skill may keep for its later calls in one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KvQuota {
    /// Bytes of keys and values together.
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub bytes: u64,
    /// Entries.
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub entries: u64,
}

/// How a directory may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    /// Its files may be read.
    Read,
    /// Its files may be read, made, replaced and removed.
    Write,
}

impl fmt::Display for FileAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// A directory that a skill may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileGrant {
    /// The directory, from the root of the call's workspace. `.` is the workspace itself.
    pub path: String,
    /// How it may be used.
    pub access: FileAccess,
}

/// How much one call of a skill may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillLimits {
    /// How its work is counted: `epoch` (by time) or `fuel` (by instructions).
    pub metering: String,
    /// With `fuel`: units of it.
    pub fuel: u64,
    /// With `epoch`: milliseconds that it may compute.
    pub cpu_ms: u64,
    /// Milliseconds that it may take.
    pub wall_ms: u64,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Entries of each of its tables.
    pub table_entries: u64,
    /// Bytes of its answer.
    pub output_bytes: u64,
    /// Calls of the host, all together.
    pub host_calls: u64,
    /// Bytes that it may hand to the host in one call.
    pub host_bytes: u64,
    /// Bytes of log lines.
    pub log_bytes: u64,
}

/// Why a skill must not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quarantine {
    /// Why.
    pub reason: String,
    /// Who said so.
    #[schema(value_type = schema::PrincipalText)]
    pub by: String,
    /// When.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
}

/// A package to look at, to install, or to update an installed skill with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSkill {
    /// The package in base 64: at most 64 MiB of it.
    #[schema(format = Byte)]
    pub package: String,
    /// Its signature, as minisign writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16_384)]
    pub signature: Option<String>,
    /// What it may use. Without it, whatever an earlier version was granted and this one still asks for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::optional")]
    pub grants: Option<SkillGrants>,
    /// The key that counts from now on for a publisher of whom none is known: the line of base 64 in its `.pub` file, or the whole file. A
    /// signature says which key made it, and does not hold the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16_384)]
    pub trust_on_first_use: Option<String>,
    /// Whether it may be an older version than the one that is installed.
    #[serde(default)]
    pub allow_downgrade: bool,
    /// Whether it goes without a signature, because somebody works on it.
    #[serde(default)]
    pub development: bool,
}

impl fmt::Debug for NewSkill {
    // A package is long, and no text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewSkill({} bytes of base 64)", self.package.len())
    }
}

/// What installing a package would mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SkillInspection {
    /// What the package says about itself: its manifest, with the schemas of its tools.
    #[schema(value_type = Object)]
    pub manifest: Value,
    /// What the skill is called.
    #[schema(value_type = schema::SkillText)]
    pub id: SkillId,
    /// The version of the package.
    pub version: String,
    /// The digest of the package.
    #[schema(value_type = schema::Digest)]
    pub package_sha256: Sha256Digest,
    /// The digest of its program.
    #[schema(value_type = schema::Digest)]
    pub component_sha256: Sha256Digest,
    /// Who signed it, and whether that counts.
    pub signature: SkillSignature,
    /// What it asks for, in sentences.
    pub asks: Vec<String>,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// What it asks for that the installed version does not, in sentences. Nothing of it is granted by itself.
    pub added: Vec<String>,
    /// What the installed version asks for and this one does not, in sentences.
    pub removed: Vec<String>,
    /// Everything that it asks for and that can be granted without choosing.
    pub offer: SkillGrants,
    /// What of it somebody has to choose something for.
    pub unchosen: Vec<Unchosen>,
    /// How an agent uses it, in prose, if the package says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_md: Option<String>,
}

/// Who signed a package, and whether that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkillSignature {
    /// Whether it counts.
    pub state: SignatureState,
    /// The id of the key, as far as it is known. Anybody can make a key with a given id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KeyId>)]
    pub key_id: Option<String>,
    /// All of that in words.
    pub words: String,
}

/// Whether a signature counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignatureState {
    /// A key made it that counts for the publisher.
    Trusted,
    /// There is none.
    Unsigned,
    /// No key is known for the publisher, so nobody can tell.
    UnknownPublisher,
    /// No key that counts for the publisher made it, or it does not fit.
    Refused,
}

/// Something that a skill asks for by a name, behind which somebody has to put something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Unchosen {
    /// A secret.
    Secret {
        /// The name that the skill calls it by.
        name: String,
        /// What it is for.
        purpose: String,
    },
    /// A directory of the workspace.
    Directory {
        /// The name that the skill calls it by.
        name: String,
        /// How it would be used.
        access: FileAccess,
    },
}

/// Why a skill is to be kept from running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineSkill {
    /// Why.
    #[schema(min_length = 1, max_length = 512)]
    pub reason: String,
}

/// The publishers that are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Publishers {
    /// In the order of their names.
    pub publishers: Vec<Publisher>,
}

/// A publisher of skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Publisher {
    /// What it is called: the first part of the ids of its skills.
    #[schema(value_type = schema::PublisherText)]
    pub name: String,
    /// Its keys that count.
    pub keys: Vec<PublisherKey>,
    /// Its keys that count no more. Only pinning brings them back.
    pub distrusted: Vec<DistrustedKey>,
}

/// A key that counts for a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublisherKey {
    /// The id that minisign shows.
    #[schema(value_type = schema::KeyId)]
    pub key_id: String,
    /// The key: the line of base 64 in a `.pub` file.
    pub key: String,
    /// How it came to count: `pinned` or `first_use`.
    pub how: String,
    /// Who did it.
    #[schema(value_type = schema::PrincipalText)]
    pub by: String,
    /// When.
    #[schema(value_type = schema::Time)]
    pub at: Timestamp,
}

/// A key that counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DistrustedKey {
    /// The id that minisign shows.
    #[schema(value_type = schema::KeyId)]
    pub key_id: String,
    /// The key.
    pub key: String,
}

/// A key that is to count for a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinKey {
    /// The line of base 64 in the publisher's `.pub` file, or the whole file.
    #[schema(max_length = 16_384)]
    pub key: String,
}

/// What came of running a call of a skill once more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// Whether the same came out.
    pub same: bool,
    /// The digest of what was attested then.
    #[schema(value_type = schema::Digest)]
    pub attested: Sha256Digest,
    /// The digest of what came out now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Digest>)]
    pub replayed: Option<Sha256Digest>,
    /// What came out now, in full.
    #[schema(value_type = Object)]
    pub output: Value,
    /// How many questions to the host were answered from the recording.
    pub host_calls: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_may_be_granted_is_spelt_as_a_manifest_spells_it() {
        let spelt = json!({
            "log": true, "clock": false, "random": false,
            "kv": { "bytes": 10, "entries": 2 },
            "http": ["example.org:443"],
            "secrets": { "token": "global/github" },
            "files": { "notes": { "path": "docs", "access": "write" } },
        });
        let grants: SkillGrants = serde_json::from_value(spelt.clone()).unwrap();
        assert_eq!(grants.files.get("notes").map(|one| one.access), Some(FileAccess::Write));
        assert_eq!(serde_json::to_value(&grants).unwrap(), spelt);
        assert_eq!(serde_json::from_str::<SkillGrants>("{}").unwrap(), SkillGrants::default());
        for wrong in [r#"{"network":true}"#, r#"{"kv":[1,1]}"#, r#"{"files":{"notes":["docs","read"]}}"#] {
            assert!(serde_json::from_str::<SkillGrants>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_package_is_installed_as_carefully_as_can_be_unless_it_is_said() {
        let new: NewSkill = serde_json::from_str(r#"{"package":"AAAA"}"#).unwrap();
        assert_eq!((new.allow_downgrade, new.development), (false, false));
        assert_eq!(
            (new.signature.as_deref(), new.trust_on_first_use.as_deref(), new.grants.as_ref()),
            (None, None, None)
        );
        assert_eq!(format!("{new:?}"), "NewSkill(4 bytes of base 64)");
        assert!(serde_json::from_str::<NewSkill>(r#"{"package":"","force":true}"#).is_err());
    }
}
