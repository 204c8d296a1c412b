//! Signed packages of skills: what is in them, what they ask for, and who signed them.
//!
//! Guarantees: what is read here is data. A package that is malformed, ambiguous or larger than its bounds is refused with the reason, and a
//! manifest that asks for less than its program imports is refused.
//! Does not: run anything, or decide what is granted. The `skills` crate runs, and people grant.
//!
//! | you look for | read |
//! |---|---|
//! | the way from bytes to a package | [`package`] |
//! | what a skill says about itself | [`manifest`], [`schema`], [`id`] |
//! | what a skill asks for and is granted | [`capability`], [`grants`] |
//! | how much it may use | [`limits`] |
//! | what its program really imports | [`imports`] |
//! | the file format | [`archive`] |
//! | who signed it, and who is trusted | [`signature`], [`publishers`] |
//! | its tests | [`golden`] |

pub mod archive;
pub mod capability;
pub mod golden;
pub mod grants;
pub mod id;
pub mod imports;
pub mod limits;
pub mod manifest;
pub mod package;
pub mod publishers;
pub mod schema;
pub mod signature;

pub use capability::{Capabilities, Destination, FileAccess, FileGrant, Grants, KvQuota};
pub use golden::GoldenCase;
pub use grants::{CapabilityDiff, GrantError, Offer, Unchosen};
pub use id::{PackageId, PublisherName};
pub use imports::{Form, Need, Required, World};
pub use limits::{Metering, SkillLimits};
pub use manifest::{Manifest, SkillTool};
pub use package::{Built, Package, PackageError, Sources, intake};
pub use publishers::{Trust, TrustOrigin, TrustedKey, TrustedPublishers};
pub use signature::{PublisherKey, SecretSigningKey, SignatureError, Verified, verify};
