//! API tokens: what programs are let in by.

use palyra_types::{Channel, Timestamp, TokenId, WorkspaceName, WorkspaceRole};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// The tokens there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// In the order in which they were minted.
    pub tokens: Vec<Token>,
}

/// A token, without what makes it work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The token.
    #[schema(value_type = schema::Name)]
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// Whom it stands for.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The most that it may do, if it stands for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
    /// What it may be used for.
    pub scopes: Vec<String>,
    /// The channel that requests with it come in by. Without one it is that of the surface that they reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub channel: Option<Channel>,
    /// The workspaces it is bound to. Without them it is bound to none in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// Whether it works.
    pub state: TokenState,
    /// Who answers for it.
    pub minted_by: String,
    /// The first token of its line.
    #[schema(value_type = schema::Name)]
    pub family: TokenId,
    /// The token that it took over from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub rotated_from_token_id: Option<TokenId>,
    /// When it was minted.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// When its time is over.
    #[schema(value_type = schema::Time)]
    pub expires: Timestamp,
    /// When it stops working: then, or before that because another one took over or it was revoked.
    #[schema(value_type = schema::Time)]
    pub works_until: Timestamp,
    /// How many requests a minute it may make.
    pub per_minute: u32,
    /// How many requests it may have under way at once.
    pub concurrent: u32,
    /// When it was used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub last_used: Option<Timestamp>,
}

/// Whether a token works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It does.
    Active,
    /// Another one took over, and it works for a while longer.
    Overlapping,
    /// Another one took over.
    Superseded,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

/// A token to be minted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What to call it.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// Whom it stands for: `agent:NAME`, `service:NAME`, or whoever asks.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// What it may be used for.
    #[schema(min_items = 1, max_items = 64)]
    pub scopes: Vec<String>,
    /// How long it works, in seconds: a minute to 366 days.
    #[schema(minimum = 60, maximum = 31_622_400)]
    pub lifetime_seconds: u64,
    /// The most that it may do, if it stands for a user. Else their own role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
    /// The channel that requests with it come in by: a name of its own, and none that stands for a surface of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub channel: Option<Channel>,
    /// The workspaces it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Name>>)]
    pub workspaces: Option<Vec<WorkspaceName>>,
    /// How many requests a minute it may make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    pub per_minute: Option<u32>,
    /// How many requests it may have under way at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub concurrent: Option<u32>,
}

/// How a token is followed by a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotateToken {
    /// How long the old one works beside the new one, in seconds: at most seven days. Without it, an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800)]
    pub overlap_seconds: Option<u64>,
    /// How long the new one works, in seconds. Without it, as long as the old one was meant to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 31_622_400)]
    pub lifetime_seconds: Option<u64>,
}

/// A token that was minted, and what makes it work. That is told once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedToken {
    /// The token.
    pub token: Token,
    /// What is sent as `Authorization: Bearer …`.
    pub secret: String,
}

impl std::fmt::Debug for MintedToken {
    // SECURITY: whoever holds it is let in, so it does not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MintedToken({})", self.token.id)
    }
}

/// How much to revoke.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RevokeToken {
    /// Whether to revoke its whole line: those that it took over from, and those that took over from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub family: bool,
}

/// What tokens can be used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scopes {
    /// Each of them.
    pub scopes: Vec<TokenScope>,
}

/// Something that a token can be used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenScope {
    /// Its name.
    pub name: String,
    /// What it allows, in a sentence.
    pub about: String,
    /// The lowest role of whoever mints it, if it takes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub needs: Option<WorkspaceRole>,
    /// The part of the daemon that has to be switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<String>,
    /// The kinds of principal that can hold it.
    pub suits: Vec<String>,
}
