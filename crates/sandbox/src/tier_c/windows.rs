//! Tier C on Windows: the limits of a job object.
//!
//! Guarantees: everything that a program starts ends with the job; memory, processes and processor time are bounded for all of it; none of it
//! touches the desktop. Refuses: strict egress, since a job object holds no network, and a plan that hides a directory, since it holds no files.
//! Does not: run here; it is planned, and tested as a plan.

use super::{
    backend::{BackendPlan, Command, TierCBackend},
    profile::{NetworkKind, Profile},
};
use crate::error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind};

/// Job objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowsJobObject;

/// The limits of a job object, in the numbers of the Windows headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobObject {
    /// `JOBOBJECT_BASIC_LIMIT_INFORMATION.LimitFlags`.
    pub limit_flags: u32,
    /// `JobMemoryLimit`: bytes for all processes together.
    pub job_memory: u64,
    /// `ActiveProcessLimit`.
    pub active_processes: u32,
    /// `JOBOBJECT_CPU_RATE_CONTROL_INFORMATION.CpuRate`, in hundredths of a percent of one processor; nothing for no bound.
    pub cpu_rate: Option<u32>,
    /// `JOBOBJECT_BASIC_UI_RESTRICTIONS.UIRestrictionsClass`.
    pub ui_restrictions: u32,
    /// The arguments, the program first.
    pub args: Vec<String>,
}

impl TierCBackend for WindowsJobObject {
    fn executor(&self) -> &'static str {
        "sandbox_tier_c_windows_job_object"
    }

    fn platform(&self) -> &'static str {
        "windows"
    }

    fn plan(&self, profile: &Profile, command: &Command) -> Result<BackendPlan, Error> {
        let cannot = |what: &str| Err(Error::new(Kind::Unavailable, format!("a job object cannot {what}")));
        if matches!(profile.network, NetworkKind::Own(_)) {
            return cannot("hold the network, which the mode `strict` asks for");
        }
        if !profile.hidden.is_empty() {
            return cannot("hide directories");
        }
        if profile.intercepts || profile.has_secret_files {
            return cannot("give programs an authority or files of their own");
        }
        let bounds = profile.bounds;
        let percent = u32::try_from(bounds.processor_percent).unwrap_or(u32::MAX);
        Ok(BackendPlan::JobObject(JobObject {
            limit_flags: KILL_ON_JOB_CLOSE | DIE_ON_UNHANDLED_EXCEPTION | JOB_MEMORY | ACTIVE_PROCESS,
            job_memory: bounds.memory,
            active_processes: u32::try_from(bounds.processes).unwrap_or(u32::MAX),
            cpu_rate: (percent > 0).then(|| percent.saturating_mul(100)),
            ui_restrictions: ALL_UI,
            args: std::iter::once(&command.program).chain(&command.args).cloned().collect(),
        }))
    }
}

const ACTIVE_PROCESS: u32 = 0x8;
const JOB_MEMORY: u32 = 0x200;
const DIE_ON_UNHANDLED_EXCEPTION: u32 = 0x400;
const KILL_ON_JOB_CLOSE: u32 = 0x2000;
/// Handles, clipboard in both directions, system parameters, display settings, global atoms, desktop, leaving the session.
const ALL_UI: u32 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier_c::profile::example;

    fn command() -> Command {
        Command { program: r"C:\tools\build.exe".to_owned(), args: vec!["/all".to_owned()] }
    }

    #[test]
    fn a_job_bounds_everything_that_a_program_starts() {
        let profile = Profile { network: NetworkKind::Machine, hidden: Vec::new(), ..example("/c/shop") };
        let expected = JobObject {
            limit_flags: 0x2608,
            job_memory: 8 << 30,
            active_processes: 512,
            cpu_rate: Some(15_000),
            ui_restrictions: 0xff,
            args: vec![r"C:\tools\build.exe".to_owned(), "/all".to_owned()],
        };
        assert_eq!(WindowsJobObject.plan(&profile, &command()), Ok(BackendPlan::JobObject(expected)));
    }

    #[test]
    fn what_a_job_cannot_enforce_is_refused() {
        let detail = |profile: &Profile| WindowsJobObject.plan(profile, &command()).unwrap_err().detail;
        let strict = example("/c/shop");
        assert_eq!(detail(&strict), "a job object cannot hold the network, which the mode `strict` asks for");
        let hiding = Profile { network: NetworkKind::Machine, ..strict };
        assert_eq!(detail(&hiding), "a job object cannot hide directories");
        assert!(WindowsJobObject.runs_here().is_err());
    }
}
