//! Why a change of the registry is refused.
//!
//! Guarantees: each rule has its own refusal; what happened and what to do are separate texts.

use std::time::Duration;

use palyra_types::{Channel, DeviceId, ObjectId, PrincipalId, PrincipalKind, Timestamp, TokenId, WorkspaceRole};

use crate::{feature::FeatureFlag, label::LabelError, scope::Scope};

/// A token was used for something it is not for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token lacks the scope `{scope}`")]
pub struct MissingScope {
    /// The scope that is needed.
    pub scope: Scope,
}

impl MissingScope {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        let by = match self.scope.needs() {
            Some(role) => format!("; whoever mints it needs the role {role} or a higher one"),
            None => String::new(),
        };
        let feature = match self.scope.feature() {
            Some(feature) => format!("; it counts only while the feature {feature} is on"),
            None => String::new(),
        };
        format!("use a token that was minted with the scope {}{by}{feature}", self.scope)
    }
}

/// Why a change is refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An agent asked.
    #[error("an agent does not change who may do what")]
    Agent,
    /// Whoever asked has no role that counts.
    #[error("this needs a role, and there is none that counts")]
    NoRole,
    /// Whoever asked stands too low.
    #[error("this needs the role {needed} or a higher one")]
    Above {
        /// The lowest role that would do.
        needed: WorkspaceRole,
    },
    /// The token of whoever asked lacks a scope.
    #[error(transparent)]
    Scope(#[from] MissingScope),
    /// The feature that this belongs to is off.
    #[error("the feature {0} is off")]
    FeatureOff(FeatureFlag),
    /// A feature cannot be on while another is off.
    #[error("the feature {feature} needs the feature {needs}")]
    FeatureNeeds {
        /// The feature that is on, or is to be.
        feature: FeatureFlag,
        /// The one that is off, or is to be.
        needs: FeatureFlag,
    },
    /// A name or a reason that cannot stand.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// As many as can be kept.
    #[error("there are {most} {what} already, which is the limit")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there can be.
        most: usize,
    },

    /// There would be no owner left.
    #[error("`{0}` is the last owner")]
    LastOwner(PrincipalId),
    /// Nobody of that name is a member.
    #[error("`{0}` is not a member")]
    NoMember(PrincipalId),
    /// They are a member already.
    #[error("`{0}` is a member already")]
    AlreadyMember(PrincipalId),
    /// They are invited already.
    #[error("`{0}` is invited already")]
    AlreadyInvited(PrincipalId),
    /// No such invitation.
    #[error("there is no invitation `{0}`")]
    NoInvitation(String),
    /// The id is taken.
    #[error("there is an invitation `{0}` already")]
    InvitationKnown(ObjectId),
    /// The time to join is over.
    #[error("the invitation of `{0}` is over")]
    InvitationOver(PrincipalId),
    /// An invitation that lasts too short or too long.
    #[error("an invitation lasts a minute to 30 days, not {}", plain(.0))]
    InvitationLifetime(Duration),
    /// An owner belongs to all workspaces.
    #[error("an owner belongs to all workspaces")]
    OwnerEverywhere,
    /// Workspaces that whoever asked does not belong to, or does not reach by what they use.
    #[error("this concerns workspaces beyond those of whoever asks")]
    OutsideWorkspaces,
    /// A role that a token was to give.
    #[error("a role is given by a person, not by a token")]
    RoleInPerson,

    /// No such device.
    #[error("there is no device `{0}`")]
    NoDevice(DeviceId),
    /// The id is taken.
    #[error("there is a device `{0}` already")]
    DeviceKnown(DeviceId),
    /// The key is, or was, that of another device.
    #[error("the key belongs to the device `{0}`")]
    KeyKnown(DeviceId),
    /// It does not wait to be activated.
    #[error("the device `{0}` is not waiting to be activated")]
    NotAwaiting(DeviceId),
    /// It does not work.
    #[error("the device `{0}` is not active")]
    NotActive(DeviceId),
    /// It was revoked before.
    #[error("the device `{0}` is revoked already")]
    DeviceRevoked(DeviceId),
    /// No owner would get in any more.
    #[error("`{0}` is the last device by which an owner gets in")]
    LastDevice(DeviceId),
    /// A device that a token was to pair.
    #[error("a device is paired by a person, not by a token")]
    InPerson,
    /// A user's device without a role.
    #[error("a user's device needs a role, the most that may be used through it")]
    NoDeviceRole,
    /// A role for an agent or a service.
    #[error("a role belongs to a user, not to a kind `{0}`")]
    RoleOfNoUser(PrincipalKind),

    /// No such token.
    #[error("there is no token `{0}`")]
    NoToken(TokenId),
    /// The id or the digest is taken.
    #[error("there is a token `{0}` already")]
    TokenKnown(TokenId),
    /// A user's token for somebody else.
    #[error("a user's token stands for whoever mints it, not for `{0}`")]
    NotYourself(PrincipalId),
    /// A token for nothing.
    #[error("a token needs at least one scope")]
    NoScopes,
    /// A scope that this kind of principal never holds.
    #[error("a token of kind `{kind}` cannot hold the scope {scope}")]
    ScopeUnsuited {
        /// The scope.
        scope: Scope,
        /// The kind.
        kind: PrincipalKind,
    },
    /// A scope that the role does not reach.
    #[error("the scope {scope} needs the role {needed} or a higher one")]
    ScopeAbove {
        /// The scope.
        scope: Scope,
        /// The lowest role that would do.
        needed: WorkspaceRole,
    },
    /// A token that lives too short or too long.
    #[error("a token lives a minute to 366 days, not {}", plain(.0))]
    Lifetime(Duration),
    /// A channel that says by which surface a request came.
    #[error("the channel `{0}` stands for a surface of the daemon, and no token is bound to one")]
    Surface(Channel),
    /// A channel beyond the one that the token that is used is bound to.
    #[error("the token that is used is bound to the channel `{0}`, and so is whatever it mints")]
    OtherChannel(Channel),
    /// Two tokens side by side for too long.
    #[error("the old token works for at most 7 days after a rotation, not {}", plain(.0))]
    Overlap(Duration),
    /// A pace that cannot be given.
    #[error("a token makes 1 to 100000 requests a minute, not {0}")]
    PerMinute(u32),
    /// A number of requests at once that cannot be given.
    #[error("a token has 1 to 1000 requests under way at once, not {0}")]
    Concurrent(u32),
    /// A token that would end after the one that is used to make it.
    #[error("the new token would end at {ends}, after the one that is used to make it, which ends at {most}")]
    Outlasts {
        /// When it would end.
        ends: Timestamp,
        /// When it can end at the latest.
        most: Timestamp,
    },
    /// A token that would be faster than the one that is used to make it.
    #[error("the new token would have {asked} {what}, and the one that is used to make it has {most}")]
    Outruns {
        /// What there would be too many of.
        what: &'static str,
        /// How many were asked for.
        asked: u32,
        /// How many there can be.
        most: u32,
    },
    /// Whoever asked uses a token that nobody knows the bounds of.
    #[error("the token that is used is not known here")]
    TokenUnknown,
    /// Expired or revoked.
    #[error("the token `{0}` works no more")]
    NotLive(TokenId),
    /// Another took over from it.
    #[error("the token `{0}` was rotated already")]
    AlreadyRotated(TokenId),
    /// It was revoked before.
    #[error("the token `{0}` is revoked already")]
    TokenRevoked(TokenId),
}

