//! What builds sandboxes of tier C, platform by platform.
//!
//! Guarantees: what a backend would do for a profile is a pure function of the two, so it can be read, compared and tested anywhere.
//! Refuses: to run on another platform than its own, and to plan what it cannot enforce.

use super::{linux::LinuxBubblewrap, profile::Profile, windows::JobObject};
use crate::error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind};

/// What builds sandboxes of tier C on one platform.
pub trait TierCBackend {
    /// The executor's name in attestations.
    fn executor(&self) -> &'static str;

    /// The platform, as the compiler calls it.
    fn platform(&self) -> &'static str;

    /// What it does to run a command in a sandbox of this profile.
    ///
    /// # Errors
    /// When the platform cannot enforce what the profile says.
    fn plan(&self, profile: &Profile, command: &Command) -> Result<BackendPlan, Error>;

    /// Whether this is its platform.
    ///
    /// # Errors
    /// When it is not.
    fn runs_here(&self) -> Result<(), Error> {
        match self.platform() == std::env::consts::OS {
            true => Ok(()),
            false => {
                let (executor, platform, here) = (self.executor(), self.platform(), std::env::consts::OS);
                let what = format!("not on this platform: {executor} is for {platform}, and this is {here}");
                Err(Error::new(Kind::Unavailable, what))
            }
        }
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program.
    pub program: String,
    /// Its arguments, without itself.
    pub args: Vec<String>,
}

/// What a backend does to run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendPlan {
    /// Starts bubblewrap, whose init is then told of the command.
    Bubblewrap {
        /// Bubblewrap's arguments, its own name first.
        args: Vec<String>,
    },
    /// Starts the command through `sandbox-exec`.
    SandboxExec {
        /// The rules, in Apple's language for them.
        rules: String,
        /// The arguments, the program's own name first.
        args: Vec<String>,
    },
    /// Starts the command suspended, puts it into a job object, and lets it go.
    JobObject(JobObject),
}

impl TierCBackend for LinuxBubblewrap {
    fn executor(&self) -> &'static str {
        super::LINUX_BUBBLEWRAP
    }

    fn platform(&self) -> &'static str {
        "linux"
    }

    fn plan(&self, profile: &Profile, _: &Command) -> Result<BackendPlan, Error> {
        Ok(BackendPlan::Bubblewrap { args: self.arguments(profile) })
    }
}
