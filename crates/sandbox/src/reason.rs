//! Why something did not work for a program, as far as the sandbox itself knows.
//!
//! Guarantees: each reason is something that the kernel or the daemon did and counted. Nothing is guessed from what the program wrote.

use palyra_types::visible::visible;
use serde::Serialize;

use crate::{
    egress::{EgressRefusal, RefusedTarget, Via},
    outcome::Ended,
    plan::Limits,
    protocol::Denied,
    tier_c::{cgroup::Exceeded, filter},
};

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// System calls that no program in an enclosure may make were refused.
    SystemCalls {
        /// Their names.
        calls: Vec<String>,
        /// How often that was, all together.
        times: u64,
    },
    /// The program used the system call interface of another architecture, and was ended for that.
    ForeignArchitecture,
    /// Processes were ended because the tree used more memory than it may.
    Memory {
        /// How much that is, in bytes.
        limit: u64,
        /// How many processes.
        processes: u64,
    },
    /// Further processes could not be started.
    Processes {
        /// How many there may be.
        limit: u64,
        /// How often one could not.
        times: u64,
    },
    /// The program used more processor time than it may.
    ProcessorTime {
        /// How much that is, in seconds.
        limit: u64,
    },
    /// The program wrote a larger file than it may.
    FileSize {
        /// How large that is, in bytes.
        limit: u64,
    },
    /// The program was given paths that its enclosure does not hold.
    OutsidePaths {
        /// These, as it was given them.
        paths: Vec<String>,
    },
    /// A connection was not let through.
    Egress {
        /// What the program named; empty if it did not come to that.
        named: String,
        /// The port; 0 if it did not come to name one.
        port: u16,
        /// How it came, which tells a name that was asked for from a connection.
        via: Via,
        /// Why not.
        refusal: EgressRefusal,
    },
}

impl Reason {
    /// Shows each text that comes from outside to somebody who may change it.
    pub fn each_text(&mut self, change: &mut dyn FnMut(&mut String)) {
        match self {
            Self::OutsidePaths { paths } => paths.iter_mut().for_each(change),
            Self::Egress { named, refusal, .. } => {
                change(named);
                change(&mut refusal.detail);
            }
            Self::SystemCalls { .. }
            | Self::ForeignArchitecture
            | Self::Memory { .. }
            | Self::Processes { .. }
            | Self::ProcessorTime { .. }
            | Self::FileSize { .. } => {}
        }
    }
}

impl From<RefusedTarget> for Reason {
    fn from(RefusedTarget { named, port, via, refusal }: RefusedTarget) -> Self {
        Self::Egress { named, port, via, refusal }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SystemCalls { calls, times: 1 } => {
                write!(f, "the sandbox refused the system call {}", calls.join(", "))
            }
            Self::SystemCalls { calls, times } => {
                write!(f, "the sandbox refused {times} system calls: {}", calls.join(", "))
            }
            Self::ForeignArchitecture => {
                f.write_str("the program was ended for a system call of another architecture, such as one of 32 bits")
            }
            Self::Memory { limit, processes } => {
                write!(f, "{processes} of its processes were ended: together they may use {limit} bytes of memory")
            }
            Self::Processes { limit, times } => {
                write!(f, "it could not start another process {times} times: there may be {limit}")
            }
            Self::ProcessorTime { limit } => write!(f, "it used more than {limit} seconds of processor time"),
            Self::Egress { named, via: Via::Dns, refusal, .. } => {
                write!(f, "it could not look up `{named}`: {refusal}")
            }
            Self::Egress { named, refusal, .. } if named.is_empty() => {
                write!(f, "a connection that named no host was refused: {refusal}")
            }
            Self::Egress { named, port, refusal, .. } if refusal.kind.is_about_a_request() => {
                write!(f, "a request to `{named}` port {port} was refused: {refusal}")
            }
            Self::Egress { named, port: 0, refusal, .. } => write!(f, "it could not connect to `{named}`: {refusal}"),
            Self::Egress { named, port, refusal, .. } => {
                write!(f, "it could not connect to `{named}` port {port}: {refusal}")
            }
            Self::OutsidePaths { paths } => {
                let shown: Vec<String> = paths.iter().map(|path| format!("`{}`", visible(path))).collect();
                write!(f, "it was given {}, which its enclosure does not hold", shown.join(", "))
            }
            Self::FileSize { limit } => write!(f, "it wrote a file of more than {limit} bytes"),
        }
    }
}

impl Reason {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::SystemCalls { .. } => "no program in tier c may do this; run it in another tier if it has to",
            Self::ForeignArchitecture => "use a program for this machine's own architecture",
            Self::Memory { .. } => "raise `memory` under [sandbox.limits] if it needs more",
            Self::Processes { .. } => "raise `processes` under [sandbox.limits] if it needs more",
            Self::ProcessorTime { .. } => "raise `cpu_seconds` under [sandbox.limits] if it needs more",
            Self::OutsidePaths { .. } => {
                "use files of the workspace, or add their directory to `read_only` under [sandbox]"
            }
            Self::Egress { refusal, .. } => refusal.advice(),
            Self::FileSize { .. } => "raise `file_size` under [sandbox.limits] if it needs more",
        }
    }
}

/// What is known about a tree that ended.
pub fn known(ended: Ended, denied: &Denied, exceeded: Exceeded, limits: &Limits, outside: Vec<String>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if ended != Ended::Exited(0) && !outside.is_empty() {
        reasons.push(Reason::OutsidePaths { paths: outside });
    }
    if denied.count > 0 {
        reasons.push(Reason::SystemCalls { calls: denied.calls().map(filter::name_of).collect(), times: denied.count });
    }
    if exceeded.out_of_memory > 0 {
        reasons.push(Reason::Memory { limit: limits.memory, processes: exceeded.out_of_memory });
    }
    if exceeded.too_many_processes > 0 {
        reasons.push(Reason::Processes { limit: limits.processes, times: exceeded.too_many_processes });
    }
    match ended {
        Ended::Signalled(libc::SIGSYS) => reasons.push(Reason::ForeignArchitecture),
        Ended::Signalled(libc::SIGXCPU) => reasons.push(Reason::ProcessorTime { limit: limits.cpu_seconds }),
        Ended::Signalled(libc::SIGXFSZ) => reasons.push(Reason::FileSize { limit: limits.file_size }),
        _ => {}
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::EgressRefusalKind;

    #[test]
    fn a_refusal_of_the_network_says_what_was_tried() {
        let told = |named: &str, port, via| {
            let refusal = EgressRefusal::new(EgressRefusalKind::NotListed, "no");
            Reason::from(RefusedTarget { named: named.to_owned(), port, via, refusal }).to_string()
        };
        assert_eq!(told("a.org", 53, Via::Dns), "it could not look up `a.org`: no");
        assert_eq!(told("a.org", 53, Via::Connect), "it could not connect to `a.org` port 53: no");
        assert_eq!(told("a.org", 443, Via::Direct), "it could not connect to `a.org` port 443: no");
        assert_eq!(told("@a.org:443", 0, Via::Socks5), "it could not connect to `@a.org:443`: no");
        assert_eq!(told("", 0, Via::Http), "a connection that named no host was refused: no");
        assert_eq!(told("", 53, Via::Dns), "it could not look up ``: no");
    }
}
