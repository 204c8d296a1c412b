//! How names and numbers of the vocabulary look in the OpenAPI document. Nothing here is ever built; `palyra-types` parses the real ones.

use utoipa::ToSchema;

/// An id: a ULID, 26 characters of Crockford's base 32, so that ids sort by the time they were made.
#[derive(ToSchema)]
#[schema(pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$", example = "01J9ZC1KQ8Z3V5T6W7X8Y9ZABC")]
pub struct Ulid(#[expect(dead_code, reason = "it is there to be described")] String);

/// A SHA-256 digest in hexadecimal.
#[derive(ToSchema)]
#[schema(pattern = "^[0-9a-f]{64}$")]
pub struct Digest(#[expect(dead_code, reason = "it is there to be described")] String);

/// A moment, as RFC 3339 in UTC.
#[derive(ToSchema)]
#[schema(format = DateTime)]
pub struct Time(#[expect(dead_code, reason = "it is there to be described")] String);

/// Bytes, as they are.
#[derive(ToSchema)]
#[schema(format = Binary)]
pub struct Bytes(#[expect(dead_code, reason = "it is there to be described")] String);

/// A name, such as `process.run`.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,127}$")]
pub struct Name(#[expect(dead_code, reason = "it is there to be described")] String);

/// Whoever asks, as `kind:name`.
#[derive(ToSchema)]
#[schema(example = "agent:local")]
pub struct PrincipalText(#[expect(dead_code, reason = "it is there to be described")] String);

/// What somebody may do, from most to least.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Owner,
    /// Everything but what is about owners.
    Admin,
    /// Answers approvals and reads.
    Operator,
}

/// An absolute path without `.`, `..` or empty parts.
#[derive(ToSchema)]
#[schema(example = "/home/ada/shop")]
pub struct Path(#[expect(dead_code, reason = "it is there to be described")] String);

/// Where a secret belongs: `global`, `workspace:NAME`, `agent:NAME`, `skill:ID` or `session:ID`.
#[derive(ToSchema)]
#[schema(
    pattern = "^(global|(workspace|skill):[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,127}|agent:[A-Za-z0-9][A-Za-z0-9._:/+-]{0,127}|session:[0-7][0-9A-HJKMNP-TV-Z]{25})$",
    example = "global"
)]
pub struct ScopeText(#[expect(dead_code, reason = "it is there to be described")] String);

/// Whose something is that is kept: `global`, `agent:NAME`, `user:NAME`, `service:NAME`, `workspace:NAME` or `session:ID`.
#[derive(ToSchema)]
#[schema(
    pattern = "^(global|workspace:[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,127}|(agent|user|service):[A-Za-z0-9][A-Za-z0-9._:/+-]{0,127}|session:[0-7][0-9A-HJKMNP-TV-Z]{25})$",
    example = "agent:local"
)]
pub struct KeptScopeText(#[expect(dead_code, reason = "it is there to be described")] String);

/// What a secret is called within its scope.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", example = "github")]
pub struct SecretNameText(#[expect(dead_code, reason = "it is there to be described")] String);

/// A secret, as `scope/name`: where it belongs and what it is called.
#[derive(ToSchema)]
#[schema(
    pattern = "^(global|(workspace|skill):[A-Za-z0-9][A-Za-z0-9._:/+@-]{0,127}|agent:[A-Za-z0-9][A-Za-z0-9._:/+-]{0,127}|session:[0-7][0-9A-HJKMNP-TV-Z]{25})/[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    example = "global/github"
)]
pub struct SecretText(#[expect(dead_code, reason = "it is there to be described")] String);

/// What an MCP server is called.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,39}$", example = "github")]
pub struct McpName(#[expect(dead_code, reason = "it is there to be described")] String);

/// What a skill is called: its publisher and its name.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z0-9][a-z0-9-]{0,47}/[a-z0-9][a-z0-9-]{0,47}$", example = "acme/text-diff")]
pub struct SkillText(#[expect(dead_code, reason = "it is there to be described")] String);

/// The name of a publisher of skills.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z0-9][a-z0-9-]{0,47}$", example = "acme")]
pub struct PublisherText(#[expect(dead_code, reason = "it is there to be described")] String);

/// The id of a key, as minisign shows it.
#[derive(ToSchema)]
#[schema(pattern = "^[0-9A-F]{16}$", example = "E7620F1842B4E81F")]
pub struct KeyId(#[expect(dead_code, reason = "it is there to be described")] String);
