//! Members and those who are invited to become one.

use std::{collections::BTreeSet, time::Duration};

use palyra_types::{ObjectId, PrincipalId, Timestamp, WorkspaceName, WorkspaceRole};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Somebody who belongs here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberRecord {
    /// Who.
    pub user: PrincipalId,
    /// The most they may do.
    pub role: WorkspaceRole,
    /// Where. An owner's is always [`Membership::All`].
    pub workspaces: Membership,
    /// Since when.
    pub joined: Timestamp,
    /// Who let them in, such as `user:ada`.
    pub by: String,
}

/// Somebody who may become a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InvitationRecord {
    /// Names the invitation.
    pub id: ObjectId,
    /// Who is invited.
    pub user: PrincipalId,
    /// The role they will have.
    pub role: WorkspaceRole,
    /// The workspaces they will belong to.
    pub workspaces: Membership,
    /// Who invited them, such as `user:ada`.
    pub by: String,
    /// When.
    pub made: Timestamp,
    /// Until when they can join.
    pub until: Timestamp,
}

/// An invitation to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInvitation {
    /// Names the invitation.
    pub id: ObjectId,
    /// Who is invited.
    pub user: PrincipalId,
    /// The role they will have.
    pub role: WorkspaceRole,
    /// The workspaces they will belong to.
    pub workspaces: Membership,
    /// How long they can join: [`SHORTEST_INVITATION`] to [`LONGEST_INVITATION`].
    pub lifetime: Duration,
}

/// The workspaces that somebody belongs to. Written as `"*"` or as a list of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// All there are, and all there will be.
    All,
    /// These.
    Only(BTreeSet<WorkspaceName>),
}

impl Membership {
    /// The workspaces it is bound to; none if it is bound to none in particular.
    #[must_use]
    pub fn bound(&self) -> Option<BTreeSet<WorkspaceName>> {
        match self {
            Self::All => None,
            Self::Only(names) => Some(names.clone()),
        }
    }

    /// Whether a workspace is among them.
    #[must_use]
    pub fn covers(&self, workspace: &WorkspaceName) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(workspace),
        }
    }

    /// Whether every workspace of this one is in the other, too.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::All) => true,
            (Self::All, Self::Only(_)) => false,
            (Self::Only(these), Self::Only(those)) => these.is_subset(those),
        }
    }

    /// The workspaces of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, both) | (both, Self::All) => both.clone(),
            (Self::Only(these), Self::Only(those)) => Self::Only(these.intersection(those).cloned().collect()),
        }
    }
}

impl Serialize for Membership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str(EVERYWHERE),
            Self::Only(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Membership {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Word(String),
            Names(BTreeSet<WorkspaceName>),
        }
        match Form::deserialize(deserializer)? {
            Form::Word(word) if word == EVERYWHERE => Ok(Self::All),
            Form::Word(_) => Err(de::Error::custom("workspaces are `*` or a list of names")),
            Form::Names(names) => Ok(Self::Only(names)),
        }
    }
}

/// The shortest time that somebody may have to join.
pub const SHORTEST_INVITATION: Duration = Duration::from_secs(60);

/// The longest.
pub const LONGEST_INVITATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How all workspaces are written.
const EVERYWHERE: &str = "*";

#[cfg(test)]
mod tests {
    use super::*;

    fn only<const N: usize>(names: [&str; N]) -> Membership {
        Membership::Only(names.iter().map(|name| WorkspaceName::parse(name).unwrap()).collect())
    }

    #[test]
    fn membership_is_written_as_a_star_or_a_list() {
        for (membership, text) in [(Membership::All, r#""*""#), (only(["a", "b"]), r#"["a","b"]"#), (only([]), "[]")] {
            assert_eq!(serde_json::to_string(&membership).unwrap(), text);
            assert_eq!(serde_json::from_str::<Membership>(text).unwrap(), membership);
        }
        for wrong in [r#""all""#, r#"["not a name"]"#, "7", "null"] {
            assert!(serde_json::from_str::<Membership>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_is_more_than_any_list() {
        assert!(only(["a"]).is_within(&Membership::All) && !Membership::All.is_within(&only(["a"])));
        assert!(only(["a"]).is_within(&only(["a", "b"])) && !only(["a", "c"]).is_within(&only(["a", "b"])));
        let a = WorkspaceName::parse("a").unwrap();
        assert!(Membership::All.covers(&a) && only(["a"]).covers(&a) && !only(["b"]).covers(&a));
    }

    #[test]
    fn two_memberships_meet_in_what_both_have() {
        assert_eq!(only(["a", "b"]).and(&only(["b", "c"])), only(["b"]));
        assert_eq!(Membership::All.and(&only(["b"])), only(["b"]));
        assert_eq!(only(["b"]).and(&Membership::All), only(["b"]));
        assert_eq!(Membership::All.and(&Membership::All), Membership::All);
    }
}
