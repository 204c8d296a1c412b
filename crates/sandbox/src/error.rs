//! Why a plan was not run, or its end is not known.

use std::io;

use palyra_types::visible::visible;
use rustix::io::Errno;

/// A plan that was not run. Nothing of the attempt is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct SandboxProcessRunError {
    /// What kind of refusal it is.
    pub kind: SandboxProcessRunErrorKind,
    /// What it is about, in words.
    pub detail: String,
}

impl SandboxProcessRunError {
    /// An error about something that was given from outside, which is shown with its control characters escaped.
    pub(crate) fn about(kind: SandboxProcessRunErrorKind, what: &str, named: &str) -> Self {
        Self { kind, detail: format!("{what} `{}`", visible(named)) }
    }

    /// An error about a machine that has no descriptors or memory to give, which says nothing about what was asked for.
    pub(crate) fn shortage(errno: Errno) -> Option<Self> {
        let is_short = matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
        is_short.then(|| Self::new(SandboxProcessRunErrorKind::SpawnFailed, io::Error::from(errno).to_string()))
    }

    pub(crate) fn new(kind: SandboxProcessRunErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        self.kind.advice()
    }
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SandboxProcessRunErrorKind {
    /// A declared host is not among the allowed ones.
    #[error("the host is not allowed")]
    EgressDenied,
    /// The program runs code handed to it, and the plan refuses such programs.
    #[error("the program is an interpreter")]
    InterpreterDenied,
    /// The working directory does not lie in the workspace once links are followed.
    #[error("the working directory lies outside the workspace")]
    OutsideWorkspace,
    /// The program, or something that it needs to start, is not among what an enclosure holds.
    #[error("the enclosure does not hold it")]
    OutsideEnclosure,
    /// The working directory cannot be entered.
    #[error("the working directory cannot be used")]
    DirectoryUnusable,
    /// There is no such program, or the interpreter that its first line names is missing.
    #[error("the program was not found")]
    ProgramNotFound,
    /// The file cannot be executed.
    #[error("the program cannot be executed")]
    NotExecutable,
    /// A file of the program, or the working directory, is not the one that was decided about.
    #[error("what would run has changed")]
    Changed,
    /// Something in the plan cannot be given to a process: a NUL, or more than the kernel takes.
    #[error("the plan cannot be given to a process")]
    InvalidInput,
    /// The tier cannot honour the plan on this machine.
    #[error("the tier cannot do this")]
    Unavailable,
    /// The kernel refused a step on the way to the program.
    #[error("the process could not be started")]
    SpawnFailed,
    /// The supervisor ended before the program began.
    #[error("the supervisor was lost")]
    SupervisorLost,
}

impl SandboxProcessRunErrorKind {
    /// What to do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::EgressDenied => {
                "add the host under [[egress.host]] in the configuration, or leave it out of the call"
            }
            Self::InterpreterDenied => {
                "call the program itself instead of a shell, or use a tier that contains interpreters"
            }
            Self::OutsideWorkspace => "give a directory of the workspace; links that lead out of it do not count",
            Self::OutsideEnclosure => {
                "add its directory to `read_only` under [sandbox] in config.toml, or use a program of the system"
            }
            Self::DirectoryUnusable => "check that the working directory exists and may be entered",
            Self::ProgramNotFound => "check the path of the program",
            Self::NotExecutable => "check that the file is a program for this machine and that it may be executed",
            Self::Changed => "propose the call again; if it happens again, look for what changes the file meanwhile",
            Self::InvalidInput => "shorten the arguments and remove NUL characters",
            Self::Unavailable => "use a tier that can, or change what is asked of this one",
            Self::SpawnFailed => "check the limits of the plan and of the daemon itself",
            Self::SupervisorLost => {
                "look for what killed it: the out-of-memory killer, or a program without signal scope"
            }
        }
    }
}
