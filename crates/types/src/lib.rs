//! The vocabulary of Palyra.
//!
//! Every other crate speaks in these types. They are parsed once, at the edge, and carry their guarantees from there on:
//! a [`ToolName`] is a name, an [`AbsolutePath`] has no `..`, a [`HostName`] has one spelling. Nothing here performs I/O,
//! apart from [`clock::SystemClock`], which reads the time.
//!
//! | you look for | read |
//! |---|---|
//! | who asks | [`principal`] |
//! | what they ask for | [`action`], [`resource`] |
//! | secrets, and where they belong | [`vault`] |
//! | names, ids and keys of requests | [`name`], [`id`], [`idempotency`] |
//! | what a tool can do, and how freely | [`tool`] |
//! | where it runs | [`sandbox`] |
//! | what is run | [`process`] |
//! | paths, hosts and where HTTP is spoken | [`path`], [`host`], [`web_origin`] |
//! | text that is safe to show to a person | [`visible`] |
//! | types that are written as text | [`text`] |
//! | time and randomness | [`clock`], [`entropy`] |
//! | where the state directory is | [`home`] |
//! | digests | [`digest`] |
//! | JSON that everybody reads alike | [`json`] |
//! | a registry in a file | [`registry_document`] |

pub mod action;
pub mod clock;
pub mod digest;
pub mod entropy;
pub mod home;
pub mod host;
pub mod id;
pub mod idempotency;
pub mod json;
pub mod name;
pub mod path;
pub mod principal;
pub mod process;
pub mod registry_document;
pub mod resource;
pub mod sandbox;
pub mod text;
pub mod tool;
pub mod vault;
pub mod visible;
pub mod web_origin;
pub mod word;

pub use action::Action;
pub use clock::{Clock, Timestamp};
pub use digest::{RunningDigest, Sha256Digest};
pub use entropy::Entropy;
pub use home::StateHome;
pub use host::HostName;
pub use idempotency::IdempotencyKey;
pub use json::{Json, JsonError, JsonObject};
pub use name::{
    Channel, DeviceId, NameError, ObjectId, PolicyId, PrincipalId, SecretName, SkillId, TokenId, ToolName,
    WorkspaceName,
};
pub use path::AbsolutePath;
pub use principal::{Principal, PrincipalKind, WorkspaceRole};
pub use process::Process;
pub use resource::{ObjectKind, Resource};
pub use sandbox::{EgressEnforcementMode, SandboxTier};
pub use tool::{Posture, ToolCapability, ToolMetadata};
pub use vault::{SecretRef, VaultScope};
pub use web_origin::WebOrigin;
