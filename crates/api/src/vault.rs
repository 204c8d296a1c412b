//! The vault: what is known of secrets and where they may go. No answer ever holds a value.
//!
//! Guarantees: what carries a value or a passphrase to the daemon is wiped when it is dropped, and prints nothing of it.

use std::fmt;

use palyra_types::{HostName, SecretRef, Timestamp, ToolName};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use zeroize::Zeroizing;

use crate::schema;

/// How the vault is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VaultStatus {
    /// Whether it is open.
    pub state: VaultState,
    /// Who holds its key, if that is known: `key_file`, `passphrase`, `secret_service`, `keychain` or `dpapi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Whether there is no vault yet, so that the first passphrase makes one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
    /// Why it is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// How many changes it has had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The how-manieth key it is sealed under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u64>,
    /// How many secrets there are, of those that whoever asks may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<u32>,
}

/// Whether the vault is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VaultState {
    /// It is.
    Open,
    /// It waits for a passphrase or for a keyring, and nothing is wrong.
    Locked,
    /// Something is wrong.
    Closed,
}

/// What is known of all secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// In the order of their names.
    pub secrets: Vec<Secret>,
}

/// What is known of a secret. Never its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Where it belongs and what it is called.
    #[schema(value_type = schema::SecretText)]
    pub secret: SecretRef,
    /// The version that counts.
    pub version: u32,
    /// When that was put.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// When it may be used no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub expires_at: Option<Timestamp>,
    /// Whether it may be used no more.
    pub has_expired: bool,
    /// After how many days its value should be another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_after_days: Option<u32>,
    /// Whether its value is older than that.
    pub is_due: bool,
    /// What somebody wrote about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The versions that are kept, newest first.
    pub versions: Vec<SecretVersion>,
    /// Where it may go.
    pub bindings: Vec<Binding>,
}

/// A version of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretVersion {
    /// Counts from one.
    pub version: u32,
    /// When it was put.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
}

/// A value for a secret: its first one, or another version.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSecret {
    /// The value: at most 65536 bytes.
    #[schema(value_type = String, format = Password)]
    pub value: Zeroizing<String>,
    /// How the value is written here.
    #[serde(default)]
    pub encoding: Encoding,
    /// When it may be used no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub expires_at: Option<Timestamp>,
    /// After how many days it should be another one; as before if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 36_500)]
    pub rotate_after_days: Option<u32>,
    /// What is to be known about it; as before if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 512)]
    pub note: Option<String>,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Encoding {
    /// As it is.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// In base 64, for values that are no text.
    #[serde(rename = "base64")]
    Base64,
}

/// A version that was put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptSecret {
    /// The secret.
    #[schema(value_type = schema::SecretText)]
    pub secret: SecretRef,
    /// Its version.
    pub version: u32,
}

/// How much of a secret to remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveSecret {
    /// Only this version. Without it, all of them, and where the secret may go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// Where a secret is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    /// The secret.
    #[schema(value_type = schema::SecretText)]
    pub secret: SecretRef,
    /// The host, always by TLS.
    #[schema(value_type = String, example = "api.example.org")]
    pub host: HostName,
    /// Its port. Without it, 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65_535)]
    pub port: Option<u16>,
    /// Where in a request: `header:NAME`, `query:NAME` or `body`. Without any, `header:authorization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<String>,
    /// What the path has to begin with. Without any, all paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The tools that may send it. Without any, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<schema::Name>)]
    pub tools: Vec<ToolName>,
}

/// Where a secret may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    /// What it is known by.
    pub id: u64,
    /// The secret.
    #[schema(value_type = schema::SecretText)]
    pub secret: SecretRef,
    /// When it was made.
    #[schema(value_type = schema::Time)]
    pub created: Timestamp,
    /// The host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Where in a request.
    pub positions: Vec<String>,
    /// What the path has to begin with; any will do if there are none.
    pub paths: Vec<String>,
    /// The tools that may send it; any will do if there are none.
    pub tools: Vec<String>,
    /// All of that in words.
    pub words: String,
}

/// What opens the vault.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UnlockVault {
    /// The passphrase, where one holds the key. Whoever else holds it is asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Password)]
    pub passphrase: Option<Zeroizing<String>>,
}

/// Who can open a backup: one of the two.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExportVault {
    /// Whoever has a key that one of these belongs to: `age1…`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub recipients: Vec<String>,
    /// Whoever knows this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Password)]
    pub passphrase: Option<Zeroizing<String>>,
}

/// What a backup brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedVault {
    /// The versions that count now.
    pub secrets: Vec<KeptSecret>,
    /// How many bindings were made.
    pub bindings: u32,
    /// How much was left out, because it is there already or has expired.
    pub left_out: u32,
}

macro_rules! silent {
    ($($name:ident),+) => { $(
        impl fmt::Debug for $name {
            // SECURITY: it holds a value or a passphrase, which does not belong in logs.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(stringify!($name)) }
        }
    )+ };
}

silent!(PutSecret, UnlockVault, ExportVault);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_value_prints_nothing_of_it() {
        let put: PutSecret = serde_json::from_str(r#"{"value":"hunter2"}"#).unwrap();
        let unlock: UnlockVault = serde_json::from_str(r#"{"passphrase":"hunter2"}"#).unwrap();
        let export: ExportVault = serde_json::from_str(r#"{"passphrase":"hunter2"}"#).unwrap();
        assert_eq!(format!("{put:?} {unlock:?} {export:?}"), "PutSecret UnlockVault ExportVault");
        assert_eq!(put.encoding, Encoding::Utf8);
    }
}
