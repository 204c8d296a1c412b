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
    /// No daemon answers.
    Unreachable,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Denied => 3,
            Exit::Unreachable => 6,
        })
    }
}