impl Refusal {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Scope(missing) => missing.advice(),
            Self::Label(error) => error.advice().to_owned(),
            Self::FeatureOff(feature) => format!("ask an admin to switch the feature {feature} on"),
            Self::FeatureNeeds { feature, needs } => format!("switch {needs} on first, or {feature} off"),
            _ => self.plain_advice().to_owned(),
        }
    }

    const fn plain_advice(&self) -> &'static str {
        match self {
            Self::Agent => "let a person do it",
            Self::NoRole => "ask an owner for a role; while the feature rbac is off, only owners have one",
            Self::Above { .. } => "ask somebody of that role to do it",
            Self::ScopeAbove { .. } => "leave the scope out, or ask somebody of that role to mint the token",
            Self::Full { .. } => "remove some that nobody needs any more",
            Self::LastOwner(_) => "make somebody else an owner first",
            Self::NoMember(_) => "look at the list of members; somebody new has to be invited",
            Self::AlreadyMember(_) => "change their role or their workspaces instead",
            Self::AlreadyInvited(_) => "withdraw the invitation first",
            Self::NoInvitation(_) => "look at the list of invitations",
            Self::InvitationOver(_) => "ask for a new invitation",
            Self::InvitationLifetime(_) | Self::Lifetime(_) => "choose a time within these bounds",
            Self::OwnerEverywhere => "give another role first, or all workspaces",
            Self::OutsideWorkspaces => "name workspaces that are yours, or ask somebody who belongs to the others",
            Self::RoleInPerson | Self::InPerson => "use a device or the console",
            Self::NoDevice(_) => "look at the list of devices",
            Self::InvitationKnown(_) | Self::DeviceKnown(_) | Self::TokenKnown(_) => "try again; a new id is made",
            Self::KeyKnown(_) => {
                "make a new key on the device and pair it again; the key of a revoked device never comes back"
            }
            Self::NotAwaiting(_) | Self::NotActive(_) => "pair the device again",
            Self::DeviceRevoked(_) | Self::TokenRevoked(_) => "nothing is left to do",
            Self::LastDevice(_) => "pair another device first, or say that it is to be revoked even so",
            Self::NoDeviceRole => "name a role",
            Self::RoleOfNoUser(_) => "leave the role out",
            Self::NoToken(_) => "look at the list of tokens",
            Self::NotYourself(_) => "let them mint it themselves",
            Self::NoScopes => "name what the token is for",
            Self::ScopeUnsuited { .. } => "leave the scope out, or mint a token of another kind",
            Self::Overlap(_) => "choose a shorter time, and give the new token to its user within it",
            Self::Outlasts { .. } => "choose a time that ends sooner, or use a device or the console",
            Self::Outruns { .. } => "choose a lower number, or use a device or the console",
            Self::TokenUnknown => "use a token that was minted here, a device or the console",
            Self::PerMinute(_) | Self::Concurrent(_) => "choose a number within these bounds",
            Self::Surface(_) => "choose a name of its own",
            Self::OtherChannel(_) => "name that channel or none, or use a device or the console",
            Self::NotLive(_) => "mint a new token",
            Self::AlreadyRotated(_) => "rotate the token that took over from it",
            Self::Scope(_) | Self::Label(_) | Self::FeatureOff(_) | Self::FeatureNeeds { .. } => "",
        }
    }
}

