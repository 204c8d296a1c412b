//! Compiles programs of skills, in a process of its own.
//!
//! Guarantees: what comes from elsewhere is compiled by a process that is bounded in time, memory and output, has no variables, and from which
//! the state directory is hidden where the kernel can; whatever becomes of it, the daemon goes on. Never on the path of a call.
//! Does not: trust what comes back any further than whoever made the program: it is kept under the digest of that program alone.

use std::{collections::BTreeMap, sync::Arc};

use palyra_package::Metering;
use palyra_sandbox::{
    Containment, EgressPlan, Ended, Interpreters, Limits, ProcessPlan, RunInput, SandboxProcessRunner, Streams,
    run_constrained_process,
};
use palyra_skills::compile::{CompileError, CompileRequest, read_answer};
use palyra_types::{AbsolutePath, EgressEnforcementMode};

/// The program that compiles, and how it is told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillCompiler {
    /// The program: Palyra itself.
    pub program: AbsolutePath,
    /// What makes it compile.
    pub args: Vec<String>,
}

/// The argument that makes Palyra's own programs compile what they read.
pub const COMPILE_ARGUMENT: &str = "compile-skill";

impl SkillCompiler {
    /// Compiles a program.
    ///
    /// # Errors
    /// When it cannot be compiled within its bounds.
    pub(super) async fn compile(
        &self,
        runner: &SandboxProcessRunner,
        hidden: &[AbsolutePath],
        (wasm, metering): (Arc<[u8]>, Metering),
    ) -> Result<Vec<u8>, CompilingError> {
        let request = CompileRequest { wasm: wasm.to_vec(), metering };
        let plan = ProcessPlan {
            program: self.program.clone(),
            argv0: None,
            args: self.args.clone(),
            cwd: AbsolutePath::root(),
            env: BTreeMap::new(),
            workspace: AbsolutePath::root(),
            hidden: hidden.to_vec(),
            limits: LIMITS,
            egress: EgressPlan { mode: EgressEnforcementMode::None, hosts: Vec::new() },
            interpreters: Interpreters::Allow,
            containment: Containment::None,
        };
        let input = RunInput { streams: Streams::Captured { stdin: Some(request.encode()) }, ..RunInput::default() };
        let outcome = run_constrained_process(runner, &plan, input, |_| {})
            .await
            .map_err(|error| CompilingError::NotStarted(error.to_string()))?;
        if outcome.stdout.total > LIMITS.output_bytes {
            return Err(CompilingError::TooLarge);
        }
        match outcome.ended {
            Ended::Exited(_) => read_answer(&outcome.stdout.bytes).map_err(CompilingError::Refused),
            Ended::WallClock | Ended::Deadline => Err(CompilingError::TooLong),
            Ended::Signalled(signal) => Err(CompilingError::Killed(signal)),
            Ended::ProcessLimit | Ended::Cancelled(_) | Ended::SupervisorLost => Err(CompilingError::Killed(0)),
        }
    }
}

/// Why a program was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompilingError {
    /// The process was not started.
    #[error("the compiler could not be started: {0}")]
    NotStarted(String),
    /// The compiler says no.
    #[error(transparent)]
    Refused(CompileError),
    /// It took too long.
    #[error("it takes more than {} s to compile", LIMITS.wall_ms / 1_000)]
    TooLong,
    /// What came out is too large.
    #[error("it compiles to more than {} bytes", LIMITS.output_bytes)]
    TooLarge,
    /// The process was killed, most likely at one of its bounds.
    #[error("the compiler was killed by signal {0}: it needs more memory or time than it may use")]
    Killed(i32),
}

impl CompilingError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::NotStarted(_) => "see that Palyra's own program is where it was started from, and restart the daemon",
            Self::Refused(error) => error.advice(),
            Self::TooLong | Self::TooLarge | Self::Killed(_) => {
                "make the skill smaller, or build it again with optimisation"
            }
        }
    }
}

/// Components of interpreters take half a minute, and several gigabytes of addresses.
const LIMITS: Limits = Limits {
    wall_ms: 300_000,
    cpu_seconds: 600,
    address_space: 8 << 30,
    processes: 64,
    file_size: 0,
    open_files: 64,
    memory: 4 << 30,
    processor_percent: 0,
    output_bytes: 512 << 20,
};
