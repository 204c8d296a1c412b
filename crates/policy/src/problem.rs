//! What can be wrong with a policy set, where, and what to do about it.
//!
//! Loading never stops at the first problem: a [`LoadError`] holds them all, in the order of files and lines.

use palyra_types::{NameError, PolicyId};
use serde::{Serialize, Serializer};

use crate::{decision::Effect, source::Location};

/// Largest policy file, in bytes.
pub const MAX_FILE_SIZE: u64 = 4 * 1024 * 1024;
/// Largest sum of all policy files, in bytes.
pub const MAX_TOTAL_SIZE: u64 = 16 * 1024 * 1024;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(String),
    /// There is a directory, a device or a pipe where a file should be.
    #[error("this is a {0}, not a file")]
    NotAFile(&'static str),
    /// The file is too large to be policy.
    #[error("the file is {size} bytes; the limit is {limit}")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit it breaks.
        limit: u64,
    },
    /// The file is not text.
    #[error("the file is not UTF-8 text")]
    NotUtf8,
    /// Cedar cannot parse the policy.
    #[error("{message}")]
    Syntax {
        /// What Cedar says.
        message: String,
        /// Cedar's own advice, if it has any.
        help: Option<String>,
    },
    /// The text ends before the policy does.
    #[error("the policy does not end with `;`")]
    Unfinished,
    /// The policy is nested more deeply than any rule needs to be.
    #[error("the policy nests brackets and `if` more than {0} deep")]
    TooDeep(usize),
    /// The policy has more operators than any rule needs.
    #[error("the policy has more than {0} operators")]
    TooLong(usize),
    /// The policy has slots.
    #[error("the policy is a template")]
    Template,
    /// The policy has no name of its own.
    #[error("the policy has no `@id`")]
    MissingId,
    /// The `@id` is not a name.
    #[error("the `@id` cannot be used: {0}")]
    BadId(NameError),
    /// Two policies have one name.
    #[error("the id `{id}` is already taken by the policy at {first}")]
    DuplicateId {
        /// The id.
        id: PolicyId,
        /// Where it was seen first.
        first: Location,
    },
    /// An operator policy poses as part of the baseline.
    #[error("the id `{0}` starts with `baseline.`, which is reserved")]
    ReservedId(PolicyId),
    /// The policy does not fit the schema.
    #[error("{message}")]
    Schema {
        /// What the validator says.
        message: String,
        /// Its advice, if it has any.
        help: Option<String>,
    },
    /// The validator has doubts. An error in the baseline, a warning elsewhere.
    #[error("{0}")]
    Doubtful(String),
    /// The text holds characters that hide what it says.
    #[error("the policy holds the invisible character U+{:04X}", u32::from(*.0))]
    Hidden(char),
    /// Approving could take something away.
    #[error("this {effect} would {change} applying once a person approves", effect = .0, change = if *.0 == Effect::Permit { "stop" } else { "start" })]
    ApprovalInverted(Effect),
    /// A name that no request can have.
    #[error("{name} can never match: {reason}")]
    ImpossibleName {
        /// The name as it is written.
        name: String,
        /// Why no request has it.
        reason: String,
    },
    /// A condition asks about an entity that the request need not name.
    #[error("the condition asks about {0}, not about the request")]
    FixedSubject(String),
}

impl Problem {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Unreadable(_) => "check that the file exists and that you may read it".into(),
            Self::NotAFile(_) => "put policies into regular files that end in .cedar".into(),
            Self::TooLarge { .. } => "split the file, or check that it holds policies".into(),
            Self::NotUtf8 => "save the file as UTF-8".into(),
            Self::Syntax { help: Some(help), .. } | Self::Schema { help: Some(help), .. } => help.clone(),
            Self::Syntax { .. } => "docs/policy.md shows how rules are written".into(),
            Self::Unfinished => "add what is missing, and a `;` at the end".into(),
            Self::TooDeep(_) | Self::TooLong(_) => "write several policies instead of one large condition".into(),
            Self::Template => "write the principal and the resource out instead of `?principal` and `?resource`".into(),
            Self::MissingId => "add a line such as @id(\"allow-cargo-test\") above the policy".into(),
            Self::BadId(error) => error.advice().into(),
            Self::DuplicateId { .. } => "give one of the two another id".into(),
            Self::ReservedId(_) => "choose an id that does not start with `baseline.`".into(),
            Self::Schema { .. } => "policies/palyra.cedarschema lists what rules can speak of".into(),
            Self::Doubtful(_) => "a rule that can never apply is usually a slip".into(),
            Self::Hidden(_) => "retype the line; text copied from a web page often carries such characters".into(),
            Self::ApprovalInverted(Effect::Permit) => {
                "in a permit, use `context.approved` as it is, without `!`, outside of comparisons and `if`".into()
            }
            Self::ApprovalInverted(Effect::Forbid) => "in a forbid, write `unless { context.approved }`".into(),
            Self::ImpossibleName { .. } => {
                "write paths absolute (`~` and `*` mean nothing here) and hosts in lower case, without port or `*`; `in` covers \
                 everything below"
                    .into()
            }
            Self::FixedSubject(_) => {
                "ask about principal, action, resource or context; compare them with fixed names".into()
            }
        }
    }

    /// A word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::NotAFile(_) => "not_a_file",
            Self::TooLarge { .. } => "too_large",
            Self::NotUtf8 => "not_utf8",
            Self::Syntax { .. } => "syntax",
            Self::Unfinished => "unfinished",
            Self::TooDeep(_) => "too_deep",
            Self::TooLong(_) => "too_long",
            Self::Template => "template",
            Self::MissingId => "missing_id",
            Self::BadId(_) => "bad_id",
            Self::DuplicateId { .. } => "duplicate_id",
            Self::ReservedId(_) => "reserved_id",
            Self::Schema { .. } => "schema",
            Self::Doubtful(_) => "doubtful",
            Self::Hidden(_) => "hidden_character",
            Self::ApprovalInverted(_) => "approval_inverted",
            Self::FixedSubject(_) => "fixed_subject",
            Self::ImpossibleName { .. } => "impossible_name",
        }
    }
}

/// A problem and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub problem: Problem,
    /// Where.
    pub location: Location,
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            code: &'static str,
            message: String,
            help: String,
            #[serde(flatten)]
            location: &'a Location,
        }
        Form {
            code: self.problem.code(),
            message: self.problem.to_string(),
            help: self.problem.advice(),
            location: &self.location,
        }
        .serialize(serializer)
    }
}

/// Why a set was not loaded. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policies were not loaded: {}", self.summary())]
pub struct LoadError {
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
}

impl LoadError {
    fn summary(&self) -> String {
        match self.findings.as_slice() {
            [] => "no reason was recorded".to_owned(),
            [only] => format!("{} at {}", only.problem, only.location),
            [first, rest @ ..] => format!("{} at {} (and {} more)", first.problem, first.location, rest.len()),
        }
    }
}
