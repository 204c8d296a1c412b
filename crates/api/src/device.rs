//! Devices: who is paired, how another one is, and the authority that certifies them.

use palyra_types::{DeviceId, Sha256Digest, Timestamp, WorkspaceRole};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// The header that tells, with every answer on the control listener, which authorities are trusted: the digest of all of them. A device that
/// knows others asks for them.
pub const AUTHORITIES: &str = "palyra-authorities";

/// The paired devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Devices {
    /// In the order in which they were paired.
    pub devices: Vec<Device>,
}

/// A paired device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// The device.
    #[schema(value_type = schema::Name)]
    pub id: DeviceId,
    /// What people call it.
    pub name: String,
    /// Whom it stands for.
    #[schema(value_type = schema::PrincipalText)]
    pub principal: String,
    /// The most that it may do, if it stands for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
    /// Whether it is let in.
    pub state: DeviceState,
    /// The fingerprint of its key.
    pub fingerprint: String,
    /// Where it was when it was paired, as the daemon saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// What it said about itself, which nobody has checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// When it was paired.
    #[schema(value_type = schema::Time)]
    pub paired: Timestamp,
    /// Who paired it.
    pub paired_by: String,
    /// Until when its certificate is valid. It is renewed before.
    #[schema(value_type = schema::Time)]
    pub certificate_until: Timestamp,
    /// When it was heard of last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub last_seen: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Time>)]
    pub revoked: Option<Timestamp>,
    /// Whether it is the one that asks.
    pub this_one: bool,
    /// Whether it trusts every authority that will be in use.
    pub follows: bool,
}

/// Whether a device is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// It has a certificate, and has not said yet that it kept it.
    Awaiting,
    /// It is.
    Active,
    /// It is not: the authority that certified it is trusted no more. It can be paired anew.
    CutOff,
    /// It is not, and never will be again.
    Revoked,
}

/// What a device says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reported {
    /// Its name.
    pub name: String,
    /// Its operating system.
    pub os: String,
}

/// A pairing to be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewPairing {
    /// Whom the device will stand for: a member, somebody who is invited, or `agent:NAME`. Else whoever asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PrincipalText>)]
    pub principal: Option<String>,
    /// The most that the device may do. Else the role of whom it stands for, or of whoever asks, whichever is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
    /// What to call the device. Else what it calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub name: Option<String>,
}

/// A pairing that is open, and what the device needs to know. It is told once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenPairing {
    /// The pairing.
    #[schema(value_type = schema::Ulid)]
    pub id: String,
    /// What is typed on the device.
    pub pin: String,
    /// What the QR code says: address, fingerprint of the authority, one-time secret.
    pub qr: String,
    /// The QR code itself, a row of `0` and `1` for each line, without a margin.
    pub modules: Vec<String>,
    /// Where the device connects to.
    pub address: String,
    /// The fingerprint of the authority.
    pub authority: String,
    /// How many guesses there are.
    pub guesses: u32,
    /// Until when.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
    /// Whom the device will stand for.
    pub principal: String,
    /// The most that it may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Role>)]
    pub role: Option<WorkspaceRole>,
}

impl std::fmt::Debug for OpenPairing {
    // SECURITY: whoever knows the PIN or the secret can pair, so they do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenPairing({})", self.id)
    }
}

/// How a pairing stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pairing {
    /// The pairing.
    #[schema(value_type = schema::Ulid)]
    pub id: String,
    /// How it stands.
    pub state: PairingState,
    /// How many guesses are left.
    pub guesses: u32,
    /// Until when it is open.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
    /// How many seconds are left.
    pub seconds_left: u32,
    /// The device that knew the PIN or the secret, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Candidate>,
    /// Why it is over, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The device that was paired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Name>)]
    pub paired: Option<DeviceId>,
}

/// How a pairing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PairingState {
    /// It waits for a device.
    Waiting,
    /// A device knew the PIN or the secret, and waits for somebody to confirm it.
    Proved,
    /// It was confirmed, and the device is being given its certificate.
    Confirmed,
    /// The device is paired.
    Paired,
    /// It is over, and nothing was paired.
    Over,
}

/// A device that wants to be paired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// What the daemon saw itself.
    pub observed: Observed,
    /// What the device says about itself, which nobody has checked.
    pub reported: Reported,
}

/// What the daemon sees of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Observed {
    /// Where it connects from.
    pub address: String,
    /// The fingerprint of its key, which the device shows as well.
    pub fingerprint: String,
    /// The digest of its key, which a confirmation repeats.
    #[schema(value_type = schema::Digest)]
    pub key: Sha256Digest,
}

/// A device is the one that was meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmPairing {
    /// The digest of its key, as it was shown.
    #[schema(value_type = schema::Digest)]
    pub key: Sha256Digest,
}

/// How to revoke a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RevokeDevice {
    /// Whether to revoke even the last device of the last owner. Afterwards only whoever may write the daemon's state directory gets in again:
    /// without `identity/device.json` there, its next start makes a new device.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub even_the_last: bool,
}

/// What does not count any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// Devices.
    #[schema(value_type = Vec<schema::Name>)]
    pub devices: Vec<DeviceId>,
    /// Tokens.
    #[schema(value_type = Vec<schema::Name>)]
    pub tokens: Vec<palyra_types::TokenId>,
    /// How many calls were withdrawn or stopped with them.
    pub calls: u32,
}

/// A device asks for a new certificate for its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// A request for a certificate (PKCS #10, DER) in base64url without padding, signed with the key that the device has.
    #[schema(max_length = 8192)]
    pub csr: String,
}

/// A new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewed {
    /// The certificate, as PEM.
    pub certificate: String,
    /// The authorities to trust from now on, as PEM.
    pub authorities: String,
    /// Until when it is valid.
    #[schema(value_type = schema::Time)]
    pub until: Timestamp,
}

/// The authority that certifies devices and the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Authority {
    /// How far its rotation is.
    pub phase: AuthorityPhase,
    /// The fingerprint of the one that issues certificates.
    pub fingerprint: String,
    /// The digest of all that are trusted, which the daemon tells with every answer on the control listener.
    #[schema(value_type = schema::Digest)]
    pub bundle: Sha256Digest,
    /// All that are trusted, as PEM, the newest first.
    pub authorities: String,
    /// How many devices are let in.
    pub devices: u32,
    /// Those of them that would be cut off by the next step.
    #[schema(value_type = Vec<schema::Name>)]
    pub behind: Vec<DeviceId>,
}

/// How far the rotation of an authority is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityPhase {
    /// There is one authority.
    Steady,
    /// The next one is trusted, and certifies nothing yet.
    Announced,
    /// The new one certifies, and the old one is still trusted.
    Switched,
}

/// The next step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAuthority {
    /// Which step.
    pub step: RotationStep,
    /// Whether to go on though some devices would be cut off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_if_behind: bool,
}

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotationStep {
    /// Make the next authority, and have it trusted.
    Announce,
    /// Let the next one certify.
    Switch,
    /// Trust the old one no more.
    Finish,
    /// Forget the next one again, before it certifies.
    Abandon,
}
