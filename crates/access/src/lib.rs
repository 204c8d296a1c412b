//! Who there is, what they may hold, what is switched on, and how fast tokens may go.
//!
//! Guarantees: nobody gives away more than they hold; there is always an owner; only digests of secrets are kept; a change is on the disk
//! before it is in force; a document that cannot be understood whole is refused, never taken for empty.
//! Does not: judge calls (that is policy), speak HTTP or TLS, or issue certificates.
//!
//! | you look for | read |
//! |---|---|
//! | the registry that everybody shares | [`registry`], [`snapshot`] |
//! | who holds a credential, and with what effect | [`holder`] |
//! | the rules of every change | [`state`], and what each change says it did in [`change`] |
//! | who asks for a change, and why it is refused | [`actor`], [`error`] |
//! | members, devices, tokens | [`member`], [`device`], [`api_token`], [`revocation`] |
//! | roles, scopes, features | [`role`], [`scope`], [`feature`] |
//! | the text of a token | [`token`] |
//! | pace and concurrency | [`limits`] |
//! | the file and its form | [`store`], [`file_store`], [`document`] |

pub mod actor;
pub mod api_token;
mod base62;
pub mod change;
pub mod device;
pub mod document;
pub mod error;
pub mod feature;
pub mod file_store;
pub mod holder;
mod index;
pub mod label;
pub mod limits;
pub mod member;
mod moment;
pub mod registry;
pub mod revocation;
pub mod role;
pub mod scope;
pub mod snapshot;
pub mod state;
pub mod store;
pub mod token;

pub use actor::Actor;
pub use api_token::{
    ApiTokenRecord, DEFAULT_TOKEN_CONCURRENCY, DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE, Extent, FreshToken, NewToken,
    SURFACES, TokenRevocation, TokenRotation,
};
pub use device::{DeviceRecord, DeviceRevocation, DeviceState, NewDevice, Reported};
pub use error::{MissingScope, Refusal};
pub use feature::{
    FEATURE_API_TOKENS, FEATURE_COMPAT_API, FEATURE_DEVICE_PAIRING, FEATURE_MCP_GATEWAY, FEATURE_RBAC,
    FEATURE_TEAM_MODE, FeatureFlag, Switch,
};
pub use file_store::FileStore;
pub use holder::{Credential, DeviceRefusal, Holder, TokenRefusal};
pub use limits::{Bound, DEFAULT_PRINCIPAL_RATE_LIMIT_PER_MINUTE, Limited, Meter, Pass};
pub use member::{InvitationRecord, MemberRecord, Membership, NewInvitation};
pub use registry::{AccessRegistry, OpenError, Passage, Pending};
pub use revocation::Revocation;
pub use scope::Scope;
pub use snapshot::{Ended, Snapshot};
pub use state::State;
pub use store::{RegistryStore, StoreError};
pub use token::{CredentialKind, Malformed, TokenKind, TokenText};
