//! The roles of a workspace: how they rank, and what each may ask for.
//!
//! Guarantees: owner stands above admin, admin above operator, and each role may ask for everything that the one below may.
//! Does not: decide about a request. Policy does, and may allow less.

use palyra_types::{Action, WorkspaceRole};

/// How high a role stands; more is higher.
#[must_use]
pub const fn rank(role: WorkspaceRole) -> u8 {
    match role {
        WorkspaceRole::Owner => 3,
        WorkspaceRole::Admin => 2,
        WorkspaceRole::Operator => 1,
    }
}

/// Whether a role stands no higher than another.
#[must_use]
pub const fn is_within(role: WorkspaceRole, bound: WorkspaceRole) -> bool {
    rank(role) <= rank(bound)
}

/// The lower of two roles.
#[must_use]
pub const fn lower(one: WorkspaceRole, other: WorkspaceRole) -> WorkspaceRole {
    if is_within(one, other) { one } else { other }
}

/// The highest of some roles.
#[must_use]
pub fn highest(roles: impl IntoIterator<Item = WorkspaceRole>) -> Option<WorkspaceRole> {
    roles.into_iter().max_by_key(|&role| rank(role))
}

/// What a role may ask for.
#[must_use]
pub const fn permissions(role: WorkspaceRole) -> &'static [Action] {
    match role {
        // What sets owners apart is not an action but whom it concerns: see `about`.
        WorkspaceRole::Owner | WorkspaceRole::Admin => ADMIN,
        WorkspaceRole::Operator => OPERATOR,
    }
}

/// What a role is for, in a sentence.
#[must_use]
pub const fn about(role: WorkspaceRole) -> &'static str {
    match role {
        WorkspaceRole::Owner => "Does everything an admin does, and alone gives, changes or takes away the role owner.",
        WorkspaceRole::Admin => "Manages policies, skills, devices, tokens, secrets and members below owner.",
        WorkspaceRole::Operator => "Answers approvals, and reads policies, the journal and lists.",
    }
}

const OPERATOR: &[Action] = &[
    Action::ApprovalList,
    Action::ApprovalAnswer,
    Action::PolicyRead,
    Action::JournalRead,
    Action::DeviceList,
    Action::TokenList,
    Action::MemberList,
    Action::McpList,
    Action::VaultList,
];

const ADMIN: &[Action] = &[
    Action::ApprovalList,
    Action::ApprovalAnswer,
    Action::PolicyRead,
    Action::JournalRead,
    Action::DeviceList,
    Action::TokenList,
    Action::MemberList,
    Action::McpList,
    Action::VaultList,
    Action::PolicyWrite,
    Action::PostureSet,
    Action::JournalErase,
    Action::DaemonConfigure,
    Action::DaemonStop,
    Action::SkillInstall,
    Action::SkillGrant,
    Action::SkillRemove,
    Action::SkillQuarantine,
    Action::DevicePair,
    Action::DeviceRevoke,
    Action::TokenCreate,
    Action::TokenRevoke,
    Action::MemberManage,
    Action::McpManage,
    Action::MemoryManage,
    Action::CronManage,
    Action::VaultPut,
    Action::VaultDelete,
    Action::VaultBind,
    Action::VaultAdminister,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_owner_stands_above_an_admin_and_an_admin_above_an_operator() {
        use WorkspaceRole::{Admin, Operator, Owner};
        assert!(rank(Owner) > rank(Admin) && rank(Admin) > rank(Operator));
        assert!(is_within(Admin, Admin) && is_within(Operator, Owner) && !is_within(Owner, Admin));
        assert_eq!((lower(Owner, Operator), lower(Admin, Admin)), (Operator, Admin));
        assert_eq!((highest([Operator, Owner, Admin]), highest([])), (Some(Owner), None));
    }

    #[test]
    fn each_role_may_ask_for_all_that_the_one_below_may() {
        let of = |role| permissions(role).iter().copied().collect::<BTreeSet<_>>();
        assert!(of(WorkspaceRole::Admin).is_superset(&of(WorkspaceRole::Operator)));
        assert_eq!(of(WorkspaceRole::Owner), of(WorkspaceRole::Admin));
        assert_eq!((permissions(WorkspaceRole::Operator).len(), permissions(WorkspaceRole::Admin).len()), (9, 30));
    }

    #[test]
    fn an_operator_changes_nothing_but_what_it_answers() {
        let changes: Vec<_> = permissions(WorkspaceRole::Operator)
            .iter()
            .filter(|action| !action.as_str().ends_with(".list") && !action.as_str().ends_with(".read"))
            .collect();
        assert_eq!(changes, [&Action::ApprovalAnswer]);
    }

    #[test]
    fn it_says_what_only_an_owner_does() {
        assert!(about(WorkspaceRole::Owner).contains("alone gives, changes or takes away the role owner"));
    }
}
