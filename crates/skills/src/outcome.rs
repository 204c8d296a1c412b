//! How a call of a skill ends, and what it used.
//!
//! Guarantees: each limit and each refusal is told apart from every other, so that whoever called knows what to change.

use std::collections::BTreeMap;

use palyra_package::Metering;
use palyra_types::visible::visible;
use serde::{Deserialize, Serialize};

use crate::host::LogLevel;

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRun {
    /// The answer as JSON text, or why there is none.
    pub answer: Result<String, SkillFailure>,
    /// What it used.
    pub usage: SkillUsage,
    /// What it said, in order, as far as there was room.
    pub log: Vec<LogLine>,
    /// Whether there was more.
    pub log_truncated: bool,
    /// The questions that it asked the host and their answers, if they were to be written down and there was room.
    pub recording: Option<crate::recording::Recording>,
}

/// What a call used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillUsage {
    /// How its work was counted.
    pub metering: Metering,
    /// With `fuel`: how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// With `epoch`: ticks that it saw while it computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u64>,
    /// Bytes of memory at the most.
    pub memory_bytes: u64,
    /// What it asked of the host, by function, such as `http.fetch`: how often.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_calls: BTreeMap<String, u64>,
}

/// A line of the log of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// How important it is.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SkillFailure {
    /// The skill itself says that it could not.
    #[error("{}", visible(.message))]
    Told {
        /// A word that programs can tell apart.
        code: String,
        /// A sentence.
        message: String,
    },
    /// It used up its fuel.
    #[error("it ran out of fuel; its limit is {limit}")]
    OutOfFuel {
        /// The limit.
        limit: u64,
    },
    /// It computed for too long.
    #[error("it computed for more than {limit_ms} ms")]
    ComputedTooLong {
        /// The limit.
        limit_ms: u64,
    },
    /// It took too long, waiting counted.
    #[error("it took more than {limit_ms} ms")]
    TookTooLong {
        /// The limit.
        limit_ms: u64,
    },
    /// It wanted more memory.
    #[error("it wanted more than {limit} bytes of memory")]
    OutOfMemory {
        /// The limit.
        limit: u64,
    },
    /// It wanted memory that others have.
    #[error("it wanted more memory than is left of the {limit} bytes that skills have together")]
    NoMemoryLeft {
        /// What all have together.
        limit: u64,
    },
    /// It wanted a larger table.
    #[error("it wanted a table of more than {limit} entries")]
    TableTooLarge {
        /// The limit.
        limit: u64,
    },
    /// It is made of more instances, memories or tables than there is room for.
    #[error("it needs more instances, memories or tables than a skill may have: {}", visible(.detail))]
    TooManyInstances {
        /// Which.
        detail: String,
    },
    /// Its stack ran over.
    #[error("its stack ran over")]
    StackOverflow,
    /// Its answer is too large.
    #[error("its answer is larger than {limit} bytes")]
    OutputTooLarge {
        /// The limit.
        limit: u64,
    },
    /// It handed more to the host than that may allocate.
    #[error("it handed more than {limit} bytes to the host at once")]
    HandedTooMuch {
        /// The limit.
        limit: u64,
    },
    /// It called the host too often.
    #[error("it called the host more than {limit} times")]
    TooManyHostCalls {
        /// The limit.
        limit: u64,
    },
    /// It used something that it was not granted.
    #[error("it used `{capability}`, which it was not granted")]
    NotGranted {
        /// What.
        capability: String,
    },
    /// It used something that is there and leads nowhere.
    #[error("it used `{interface}`, which is inert")]
    Inert {
        /// What.
        interface: String,
    },
    /// Its answer is no JSON.
    #[error("its answer is no JSON: {}", visible(.detail))]
    NotJson {
        /// What is wrong with it.
        detail: String,
    },
    /// Its answer is not what its manifest promises.
    #[error("its answer does not fit its output schema: {}", visible(.detail))]
    Misfit {
        /// What does not fit.
        detail: String,
    },
    /// It ended itself before it answered.
    #[error("it ended itself with code {code}")]
    Exited {
        /// The code.
        code: i32,
    },
    /// It did something that WebAssembly forbids.
    #[error("it failed: {}", visible(.detail))]
    Trapped {
        /// What.
        detail: String,
    },
    /// Nobody wants it any more.
    #[error("it was stopped")]
    Stopped,
    /// There was no room to run it.
    #[error("there is no room for another call of a skill")]
    NoRoom,
    /// A recorded call asked something else than it did then.
    #[error("it asked the host something else than was recorded: {}", visible(.detail))]
    Diverged {
        /// What.
        detail: String,
    },
}

