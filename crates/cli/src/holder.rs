//! Whom a device or a token stands for, as people type it: `user:ada`, `agent:ci`, `service:backup`.

use std::{fmt, str::FromStr};

use palyra_types::{Principal, principal::PrincipalError};

/// A principal without a role: what it may do at most is said beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder(Principal);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Holder {
    type Err = HolderError;
    fn from_str(text: &str) -> Result<Self, HolderError> {
        let principal = Principal::parse(text)?;
        if principal.roles().is_empty() { Ok(Self(principal)) } else { Err(HolderError::HasRole) }
    }
}

/// Why nobody can be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HolderError {
    /// Not a principal.
    #[error(transparent)]
    Principal(#[from] PrincipalError),
    /// A role where none belongs.
    #[error("a role is given with --role")]
    HasRole,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_would_be_lost_is_refused() {
        assert_eq!(Holder::from_str("agent:ci").map(|holder| holder.to_string()), Ok("agent:ci".to_owned()));
        assert_eq!(Holder::from_str("user:ada@owner"), Err(HolderError::HasRole));
        assert!(matches!(Holder::from_str("ada"), Err(HolderError::Principal(_))));
    }
}
