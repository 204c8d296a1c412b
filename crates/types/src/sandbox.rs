//! Where a call runs: the tier that contains it and how its network is held.

use crate::word::words;

words! {
    /// The tiers of containment.
    pub enum SandboxTier ("sandbox tier") {
        /// WebAssembly: no direct access to the machine.
        A = "a",
        /// A native process under resource limits; no isolation beyond that is claimed.
        B = "b",
        /// A native process inside namespaces, Landlock and seccomp.
        C = "c",
    }
}

words! {
    /// How the network of a call is held.
    pub enum EgressEnforcementMode ("egress mode") {
        /// No restriction.
        None = "none",
        /// Declared hosts are checked before the start and not enforced afterwards.
        Preflight = "preflight",
        /// No network but the allowed hosts, enforced.
        Strict = "strict",
    }
}
