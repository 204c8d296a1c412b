//! Cedar decisions that explain themselves: request and context in, decision with reasons out.
//!
//! Guarantees: deny by default; any error denies; the baseline cannot be removed or shadowed; every answer names its reason.
//! Does not: ask a person, run anything, or keep anything. That is `palyra-gate`.
//!
//! ```
//! use palyra_policy::{Engine, PolicyRequest, PolicyRequestContext, Preset, Verdict};
//! use palyra_types::{Action, Principal, Resource, Timestamp};
//!
//! let engine = Engine::new(&[Preset::Cautious.source()])?;
//! let request = PolicyRequest {
//!     principal: Principal::parse("agent:claude")?,
//!     action: Action::ToolExecute,
//!     resource: Resource::parse("tool:process.run")?,
//! };
//! let context = PolicyRequestContext::at(Timestamp::parse("2026-03-02T09:30:00Z")?);
//! let decision = engine.decide(&request, &context, &Preset::Cautious.config()?);
//! assert_eq!(decision.verdict, Verdict::Ask);
//! assert_eq!(decision.reason(), "the tool asks each time unless its posture is to run at once [baseline.execute-ask]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | you look for | read |
//! |---|---|
//! | how a verdict is made | [`engine`] |
//! | what is asked | [`request`] |
//! | what is answered | [`decision`] |
//! | what a policy set must be to be loaded | [`set`], [`problem`] |
//! | why a big set is not slow | `slice`, `demand` |
//! | why a request was denied, and what would change that | [`explain`], [`near_miss`], `suggest` |
//! | what is worth being offered to somebody | `prospect` |
//! | policy tests, comparisons, formatting | [`suite`], [`compare`], [`corpus`], [`format`] |
//! | the baseline and the presets | [`baseline`] |

mod approval_lint;
pub mod baseline;
mod cedar_request;
pub mod compare;
mod condition;
pub mod corpus;
pub mod decision;
mod demand;
pub mod directory;
pub mod document;
pub mod engine;
pub mod explain;
mod facts;
pub mod format;
mod literal_lint;
pub mod near_miss;
pub mod problem;
mod prospect;
mod question;
pub mod request;
pub mod set;
mod slice;
pub mod source;
mod subject_lint;
mod suggest;
pub mod suite;
mod tree;
mod vocabulary;

pub use baseline::{DEFAULT_POLICY_SRC, DataError, Preset, builtin_tools};
pub use cedar_request::RequestError;
pub use decision::{CallDecision, Cause, Decision, Effect, PartDecision, PolicyInfo, Verdict};
pub use document::{DocumentError, RequestDocument};
pub use engine::{Engine, evaluate_with_context};
pub use explain::Explanation;
pub use facts::ProcessFacts;
pub use near_miss::NearMiss;
pub use problem::{Finding, LoadError, Problem};
pub use request::{
    Allowlist, CallRequest, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, PrincipalName, Touch,
};
pub use set::Snapshot;
pub use source::{Layer, Location, SourceFile};
pub use vocabulary::SCHEMA_SRC;
