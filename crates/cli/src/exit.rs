//! The exit codes, one place for all of them.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked to.
    Ok,
    /// It did not, or what it checked is not in order.
    Failure,
    /// The command line makes no sense.
    Usage,
    /// Policy denies.
    Denied,
    /// A person said no.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// No daemon answers.
    Unreachable,
    /// A journal, a bundle or a proof is not what was written.
    Unverified,
    /// The call ran longer than it may.
    TimedOut,
    /// `palyra run`: Palyra refused, and the program did not run.
    Refused,
    /// The person at the terminal stopped it.
    Interrupted,
    /// `palyra run`: what the program said.
    Program(u8),
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Denied => 3,
            Self::Rejected => 4,
            Self::Expired => 5,
            Self::Unreachable => 6,
            Self::Unverified => 7,
            Self::TimedOut => 124,
            Self::Refused => 125,
            Self::Interrupted => 130,
            Self::Program(code) => code,
        }
    }

    /// What a refusal of the daemon means, by its code.
    pub(crate) fn of_refusal(code: &str) -> Self {
        match code {
            "denied_by_policy" => Self::Denied,
            "denied_by_person" => Self::Rejected,
            "approval_expired" => Self::Expired,
            _ => Self::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