impl SkillFailure {
    /// What the skill says itself, held to what an answer may take, and no longer than anybody reads.
    pub(crate) fn told(code: String, message: String, limit: u64) -> Self {
        let bytes = u64::try_from(code.len().saturating_add(message.len())).unwrap_or(u64::MAX);
        if bytes > limit {
            return Self::OutputTooLarge { limit };
        }
        Self::Told { code: cut(code, LONGEST_CODE), message }.brief()
    }

    /// The same, with no more words than anybody reads. What a skill made of them is part of what is attested, which has a largest size.
    #[must_use]
    pub fn brief(self) -> Self {
        let brief = |text| cut(text, LONGEST_TEXT);
        match self {
            Self::Told { code, message } => Self::Told { code, message: brief(message) },
            Self::TooManyInstances { detail } => Self::TooManyInstances { detail: brief(detail) },
            Self::NotJson { detail } => Self::NotJson { detail: brief(detail) },
            Self::Misfit { detail } => Self::Misfit { detail: brief(detail) },
            Self::Trapped { detail } => Self::Trapped { detail: brief(detail) },
            Self::Diverged { detail } => Self::Diverged { detail: brief(detail) },
            other => other,
        }
    }

    /// A word for programs. What the skill itself says has the skill's word.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Told { code, .. } => code,
            Self::OutOfFuel { .. } => "out_of_fuel",
            Self::ComputedTooLong { .. } => "computed_too_long",
            Self::TookTooLong { .. } => "took_too_long",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::NoMemoryLeft { .. } => "no_memory_left",
            Self::TableTooLarge { .. } => "table_too_large",
            Self::TooManyInstances { .. } => "too_many_instances",
            Self::StackOverflow => "stack_overflow",
            Self::OutputTooLarge { .. } => "output_too_large",
            Self::HandedTooMuch { .. } => "handed_too_much",
            Self::TooManyHostCalls { .. } => "too_many_host_calls",
            Self::NotGranted { .. } => "not_granted",
            Self::Inert { .. } => "inert",
            Self::NotJson { .. } => "not_json",
            Self::Misfit { .. } => "misfit",
            Self::Exited { .. } => "exited",
            Self::Trapped { .. } => "trapped",
            Self::Stopped => "stopped",
            Self::NoRoom => "no_room",
            Self::Diverged { .. } => "diverged",
        }
    }

    /// Whether it used more than it may.
    #[must_use]
    pub const fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::OutOfFuel { .. }
                | Self::ComputedTooLong { .. }
                | Self::TookTooLong { .. }
                | Self::OutOfMemory { .. }
                | Self::TableTooLarge { .. }
                | Self::TooManyInstances { .. }
                | Self::StackOverflow
                | Self::OutputTooLarge { .. }
                | Self::HandedTooMuch { .. }
                | Self::TooManyHostCalls { .. }
        )
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Told { .. } => "read what the skill says, and call it with other arguments",
            Self::NotGranted { .. } => "an owner or admin grants it with `palyra skills grant`",
            Self::Inert { .. } => "the skill has to do without it: hosts and files are reached through `palyra:skill`",
            Self::NotJson { .. } | Self::Misfit { .. } | Self::Exited { .. } | Self::Trapped { .. } => {
                "it is a fault of the skill; tell whoever publishes it"
            }
            Self::Stopped | Self::NoRoom => "call it again later",
            Self::NoMemoryLeft { .. } => {
                "call it again when others are done, or raise `all_memory_bytes` under [skills] in config.toml"
            }
            Self::Diverged { .. } => "look at what the recording says; the skill does not do what it did then",
            _ => "ask for less at once; or raise `limits` of the skill, and under [skills] in config.toml",
        }
    }
}

/// The beginning of a text, with a mark where something is left out.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// How many bytes a skill has for the word that programs tell a failure by.
const LONGEST_CODE: usize = 64;
/// How many bytes of a sentence are kept.
const LONGEST_TEXT: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_skill_says_is_cut_between_characters_and_refused_beyond_its_limit() {
        let long = SkillFailure::told("x".repeat(100), "é".repeat(3_000), 10_000);
        let SkillFailure::Told { code, message } = &long else { panic!("{long:?}") };
        assert_eq!((code.len(), message.len()), (LONGEST_CODE + '…'.len_utf8(), LONGEST_TEXT + '…'.len_utf8()));
        assert_eq!(
            SkillFailure::told("x".to_owned(), "y".repeat(10_000), 10_000),
            SkillFailure::OutputTooLarge { limit: 10_000 }
        );
        let short = SkillFailure::Misfit { detail: "short".to_owned() };
        assert_eq!(short.clone().brief(), short);
    }
}
