//! Wire types: what Palyra's surfaces say to each other and to programs.
//!
//! Guarantees: every document carries the version of its form, and there is one shape for errors. Does not: think. What the fields
//! hold is decided elsewhere; this crate only spells it.

pub mod document;
pub mod error;
pub mod health;

pub use document::Document;
pub use error::{ErrorBody, ErrorDetail};
pub use health::Health;

/// Where the local listener is unless the configuration says otherwise.
pub const DEFAULT_LOCAL_URL: &str = "http://127.0.0.1:7717";