/// A length of time as people say it: in the largest unit that leaves nothing over.
fn plain(duration: &Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let whole = units.into_iter().find(|(each, _)| seconds != 0 && seconds.is_multiple_of(*each));
    let (each, unit) = whole.unwrap_or((1, "second"));
    let count = seconds / each;
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_scope_says_which_and_who_can_help() {
        let missing = MissingScope { scope: Scope::MembersManage };
        assert_eq!(missing.to_string(), "the token lacks the scope `members.manage`");
        assert_eq!(
            missing.advice(),
            "use a token that was minted with the scope members.manage; whoever mints it needs the role admin or a higher one; \
             it counts only while the feature team_mode is on"
        );
        let plain = MissingScope { scope: Scope::CallsCreate };
        assert_eq!(plain.advice(), "use a token that was minted with the scope calls.create");
    }

    #[test]
    fn a_time_out_of_bounds_is_told_as_people_say_it() {
        let told = |seconds| Refusal::Lifetime(Duration::from_secs(seconds)).to_string();
        assert_eq!(told(400 * 86_400), "a token lives a minute to 366 days, not 400 days");
        assert_eq!(
            [0, 1, 59, 61, 3_600, 5_400].map(|seconds| plain(&Duration::from_secs(seconds))),
            ["0 seconds", "1 second", "59 seconds", "61 seconds", "1 hour", "90 minutes"]
        );
    }

    #[test]
    fn a_token_that_would_be_more_than_the_one_that_makes_it_is_told_with_both() {
        let [ends, most] = [1_700_000_060_000, 1_700_000_000_000].map(Timestamp::from_unix_millis);
        assert_eq!(
            Refusal::Outlasts { ends, most }.to_string(),
            "the new token would end at 2023-11-14T22:14:20.000Z, after the one that is used to make it, \
             which ends at 2023-11-14T22:13:20.000Z"
        );
        assert_eq!(
            Refusal::Outruns { what: "requests a minute", asked: 61, most: 60 }.to_string(),
            "the new token would have 61 requests a minute, and the one that is used to make it has 60"
        );
    }

    #[test]
    fn a_feature_that_is_off_says_how_to_switch_it_on() {
        let off = Refusal::FeatureOff(FeatureFlag::TeamMode);
        assert_eq!(off.to_string(), "the feature team_mode is off");
        assert_eq!(off.advice(), "ask an admin to switch the feature team_mode on");
        let needs = Refusal::FeatureNeeds { feature: FeatureFlag::TeamMode, needs: FeatureFlag::Rbac };
        assert_eq!(needs.to_string(), "the feature team_mode needs the feature rbac");
        assert_eq!(needs.advice(), "switch rbac on first, or team_mode off");
    }
}
