//! The secrets that a call says it uses.
//!
//! Guarantees: what a call would do names every secret, how it is handed over, and where it may go as of then, so that a person approves
//! exactly that. Does not: hold any value.

use std::collections::BTreeMap;

use palyra_policy::Touch;
use palyra_sandbox::{ForbiddenVariable, check_variable};
use palyra_types::{HostName, SecretRef, ToolName, word::words};
use palyra_vault::{Binding, Position, inject::Used};
use serde::{Deserialize, Serialize};

use crate::tool::{IntendError, Place};

/// A secret that a call uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretUse {
    /// The variable that stands for it, or what stands for it between braces.
    pub name: String,
    /// The secret.
    pub secret: SecretRef,
    /// How it is handed over.
    pub handed: Handed,
    /// Where it may go, as of when the call was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<Binding>,
}

words! {
    /// How a secret is handed over.
    pub enum Handed ("way to hand a secret over") {
        /// A placeholder is; the value takes its place on the way to a host.
        Unseen = "unseen",
        /// The value itself, in a variable.
        Variable = "variable",
        /// The value itself, in a file whose path is in a variable.
        File = "file",
    }
}

impl SecretUse {
    /// What policy is asked about it.
    pub(crate) fn touch(&self) -> Touch {
        match self.handed {
            Handed::Unseen => Touch::Use(self.secret.clone()),
            Handed::Variable | Handed::File => Touch::Reveal(self.secret.clone()),
        }
    }

    /// Whether the program is given the value.
    #[must_use]
    pub fn is_revealed(&self) -> bool {
        self.handed != Handed::Unseen
    }

    /// What is done with it, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { name, secret, handed, bindings } = self;
        match handed {
            Handed::Variable => format!("is given the value of the secret {secret} in the variable {name}"),
            Handed::File => {
                format!("is given the value of the secret {secret} in a file, whose path is in the variable {name}")
            }
            Handed::Unseen if bindings.is_empty() => format!("uses the secret {secret}, which may go nowhere"),
            Handed::Unseen => {
                let places: Vec<String> = bindings.iter().map(|binding| binding.terms.words()).collect();
                format!("uses the secret {secret} without seeing it: {}", places.join("; or "))
            }
        }
    }
}

/// A secret that was really used: a value that went to a host, or to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsedSecret {
    /// The secret.
    pub secret: SecretRef,
    /// The version of it.
    pub version: u32,
    /// How it was handed over.
    pub handed: Handed,
    /// Where it went, and by what leave, if that was a host.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub went: Option<Went>,
}

/// Where a value went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Went {
    /// The host.
    pub host: HostName,
    /// Its port.
    pub port: u16,
    /// Where in a request.
    pub position: Position,
    /// The binding that let it.
    pub binding: u64,
}

impl From<Used> for UsedSecret {
    fn from(used: Used) -> Self {
        let Used { secret, version, host, port, position, binding } = used;
        Self { secret, version, handed: Handed::Unseen, went: Some(Went { host, port, position, binding }) }
    }
}

/// The secrets that arguments name.
#[derive(Debug, Default)]
pub(crate) struct SecretArgs {
    /// By name: those that are used unseen.
    pub(crate) secrets: BTreeMap<String, String>,
    /// By variable: those whose values are handed over.
    pub(crate) secret_values: BTreeMap<String, String>,
    /// By variable: those whose values are handed over in files.
    pub(crate) secret_files: BTreeMap<String, String>,
}

impl SecretArgs {
    /// What they mean, for variables of a process besides these.
    pub(crate) fn for_process(
        self,
        tool: &ToolName,
        env: &BTreeMap<String, String>,
        place: &Place<'_>,
    ) -> Result<Vec<SecretUse>, IntendError> {
        let uses = self.read(tool, place)?;
        for (number, one) in uses.iter().enumerate() {
            check_variable(&one.name)?;
            // It is the name of a file, too.
            let is_plain = one.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_plain || one.name.len() > LONGEST_NAME {
                return Err(ForbiddenVariable::NotAName(one.name.clone()).into());
            }
            let earlier = uses.iter().take(number).any(|other| other.name == one.name);
            if earlier || env.contains_key(&one.name) {
                return Err(IntendError::VariableTwice(one.name.clone()));
            }
        }
        Ok(uses)
    }

    /// What they mean.
    pub(crate) fn read(self, tool: &ToolName, place: &Place<'_>) -> Result<Vec<SecretUse>, IntendError> {
        let Self { secrets, secret_values, secret_files } = self;
        let all = [(Handed::Unseen, secrets), (Handed::Variable, secret_values), (Handed::File, secret_files)];
        let named = all.into_iter().flat_map(|(handed, named)| named.into_iter().map(move |pair| (handed, pair)));
        named
            .map(|(handed, (name, secret))| {
                let secret = SecretRef::parse_or_global(&secret)?;
                let bindings = match handed {
                    Handed::Unseen => (place.bindings)(&secret, tool),
                    Handed::Variable | Handed::File => Vec::new(),
                };
                Ok(SecretUse { name, secret, handed, bindings })
            })
            .collect()
    }
}

/// How long the variable of a secret may be.
const LONGEST_NAME: usize = 64;
