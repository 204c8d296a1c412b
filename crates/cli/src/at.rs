//! Which daemon the command line names.

use std::str::FromStr;

use crate::{
    exit::Exit,
    failure::Failure,
    paired::{DaemonName, DaemonNameError},
};

/// The daemon that a command is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// The one of this state directory, or the only one that this device is paired with.
    Unnamed,
    /// One that this device is paired with.
    Named(DaemonName),
}

impl At {
    /// Refuses a name, for what makes sense on the daemon's own machine alone.
    pub(crate) fn unnamed(&self, what: &str) -> Result<(), Failure> {
        match self {
            Self::Unnamed => Ok(()),
            Self::Named(name) => {
                let help = "leave --at out, and PALYRA_AT unset; for that daemon, do it on its own machine";
                Err(elsewhere(what, &format!("--at names `{name}`"), help))
            }
        }
    }
}

/// Why something is not done at a distance.
pub(crate) fn elsewhere(what: &str, cause: &str, help: &str) -> Failure {
    Failure::new(Exit::Usage, "not_here", format!("{what} makes no sense at a distance"), cause, help)
}

impl FromStr for At {
    type Err = DaemonNameError;
    fn from_str(text: &str) -> Result<Self, DaemonNameError> {
        // A variable that is set to nothing names nothing.
        if text.is_empty() { Ok(Self::Unnamed) } else { DaemonName::parse(text).map(Self::Named) }
    }
}
