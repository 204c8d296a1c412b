//! How a process ended, what it said and what held it.

use std::{collections::BTreeSet, fmt, net::SocketAddr, time::Duration};

use palyra_types::{digest::Sha256Digest, word::words};
use serde::{Serialize, Serializer};

use crate::{egress::EgressSummary, protocol::layer, reason::Reason, tier_c::cgroup::Controller};

/// A process that ended. Nothing of its tree is left, unless the supervisor was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// What the tree used.
    pub usage: Usage,
    /// The layers that were really active.
    pub layers: Vec<Layer>,
    /// What the sandbox itself knows about why something did not work.
    pub reasons: Vec<Reason>,
    /// What went through its network, where that was its own and somebody decided about it.
    pub egress: Option<EgressSummary>,
    /// Where it was seen to be connected to that no declared host has, where hosts are checked and not enforced.
    pub unexpected: BTreeSet<SocketAddr>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal, which was not ours.
    Signalled(i32),
    /// The plan's wall clock ran out.
    WallClock,
    /// The caller's own deadline, earlier than the plan's, ran out.
    Deadline,
    /// It had more processes than it may. Only root's end like this; for others, forking fails at the limit.
    ProcessLimit,
    /// It was stopped.
    Cancelled(StopCause),
    /// The supervisor ended without a report. What is known of the tree was killed.
    SupervisorLost,
}

/// Why a process was stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// Somebody asked for it.
    Requested,
    /// The one who waited for it is gone.
    CallerGone,
    /// Policy no longer allows it.
    Revoked,
    /// The daemon ends.
    Shutdown,
}

/// What a process wrote to one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The beginning, or of a program that somebody speaks with the end, up to the plan's limit, byte for byte.
    pub bytes: Vec<u8>,
    /// How much it wrote in all.
    pub total: u64,
    /// How much of `bytes` the live stream left out because its reader was slow.
    pub not_streamed: u64,
}

impl Captured {
    /// Whether more was written than was kept.
    #[must_use]
    pub fn truncated(&self) -> bool {
        u64::try_from(self.bytes.len()).is_ok_and(|kept| kept < self.total)
    }
}

/// What a tree used, as far as its processes were waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The largest resident set of one process, in kilobytes.
    pub max_rss_kb: u64,
    /// From the fork of the program to its end.
    pub wall: Duration,
}

/// A layer of enforcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Limits on processor time, address space, file size and descriptors; no core files.
    Rlimits,
    /// A limit on processes, held by the kernel. Missing for root.
    ProcessLimit,
    /// In its place for root: processes are counted twenty times a second, and too many end the tree.
    ProcessWatch,
    /// A session of its own, without a terminal.
    Session,
    /// No descriptor but the three standard ones.
    ClosedFds,
    /// No variable but those of the plan.
    ClearedEnvironment,
    /// No privileges from set-id programs.
    NoNewPrivs,
    /// Directories hidden by Landlock of this version.
    HiddenPaths {
        /// The version.
        abi: u32,
    },
    /// No signal leaves the tree.
    SignalScope,
    /// Memory and descriptors of processes outside the tree are out of reach, the daemon's included.
    NoTrace,
    /// Limits of other processes cannot be changed, the daemon's and the supervisor's included.
    OwnLimits,
    /// The whole tree ends with the call, orphans too.
    TreeKill,
    /// A namespace of its own.
    Namespace(Namespace),
    /// A tree of mounts that holds only what the plan lists, by Landlock of this version too.
    ListedPaths {
        /// The version.
        abi: u32,
    },
    /// No abstract socket outside the tree can be reached.
    SocketScope,
    /// System calls are filtered, by the filter with this digest.
    CallFilter {
        /// The digest.
        sha256: Sha256Digest,
    },
    /// System calls that are refused are heard of.
    Notices,
    /// No capability is left, and none can be had.
    NoCapabilities,
    /// Everything ends with the namespace of processes.
    NamespaceKill,
    /// The user is not root outside, nor the daemon's own.
    OwnUser,
    /// A cgroup bounds this for the whole tree.
    Cgroup(Controller),
}

words! {
    /// The kinds of namespaces.
    pub enum Namespace ("namespace") {
        /// Of users.
        User = "user_namespace",
        /// Of mounts.
        Mount = "mount_namespace",
        /// Of processes.
        Process = "pid_namespace",
        /// Of shared memory, semaphores and message queues.
        Message = "ipc_namespace",
        /// Of the machine's name.
        Name = "uts_namespace",
        /// Of cgroups.
        Cgroup = "cgroup_namespace",
        /// Of the network.
        Network = "network_namespace",
    }
}

impl Layer {
    pub(crate) fn from_bits(bits: u64, abi: u32) -> Vec<Self> {
        let all = [
            (layer::LIMITS, Self::Rlimits),
            (layer::PROCESS_LIMIT, Self::ProcessLimit),
            (layer::PROCESS_WATCH, Self::ProcessWatch),
            (layer::SESSION, Self::Session),
            (layer::CLOSED_FDS, Self::ClosedFds),
            (layer::CLEARED_ENVIRONMENT, Self::ClearedEnvironment),
            (layer::NO_NEW_PRIVS, Self::NoNewPrivs),
            (layer::HIDDEN_PATHS, Self::HiddenPaths { abi }),
            (layer::SIGNAL_SCOPE, Self::SignalScope),
            (layer::NO_TRACE, Self::NoTrace),
            (layer::OWN_LIMITS, Self::OwnLimits),
            (layer::TREE_KILL, Self::TreeKill),
            (layer::LISTED_PATHS, Self::ListedPaths { abi }),
            (layer::SOCKET_SCOPE, Self::SocketScope),
            (layer::NOTICES, Self::Notices),
            (layer::NO_CAPABILITIES, Self::NoCapabilities),
            (layer::NAMESPACE_KILL, Self::NamespaceKill),
        ];
        all.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, layer)| layer).collect()
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rlimits => f.write_str("rlimits"),
            Self::ProcessLimit => f.write_str("rlimit_nproc"),
            Self::ProcessWatch => f.write_str("process_watch"),
            Self::Session => f.write_str("session"),
            Self::ClosedFds => f.write_str("closed_fds"),
            Self::ClearedEnvironment => f.write_str("cleared_environment"),
            Self::NoNewPrivs => f.write_str("no_new_privs"),
            Self::HiddenPaths { abi } => write!(f, "landlock_abi_{abi}:hidden_paths"),
            Self::SignalScope => f.write_str("landlock_scope_signal"),
            Self::NoTrace => f.write_str("landlock_no_trace"),
            Self::OwnLimits => f.write_str("seccomp_own_limits"),
            Self::TreeKill => f.write_str("tree_kill_subreaper"),
            Self::Namespace(kind) => write!(f, "{kind}"),
            Self::ListedPaths { abi } => write!(f, "landlock_abi_{abi}:listed_paths"),
            Self::SocketScope => f.write_str("landlock_scope_abstract_unix"),
            Self::CallFilter { sha256 } => write!(f, "seccomp_filter:{sha256}"),
            Self::Notices => f.write_str("seccomp_notices"),
            Self::NoCapabilities => f.write_str("no_capabilities"),
            Self::NamespaceKill => f.write_str("tree_kill_pid_namespace"),
            Self::OwnUser => f.write_str("own_user"),
            Self::Cgroup(controller) => write!(f, "cgroup_{}", controller.name()),
        }
    }
}

impl Serialize for Layer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
