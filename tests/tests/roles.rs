//! What `palyra access roles` says about each role is what policy lets it do, action by action.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use palyra_access::role;
use palyra_policy::{Engine, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, Verdict};
use palyra_types::{Action, Principal, Resource, Timestamp, WorkspaceRole};

/// Every action that is about governing or about seeing how it is done, and something that it can be about.
const GOVERNING: &[(Action, &str)] = &[
    (Action::ApprovalList, "daemon:local"),
    (Action::ApprovalAnswer, "approval:a1"),
    (Action::PolicyRead, "policy:active"),
    (Action::PolicyWrite, "policy:active"),
    (Action::PostureSet, "tool:process.run"),
    (Action::JournalRead, "journal:local"),
    (Action::JournalErase, "journal:local"),
    (Action::DaemonConfigure, "daemon:local"),
    (Action::DaemonStop, "daemon:local"),
    (Action::SkillInstall, "skill:acme/markdown"),
    (Action::SkillGrant, "skill:acme/markdown"),
    (Action::SkillRemove, "skill:acme/markdown"),
    (Action::SkillQuarantine, "skill:acme/markdown"),
    (Action::DeviceList, "daemon:local"),
    (Action::DevicePair, "device:d1"),
    (Action::DeviceRevoke, "device:d1"),
    (Action::TokenList, "daemon:local"),
    (Action::TokenCreate, "token:t1"),
    (Action::TokenRevoke, "token:t1"),
    (Action::MemberList, "daemon:local"),
    (Action::MemberManage, "member:ada"),
    (Action::McpList, "daemon:local"),
    (Action::McpManage, "mcp:github"),
    (Action::MemoryManage, "memory:agent:claude"),
    (Action::CronManage, "cron:agent:claude/nightly"),
    (Action::VaultList, "daemon:local"),
    (Action::VaultPut, "secret:global/github"),
    (Action::VaultDelete, "secret:global/github"),
    (Action::VaultBind, "secret:global/github"),
    (Action::VaultAdminister, "daemon:local"),
];

fn may(engine: &Engine, principal: &str, (action, resource): (Action, &str), about: Option<WorkspaceRole>) -> bool {
    let request = PolicyRequest {
        principal: Principal::parse(principal).unwrap(),
        action,
        resource: Resource::parse(resource).unwrap(),
    };
    let context = PolicyRequestContext { role: about, ..PolicyRequestContext::at(Timestamp::from_unix_millis(0)) };
    engine.snapshot().decide(&request, &context, &PolicyEvaluationConfig::default()).verdict == Verdict::Allow
}

#[test]
fn each_role_may_do_exactly_what_it_is_said_to() {
    let engine = Engine::new(&[]).unwrap();
    for &role in WorkspaceRole::ALL {
        for &(action, resource) in GOVERNING {
            let said = role::permissions(role).contains(&action);
            let found = may(&engine, &format!("user:ada@{role}"), (action, resource), None);
            assert_eq!(found, said, "{role} {action}");
        }
        let listed = role::permissions(role).iter().all(|action| GOVERNING.iter().any(|(one, _)| one == action));
        assert!(listed, "{role} has a permission that is not tried here");
    }
}

#[test]
fn nobody_gives_or_takes_a_role_above_their_own_whatever_else_they_may() {
    let engine = Engine::new(&[]).unwrap();
    let about_roles = [Action::MemberManage, Action::DevicePair, Action::DeviceRevoke, Action::TokenCreate];
    for action in about_roles {
        let resource = GOVERNING.iter().find(|(one, _)| *one == action).unwrap().1;
        for &own in WorkspaceRole::ALL {
            for &about in WorkspaceRole::ALL {
                let expected = role::permissions(own).contains(&action) && role::is_within(about, own);
                let found = may(&engine, &format!("user:ada@{own}"), (action, resource), Some(about));
                assert_eq!(found, expected, "{own} {action} about {about}");
            }
        }
    }
}
