//! Policies: what is in force, explanations and replays.

use palyra_types::{Sha256Digest, Timestamp, id::CallId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{schema, strict};

/// The policy set that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicySet {
    /// Its digest.
    #[schema(value_type = schema::Digest)]
    pub digest: Sha256Digest,
    /// The preset, or `none`.
    pub preset: String,
    /// Whether tools with a sensitive capability can be used at all.
    pub allow_sensitive_tools: bool,
    /// Since when it is in force.
    #[schema(value_type = schema::Time)]
    pub since: Timestamp,
    /// The policies.
    pub policies: Vec<PolicyEntry>,
    /// What is doubtful about them.
    pub warnings: Vec<String>,
    /// Why what is on disk is not in force, if the last reload was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A policy of the set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyEntry {
    /// Its id.
    pub id: String,
    /// `permit` or `forbid`.
    pub effect: String,
    /// `baseline` or `operator`.
    pub layer: String,
    /// Its file and line.
    pub location: String,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Why a call was decided as it was, by the policies that are in force now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallExplanation {
    /// The call.
    #[schema(value_type = schema::Ulid)]
    pub call: CallId,
    /// The call in words.
    pub what: String,
    /// What was decided then.
    pub decided: String,
    /// Why it was, in one sentence.
    pub reason: String,
    /// What would be decided now.
    pub verdict: String,
    /// Whether the policies in force are those that decided.
    pub same_policies: bool,
    /// The parts of the call, each with its reasons.
    pub parts: Vec<Explanation>,
}

/// What the policies that are in force say to something that was decided before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconsidered {
    /// What was asked, in words.
    pub what: String,
    /// What would be decided now.
    pub verdict: String,
    /// Whether the policies in force are those that decided.
    pub same_policies: bool,
    /// Its parts, each with its reasons.
    pub parts: Vec<Explanation>,
}

/// Why something is allowed, asked or denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// Who asks.
    pub principal: String,
    /// For what.
    pub action: String,
    /// With what.
    pub resource: String,
    /// Why.
    pub reasons: Vec<Reason>,
    /// Permits that came close.
    pub near_misses: Vec<NearMiss>,
    /// Who can change that, and how.
    pub change: Vec<String>,
    /// The smallest rule that would change it, or stop the asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// What the policy does, such as `forbidden by`; or the whole reason, if no policy is behind it.
    pub title: String,
    /// The policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Its file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Why it is there, or what went wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A permit that came close.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NearMiss {
    /// The policy.
    pub policy: String,
    /// Its file and line.
    pub location: String,
    /// What it requires.
    pub required: String,
    /// What is.
    pub actual: String,
    /// What that means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A candidate policy set, to be tried on what was decided before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The candidate's files.
    #[serde(deserialize_with = "strict::each")]
    #[schema(max_items = 1000)]
    pub files: Vec<PolicyFile>,
    /// Whether they replace the operator's own files; otherwise they are added to them.
    #[serde(default)]
    pub instead: bool,
    /// The preset beside them: its name, or `none`. Without it, that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// How many of the last decisions are tried.
    #[serde(default = "many")]
    #[schema(default = 1000, minimum = 1, maximum = 100_000)]
    pub last: u32,
}

const fn many() -> u32 {
    1_000
}

/// A file of policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Its name.
    pub name: String,
    /// Its Cedar text.
    pub text: String,
}

/// What a candidate would have decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayReport {
    /// How many recorded decisions were tried.
    pub tried: u64,
    /// How many could not be, because they were erased or cannot be read any more.
    pub skipped: u64,
    /// What would be decided otherwise. What is newly allowed comes first.
    pub flips: Vec<Flip>,
    /// How often something else would be decided otherwise that is not told, because the report would be too long.
    #[serde(default)]
    pub untold: u64,
}

/// Something that would be decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Flip {
    /// Which way, such as `newly allowed`.
    pub change: String,
    /// Who asked.
    pub who: String,
    /// For what.
    pub what: String,
    /// Where it would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// What the policies in force say.
    pub before: String,
    /// What the candidate says.
    pub after: String,
    /// Why the candidate does.
    pub reason: String,
    /// How often it was asked for.
    pub times: u64,
    /// One of the calls.
    #[schema(value_type = schema::Ulid)]
    pub call: CallId,
}
