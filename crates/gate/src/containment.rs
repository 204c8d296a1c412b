//! What the tiers really hold on this machine, for whoever asks how it is.
//!
//! Guarantees: what is told was tried from inside an enclosure, when the daemon started or read its configuration. Does not: try anything
//! itself.

use std::path::PathBuf;

use palyra_sandbox::{
    Layer, Namespace, SandboxProcessRunError, SandboxProcessRunner,
    tier_c::{TierC, probe::Missing},
};

use crate::{
    config::{EgressSection, ToolCallConfig},
    gate::Gate,
};

/// Why tier C is not to be had.
pub type Unavailable = SandboxProcessRunError;

/// What tier C holds here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Containment {
    /// The version of bubblewrap.
    pub bubblewrap: String,
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// The version of Landlock, and what it does.
    pub landlock: Vec<String>,
    /// The filter of system calls.
    pub seccomp: Vec<String>,
    /// What cgroups bound for a tree as a whole.
    pub cgroups: Vec<String>,
    /// Every other layer.
    pub others: Vec<String>,
    /// What was tried from inside, and refused.
    pub refused: Vec<String>,
    /// What is optional and not there.
    pub missing: Vec<Missing>,
    /// How many enclosures wait for calls.
    pub waiting: usize,
}

impl Gate {
    /// What tier C holds on this machine.
    ///
    /// # Errors
    /// When it is not to be had.
    pub fn containment(&self) -> Result<Containment, Unavailable> {
        let settings = self.inner.settings.load();
        settings.runner.tier_c().map(|tier_c| Containment::of(tier_c)).map_err(Clone::clone)
    }
}

impl Containment {
    pub(crate) fn of(tier_c: &TierC) -> Self {
        let matrix = tier_c.matrix();
        let mut found = Self {
            bubblewrap: tier_c.backend().version().to_owned(),
            namespaces: Vec::new(),
            landlock: Vec::new(),
            seccomp: Vec::new(),
            cgroups: Vec::new(),
            others: Vec::new(),
            refused: matrix.refused.iter().map(|&what| what.to_owned()).collect(),
            missing: matrix.missing.clone(),
            waiting: tier_c.waiting(),
        };
        for layer in &matrix.layers {
            let list = match layer {
                Layer::Namespace(_) => &mut found.namespaces,
                Layer::ListedPaths { .. } | Layer::SignalScope | Layer::SocketScope | Layer::NoTrace => {
                    &mut found.landlock
                }
                Layer::CallFilter { .. } | Layer::Notices => &mut found.seccomp,
                Layer::Cgroup(_) => &mut found.cgroups,
                _ => &mut found.others,
            };
            list.push(layer.to_string());
        }
        found
    }

    /// Tries what this machine has, for whoever asks without a daemon. What is made for that goes into this directory.
    ///
    /// # Errors
    /// When tier C is not to be had.
    pub fn find((config, egress): (&ToolCallConfig, &EgressSection), directory: PathBuf) -> Result<Self, Unavailable> {
        let runner = SandboxProcessRunner::new([])?.with_tier_c(&config.tier_c(directory, &egress.trust));
        runner.tier_c().map(|tier_c| Self::of(tier_c)).map_err(Clone::clone)
    }

    /// Whether the network of an enclosure can be its own.
    #[must_use]
    pub fn holds_network(&self) -> bool {
        self.namespaces.iter().any(|one| *one == Namespace::Network.to_string())
    }
}
