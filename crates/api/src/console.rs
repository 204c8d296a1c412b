//! Signing in to the console: a link that works once, and the session it is exchanged for.

use palyra_types::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A link that opens the console once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleLink {
    /// The address to open. What makes it work is behind the `#`, which browsers do not send anywhere.
    pub url: String,
    /// Until when it works.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
}

/// What stands behind the `#` of a link.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSignIn {
    /// The code of the link.
    pub code: String,
}

/// A session of the console.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSession {
    /// What the page sends as `Authorization: Bearer …`.
    pub bearer: String,
    /// Whose session it is.
    pub principal: String,
    /// Until when it holds.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
}

macro_rules! silent {
    ($($name:ident),+) => { $(
        impl std::fmt::Debug for $name {
            // SECURITY: whoever holds one is let in, so they do not belong in logs.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(stringify!($name)) }
        }
    )+ };
}

silent!(ConsoleLink, ConsoleSignIn, ConsoleSession);
