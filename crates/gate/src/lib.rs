//! The path of a call: decide, approve, execute, attest.
//!
//! Guarantees: nothing runs but by a [`Permit`], and a permit exists only after policy allowed the call, a person approved it where policy
//! asks, and both are durable in the journal; any error on the way means that nothing runs; what ran has a signed receipt.
//! Does not: speak HTTP, hold policies or keep records itself. The daemon, `palyra-policy` and `palyra-journal` do.
//!
//! | you look for | read |
//! |---|---|
//! | the whole path in one file | `conduct` |
//! | the entry | [`gate`] |
//! | what is proposed | [`proposal`] |
//! | what a tool is, and what it would do | [`tool`] |
//! | the tools there are, one file each | [`tools`] |
//! | how files are reached | [`workspace`] |
//! | how a call would run | [`plan`], [`config`], `settings` |
//! | what exactly is approved, run and attested | [`action`] |
//! | step one: decide | [`decide`], [`posture`], [`credentials`] |
//! | how much is under way at once | `admission` |
//! | step two: approve | `question`, [`approval`], [`risk`], [`deadline`] |
//! | the permission to run | [`permit`] |
//! | step three: execute | [`execute`], `fetch`, [`output`] |
//! | what the tiers hold on this machine | [`containment`] |
//! | step four: attest | [`attest`] |
//! | the vault, and secrets that calls use | [`safekeeping`], [`secret`] |
//! | skills: installed, run, run again | [`skills`] |
//! | requests to models, and which tools are worth being offered | [`models`] |
//! | what parts of the daemon do for calls: memory, schedules, MCP servers | [`service`] |
//! | what another program asks before it does it itself | [`authorize`], [`foreign`] |
//! | programs that the daemon speaks with: MCP servers that it starts | [`servers`] |
//! | why a call did not run | [`refusal`] |
//! | what is made of calls that a dead daemon left | [`recover`] |

mod account;
pub mod action;
mod admission;
pub mod approval;
mod arming;
pub mod attest;
pub mod authorize;
mod cancel;
mod conduct;
pub mod config;
pub mod containment;
pub mod credentials;
pub mod deadline;
pub mod decide;
mod door;
mod elsewhere;
pub mod execute;
mod fetch;
pub mod foreign;
pub mod gate;
mod mcp;
pub mod memory;
pub mod models;
pub mod output;
mod permit;
pub mod petitioner;
pub mod plan;
pub mod posture;
pub mod proposal;
mod question;
mod reading;
pub mod recover;
pub mod refusal;
pub mod risk;
pub mod safekeeping;
pub mod secret;
pub mod servers;
pub mod service;
mod settings;
pub mod skills;
pub mod tool;
pub mod tools;
mod waiting;
mod way;
pub mod workspace;

pub use approval::{
    Answer, AnswerError, Answerer, ApprovalPromptRecord, ApprovalRecord, CachedApproval, DecisionScope,
    PendingToolApproval, PresencePin, RefusalRecord, StandingApproval, apply_tool_approval_outcome,
    resolve_cached_tool_approval_for_proposal,
};
pub use attest::{Completed, Ending, NetworkUse, Receipt, SkillAttestation, ToldReason, ToolAttestation};
pub use authorize::{Authorized, OnAsk};
pub use config::{GateConfig, ToolCallConfig};
pub use containment::Containment;
pub use credentials::Credentials;
pub use decide::{Security, ToolDecision, evaluate_tool_proposal_security};
pub use execute::{Executed, Executor, LiveOutput, Reports, execute_tool_call};
pub use foreign::{Elsewhere, ElsewhereWork, Wants};
pub use gate::{Accepted, Gate, OpenError, Parts};
pub use output::Output;
pub use palyra_journal::state::CallKey;
pub use palyra_sandbox::{
    Reason,
    egress::{Connector, Forbidden, Resolve, SystemResolver},
    tier_c::probe::Missing,
};
pub use permit::{Approver, Permit};
pub use petitioner::Petitioner;
pub use posture::PostureSetting;
pub use proposal::{ToolProposal, Within};
pub use recover::Recovered;
pub use refusal::{CancelCause, Refusal};
pub use servers::{RunningServer, ServerAddress, ServerEnd, ServerHandle, ServerInput, ServerOutput, ServerPlan};
pub use service::{
    Asker, Deputy, Performed, Performing, Service, ServiceIntent, ServiceOperation, ServiceOrder, ServiceTerms,
    ServiceTool, ServiceWork, StopSignal,
};
pub use skills::TIER_A_EXECUTOR;
pub use tool::{
    FetchWork, FileWork, HostPort, IntendError, Intent, Look, Place, ProcessWork, Report, Script, SearchPath,
    SkillDirectory, SkillTerms, SkillWork, Tool, ToolDefinition, Work,
};
pub use tools::{ArgumentsError, CallError, FileError, OutputCaps, Registry, RegistryError};
pub use workspace::{Workspace, WorkspaceError};
