//! Who a schedule acts for: the credential that created it, and what that counts for now.
//!
//! Guarantees: a schedule acts with what its creator's credential counts for at the moment when it fires, and with nothing once that was revoked,
//! has expired or lost what it takes. A token that was rotated goes on as the one that took over from it, because they are one family.

use palyra_access::{Credential, SURFACES, Scope, Snapshot};
use palyra_gate::{Petitioner, ToolProposal};
use palyra_schedule::{Job, Owner};
use palyra_types::{Channel, DeviceId, Timestamp, TokenId, WorkspaceName, id::CallId};
use serde::{Deserialize, Serialize};

use crate::certifier::Certifier;

/// The credential that a schedule was created with, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The credential.
    pub by: HeldBy,
    /// The call that created it.
    pub call: CallId,
}

/// A credential, without what proves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeldBy {
    /// An API token.
    Token {
        /// Which.
        id: TokenId,
        /// The first token of its line.
        family: TokenId,
    },
    /// A device.
    Device {
        /// Which.
        id: DeviceId,
    },
}

impl Held {
    /// What a proposal was made with. None if it was made with nothing that could be looked at later.
    #[must_use]
    pub fn of(proposal: &ToolProposal, snapshot: &Snapshot) -> Option<Self> {
        let by = match (&proposal.token, &proposal.device) {
            (Some(id), _) => HeldBy::Token { id: id.clone(), family: snapshot.state().token(id)?.family.clone() },
            (None, Some(id)) => HeldBy::Device { id: id.clone() },
            (None, None) => return None,
        };
        Some(Self { by, call: proposal.call })
    }

    /// The credential of a job.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(owner: &Owner) -> Result<Self, Lapsed> {
        Self::deserialize(&owner.credential).map_err(|_| Lapsed::Unreadable)
    }

    /// Whoever a job acts for, with what they count for now.
    ///
    /// # Errors
    /// When they do not count any more, or for less than it takes.
    pub fn stands(
        &self,
        job: &Job,
        (snapshot, certifier): (&Snapshot, &Certifier),
        now: Timestamp,
    ) -> Result<Petitioner, Lapsed> {
        let credential = match &self.by {
            HeldBy::Token { id, family } => Credential::Token(token_of(snapshot, id, family, now)?),
            HeldBy::Device { id } => {
                let credential = Credential::Device(id.clone());
                let is_good = snapshot.is_good(&credential, now) && certifier.certifies(snapshot.state(), id);
                if is_good { credential } else { return Err(Lapsed::Device) }
            }
        };
        let holder = snapshot.standing(&credential).ok_or(Lapsed::Nobody)?;
        if holder.principal.to_string() != job.what.owner.principal {
            return Err(Lapsed::Nobody);
        }
        if holder.scopes.as_ref().is_some_and(|held| !PROPOSING.iter().any(|scope| held.contains(scope))) {
            return Err(Lapsed::Scope);
        }
        let member_of = holder.membership.bound();
        if let (Some(workspace), Some(bound)) = (&job.what.workspace, &member_of)
            && !bound.contains(workspace)
        {
            return Err(Lapsed::Workspace(workspace.clone()));
        }
        let (token, device) = match credential {
            Credential::Token(id) => (Some(id), None),
            Credential::Device(id) => (None, Some(id)),
        };
        // SECURITY: a token that is bound to a channel would otherwise leave it by way of a schedule.
        let cron = || Channel::parse(CHANNEL).map_err(|_| Lapsed::Unreadable);
        let channel = Some(holder.channel.clone().map_or_else(cron, Ok)?);
        Ok(Petitioner { principal: holder.principal.clone(), channel, device, token, member_of })
    }
}

/// Somebody as they would be when a schedule of theirs fires: on the channel that their token is bound to, or on that of schedules.
#[must_use]
pub fn as_scheduled(by: Petitioner) -> Petitioner {
    let is_bound = by.channel.as_ref().is_some_and(|channel| !SURFACES.contains(&channel.as_str()));
    match is_bound {
        true => by,
        false => Petitioner { channel: Channel::parse(CHANNEL).ok(), ..by },
    }
}

/// The token of a family that counts now, the newest if there are several.
fn token_of(snapshot: &Snapshot, id: &TokenId, family: &TokenId, now: Timestamp) -> Result<TokenId, Lapsed> {
    let is_good = |id: &TokenId| snapshot.is_good(&Credential::Token(id.clone()), now);
    let good = snapshot.state().tokens().filter(|token| token.family == *family && is_good(&token.id));
    good.max_by_key(|token| token.created).map(|token| token.id.clone()).ok_or_else(|| {
        match snapshot.state().token(id) {
            Some(token) if token.revoked.is_some() => Lapsed::Revoked,
            Some(token) if token.expires <= now => Lapsed::Expired,
            _ => Lapsed::Token,
        }
    })
}

/// Why a schedule acts for nobody any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lapsed {
    /// The token was revoked.
    #[error("the token that created it was revoked")]
    Revoked,
    /// The token has expired.
    #[error("the token that created it has expired")]
    Expired,
    /// The token does not count, for another reason.
    #[error("the token that created it does not count any more")]
    Token,
    /// The device does not count.
    #[error("the device that created it does not count any more")]
    Device,
    /// The principal does not count.
    #[error("whoever created it is not let in any more")]
    Nobody,
    /// The token may propose no calls.
    #[error("the token that created it may propose no calls any more")]
    Scope,
    /// The workspace is not theirs any more.
    #[error("whoever created it does not belong to the workspace `{0}` any more")]
    Workspace(WorkspaceName),
    /// What is kept cannot be read.
    #[error("what it was created with cannot be read")]
    Unreadable,
}

/// The surface that scheduled calls come in by.
const CHANNEL: &str = "cron";

/// The scopes of which a token needs one to have calls proposed for it.
const PROPOSING: [Scope; 2] = [Scope::CallsCreate, Scope::McpCall];
