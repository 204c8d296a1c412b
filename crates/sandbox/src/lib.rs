//! Runs plans: tier B (limits) and, on Linux, everything below it that touches the kernel.
//!
//! A [`ProcessPlan`] says completely what is to run; a [`SandboxProcessRunner`] runs it and yields an [`Outcome`], which says how
//! it ended, what it wrote and which [`Layer`]s really held it. [`run_constrained_process`] is the short way through.
//!
//! ```text
//! daemon ── posix_spawn ──► init ── fork ──► process that waits ── exec ──► program ──► its children
//!    ├── control socket ─────┘ └── subreaper: every orphan comes back to it
//!    └── order ───────────────────────────────────┘
//! ```
//! The init is a small program without libraries, built with this crate and kept in a sealed memory file. It waits for a call before
//! there is one, with the process that becomes the program, so the daemon never forks, whatever it holds in memory; and it ends the
//! whole tree when the program ends, when the time is up, when it is asked to, and when the daemon is gone.
//!
//! What a run may reach under strict egress is in [`egress`], which serves the sockets of a network namespace that has nothing else.
//!
//! Guarantees: a plan runs as it says or not at all; the program and its working directory are those that were checked, whatever
//! their paths lead to by then; nothing outlives a call; output is bounded in memory and never stops the program; the daemon's own
//! state directory is hidden where the kernel has Landlock.
//! Does not: decide whether a plan may run. That is for the crate that calls this one. Tier B isolates nothing else:
//! [`TIER_B_DOES_NOT`] says so wherever it is attested.

// What both sides of the protocol compile names its collections by this.
extern crate alloc;

#[path = "../init/blueprint.rs"]
#[allow(dead_code, reason = "the other side reads blueprints")]
mod blueprint;
pub mod egress;
mod environment;
mod error;
mod executable;
mod first_line;
mod guard;
mod image;
mod init;
mod inits;
mod orphans;
mod outcome;
mod ownership;
mod plan;
mod private;
#[path = "../init/protocol.rs"]
#[allow(dead_code, reason = "the other side reads orders and writes reports")]
mod protocol;
mod reason;
mod runner;
mod running;
mod stamp;
mod stream;
mod supervision;
pub mod tier_c;
mod walls;
#[cfg(weak)]
mod weak;
mod wiring;

pub use environment::{ForbiddenVariable, check_variable};
pub use error::{SandboxProcessRunError, SandboxProcessRunErrorKind};
pub use executable::{Executable, LARGEST_PROGRAM, PinnedFile, ProgramFile, ProgramFiles};
pub use outcome::{Captured, Ended, Layer, Namespace, Outcome, StopCause, Usage};
pub use ownership::is_changeable;
pub use plan::{Containment, EgressHost, EgressPlan, EnclosurePlan, Interpreters, Limits, ProcessPlan, UnixSockets};
pub use private::{PrivateFile, PrivateVariable, SECRET_FILES};
pub use reason::Reason;
pub use runner::{
    Door, InterceptedBy, Prepared, RunInput, SandboxProcessRunner, TIER_B_DOES_NOT, TIER_B_EXECUTOR, TIER_C_DOES_NOT,
    executor_of, not_enforced_by, run_constrained_process,
};
pub use running::{Aftermath, RunningProcess, Stopper};
pub use stream::{OutputChunk, OutputStream};
pub use wiring::{ProgramEnds, Streams};
