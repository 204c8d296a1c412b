//! What is to be run, completely: nothing about the process comes from anywhere else.
//!
//! Guarantees: plain data whose serialisation is the same for equal plans, so that its digest can be approved and compared.
//! Does not: check anything. [`crate::SandboxProcessRunner::start`] does, every time.

use std::collections::{BTreeMap, BTreeSet};

use palyra_types::{host::HostName, path::AbsolutePath, sandbox::EgressEnforcementMode};
use serde::{Deserialize, Serialize};

/// A process and what holds it. Standard input is given beside the plan, as it may be large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessPlan {
    /// The program's file.
    pub program: AbsolutePath,
    /// What the program is told its name is; the path when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv0: Option<String>,
    /// The arguments, without the program itself.
    pub args: Vec<String>,
    /// The working directory, which lies in the workspace.
    pub cwd: AbsolutePath,
    /// The whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// The root of the workspace.
    pub workspace: AbsolutePath,
    /// Directories hidden by Landlock, where the kernel has it: Palyra's own state.
    ///
    /// The directories *above* a hidden one cannot be listed either, and nothing can be made or removed directly in them, so such
    /// a directory is best kept out of a home's top and out of workspaces.
    pub hidden: Vec<AbsolutePath>,
    /// How much it may use.
    pub limits: Limits,
    /// How its network is held.
    pub egress: EgressPlan,
    /// Whether it may be a program that runs code handed to it.
    pub interpreters: Interpreters,
    /// What contains it, besides its limits.
    #[serde(default, skip_serializing_if = "Containment::is_none")]
    pub containment: Containment,
}

/// What contains a process, besides its limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Containment {
    /// Nothing: tier B.
    #[default]
    None,
    /// An enclosure with its own namespaces, mounts and filters: tier C.
    Enclosure(EnclosurePlan),
}

impl Containment {
    /// Whether there is none.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// What can be used in an enclosure, besides the workspace, which is at the same path inside, and the system's own programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnclosurePlan {
    /// Directories of the machine that can be read and executed, at the same path.
    pub read_only: Vec<AbsolutePath>,
    /// Bytes that temporary files may take. They are gone with the process.
    pub temporary_bytes: u64,
    /// Whether it may use Unix sockets. One that lies in the workspace may lead to somebody outside.
    pub unix_sockets: UnixSockets,
    /// With strict egress, the ports at which programs find a host by its name, without knowing of a proxy.
    pub ports: BTreeSet<u16>,
    /// Whether its programs trust an authority of its own, so that somebody can look into their connections.
    #[serde(default, skip_serializing_if = "is_not")]
    pub intercepts: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_not(value: &bool) -> bool {
    !*value
}

/// Whether programs of an enclosure may use Unix sockets, besides pairs of connected ones, which they always may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnixSockets {
    /// They may not.
    #[default]
    Refuse,
    /// They may.
    Allow,
}

/// How much a process may use. The kernel counts each for every process of the tree on its own, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Milliseconds until the tree is ended; `u64::MAX` for never.
    pub wall_ms: u64,
    /// Seconds of processor time; `u64::MAX` for no bound. SIGXCPU at the limit, SIGKILL a second later.
    pub cpu_seconds: u64,
    /// Bytes of address space. Runtimes reserve far more than they use, so this stops a runaway, not a large program.
    pub address_space: u64,
    /// Processes and threads of the tree, beyond those that the machine has when it starts.
    ///
    /// The kernel counts by user, desktop and all, so the program gets at least this many, and forking fails when they are used
    /// up. It holds root to no limit; the init then counts the processes of the tree itself, and ends it at more than these.
    pub processes: u64,
    /// Bytes of the longest file that may be written.
    pub file_size: u64,
    /// Open descriptors.
    pub open_files: u64,
    /// Bytes of memory that the whole tree may use, where an enclosure has a cgroup. It is ended beyond that.
    pub memory: u64,
    /// Hundredths of a processor that the whole tree may use, where an enclosure has a cgroup. Zero for no bound.
    pub processor_percent: u64,
    /// Bytes kept of each output stream that is captured. What exceeds them is read, counted and discarded.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_ms: 120_000,
            cpu_seconds: 300,
            // Node reserves some 10 GiB for each WebAssembly memory, and a Java heap a quarter of the machine.
            address_space: 64 << 30,
            processes: 512,
            file_size: 4 << 30,
            open_files: 4096,
            memory: 8 << 30,
            processor_percent: 0,
            output_bytes: 1 << 20,
        }
    }
}

/// How the network of a process is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressPlan {
    /// The mode. Only an enclosure can enforce `strict`; without one it is refused.
    pub mode: EgressEnforcementMode,
    /// The hosts that the call declares.
    pub hosts: Vec<EgressHost>,
}

/// A port of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressHost {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

/// Whether programs that run code handed to them are let through.
///
/// A guard against the obvious, not a boundary: any program may turn out to run code, `git` with its aliases and hooks to begin
/// with. What must be contained belongs in a tier that contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpreters {
    /// They run like any program.
    Allow,
    /// They are refused, by any name; so are scripts, and launchers that name one.
    Refuse,
}
