//! API tokens as they are recorded: everything but the token.
//!
//! Guarantees: a record holds the digest of a token and never its text; every token expires, stands for one principal, and names the user
//! who answers for it. Tokens that came from each other by rotation are one family.

use std::{collections::BTreeSet, time::Duration};

use palyra_types::{Channel, Principal, Sha256Digest, Timestamp, TokenId, WorkspaceRole, word::words};
use serde::{Deserialize, Serialize};

use crate::{member::Membership, moment, revocation::Revocation, scope::Scope, token::TokenKind};

/// An API token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiTokenRecord {
    /// Names the token.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// The kind of principal it stands for.
    pub kind: TokenKind,
    /// Whom it stands for, without roles.
    pub principal: Principal,
    /// The most that may be used through it, for a user's; agents and services have none.
    pub role: Option<WorkspaceRole>,
    /// The workspaces it may be used in.
    pub workspaces: Membership,
    /// What it may be used for.
    pub scopes: BTreeSet<Scope>,
    /// The channel that requests with it come in by; without one, that of the surface that they reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// The digest of its text.
    pub digest: Sha256Digest,
    /// The user who answers for it, without roles.
    pub minted_by: Principal,
    /// The token that it was minted with, if it was by one. It may be long gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minted_with: Option<TokenId>,
    /// The first token of its line.
    pub family: TokenId,
    /// The token that it took over from.
    pub rotated_from_token_id: Option<TokenId>,
    /// Since when it is there.
    pub created: Timestamp,
    /// From when on it is refused.
    pub expires: Timestamp,
    /// How many requests a minute its family may make.
    pub per_minute: u32,
    /// How many requests of its family may be under way at once.
    pub concurrent: u32,
    /// When it was last used.
    pub last_used: Option<Timestamp>,
    /// When, by whom and why it was revoked.
    pub revoked: Option<Revocation>,
    /// From when on it is refused because another took over.
    pub superseded_at: Option<Timestamp>,
}

impl ApiTokenRecord {
    /// From when on it is of no use any more, whatever the reason.
    #[must_use]
    pub fn over_at(&self) -> Timestamp {
        let ends = [self.revoked.as_ref().map(|revoked| revoked.at), self.superseded_at];
        ends.into_iter().flatten().fold(self.expires, Timestamp::min)
    }

    /// How long it lives from mint to expiry.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        moment::between(self.created, self.expires)
    }
}

/// A token to be minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// What people will call it.
    pub name: String,
    /// Whom it will stand for. Roles are not looked at.
    pub principal: Principal,
    /// The most that may be used through it, for a user's; none for others.
    pub role: Option<WorkspaceRole>,
    /// The workspaces it may be used in.
    pub workspaces: Membership,
    /// What it may be used for.
    pub scopes: BTreeSet<Scope>,
    /// The channel that requests with it come in by: a name of its own, and none of [`SURFACES`].
    pub channel: Option<Channel>,
    /// How long it lives: [`SHORTEST_LIFETIME`] to [`LONGEST_LIFETIME`].
    pub lifetime: Duration,
    /// How many requests a minute; [`DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE`] if nothing is said, or what the minting token has if that is less.
    pub per_minute: Option<u32>,
    /// How many requests at once; [`DEFAULT_TOKEN_CONCURRENCY`] if nothing is said, or what the minting token has if that is less.
    pub concurrent: Option<u32>,
}

/// What a new token is known by. Its text is with whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreshToken {
    /// Names the token.
    pub id: TokenId,
    /// The digest of its text.
    pub digest: Sha256Digest,
}

/// A token to be rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRotation {
    /// Which.
    pub id: TokenId,
    /// How long the old one still works: nothing to [`LONGEST_OVERLAP`].
    pub overlap: Duration,
    /// How long the new one lives; as long as the old one if nothing is said, or as long as the token that is used can give.
    pub lifetime: Option<Duration>,
}

/// A token, or a family of them, to be revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRevocation {
    /// Which.
    pub id: TokenId,
    /// It alone, or all of its family.
    pub extent: Extent,
    /// Why. May be empty.
    pub why: String,
}

words! {
    /// How much of a family is meant.
    pub enum Extent ("extent") {
        /// One token.
        One = "one",
        /// Every token that came from the same first one.
        Family = "family",
    }
}

/// How many requests a minute a token may make if nobody says otherwise.
pub const DEFAULT_TOKEN_RATE_LIMIT_PER_MINUTE: u32 = 600;

/// How many requests of a token may be under way at once if nobody says otherwise.
pub const DEFAULT_TOKEN_CONCURRENCY: u32 = 32;

/// The most requests a minute that a token can be given.
pub const MOST_PER_MINUTE: u32 = 100_000;

/// The most requests at once that a token can be given.
pub const MOST_CONCURRENT: u32 = 1_000;

/// The shortest that a token lives.
pub const SHORTEST_LIFETIME: Duration = Duration::from_secs(60);

/// The longest.
pub const LONGEST_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The longest that two tokens of a family work side by side after a rotation.
pub const LONGEST_OVERLAP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The channels that stand for a surface of the daemon. No token is bound to one of them: that would be a claim to have come another way.
pub const SURFACES: &[&str] = &["api", "cli", "compat", "console", "cron", "hook", "mcp"];

/// Whether a token can be bound to this channel.
#[must_use]
pub fn is_bindable(channel: &Channel) -> bool {
    // However it is spelt, so that nobody takes one for the other.
    !SURFACES.iter().any(|surface| surface.eq_ignore_ascii_case(channel.as_str()))
}

/// How long the record of a token stays after it is over.
pub const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);
