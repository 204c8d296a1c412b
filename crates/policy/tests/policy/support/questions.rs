//! Strategies for what is asked: a request, its context, and the configuration. Names come from small pools, so that
//! questions and policies meet.

use std::collections::{BTreeMap, BTreeSet};

use palyra_policy::{
    Allowlist, PolicyEvaluationConfig, PolicyRequest, PolicyRequestContext, Touch, request::PrincipalName,
};
use palyra_types::{
    AbsolutePath, Action, Channel, DeviceId, EgressEnforcementMode, HostName, ObjectId, Posture, Principal,
    PrincipalId, PrincipalKind, Process, Resource, SandboxTier, SecretRef, SkillId, Timestamp, TokenId, ToolCapability,
    ToolName, WorkspaceName, WorkspaceRole,
    id::{RunId, SessionId},
};
use proptest::{
    prelude::*,
    sample::{select, subsequence},
};

use super::oracle::{action_uid, schema, type_of};

/// Everything that one decision is made from.
#[derive(Debug, Clone)]
pub struct Question {
    pub request: PolicyRequest,
    pub context: PolicyRequestContext,
    pub config: PolicyEvaluationConfig,
}

pub const USERS: [&str; 3] = ["ada", "bob", "claude"];
pub const AGENTS: [&str; 3] = ["claude", "codex", "ada"];
pub const SERVICES: [&str; 3] = ["scheduler", "ada", "mcp.files"];
pub const TOOLS: [&str; 7] =
    ["fs.read", "fs.write", "process.run", "web.search.deep", "web.fetch", "status", "mcp.github.delete"];
pub const SKILLS: [&str; 3] = ["acme/markdown", "acme/lint", "zed/pdf"];
pub const SECRETS: [&str; 6] = [
    "global/github",
    "global/npm",
    "workspace:shop/github",
    "agent:claude/github",
    "skill:acme/lint/token",
    "session:00000000000000000000000001/cookie",
];
pub const PATHS: [&str; 13] = [
    "/",
    "/work",
    "/work/shop",
    "/work/shop/src/main.rs",
    "/work/shop/.env",
    "/work/shop/.palyra",
    "/work/shop/.palyra/vault/key",
    "/work/it's a \"file\"",
    "/workshop/notes.md",
    "/etc/passwd",
    "/state",
    "/state/vault/key",
    "/statement.txt",
];
pub const HOSTS: [&str; 7] =
    ["example.org", "api.example.org", "a.api.example.org", "example.com", "localhost", "10.0.0.1", "2001:db8::7"];
pub const CHANNELS: [&str; 3] = ["cli", "mcp", "http"];
pub const WORKSPACES: [(&str, &str); 4] = [("shop", "/work/shop"), ("work", "/work"), ("all", "/"), ("etc", "/etc")];
const MEMORIES: [&str; 4] = ["memory:global", "memory:workspace:shop", "memory:agent:claude", "memory:user:ada"];
const OBJECTS: [&str; 19] = [
    "session:one",
    "cron:nightly",
    "cron:weekly",
    "memory:global",
    "memory:workspace:shop",
    "memory:agent:claude",
    "memory:user:ada",
    "daemon:self",
    "workspace:shop",
    "approval:one",
    "policy:active",
    "device:phone",
    "device:laptop",
    "token:ci",
    "token:web",
    "member:ada",
    "journal:main",
    "mcp:files",
    "mcp:web",
];

/// Any question: mostly sensible, now and then one that does not fit the schema or contradicts itself.
pub fn question() -> impl Strategy<Value = Question> {
    let triple = prop_oneof![
        30 => action().prop_flat_map(|action| (Just(action), select(fitting(action)))),
        1 => (action(), select(resources())),
    ];
    (principal(), triple, context(), config(), 0..20_u8).prop_map(
        |(principal, (action, resource), mut context, config, oddity)| {
            // One question in twenty may contradict its resource, and one names an agent as the one acted for.
            match &resource {
                Resource::Tool(tool) if oddity != 0 => context.tool_name = context.tool_name.map(|_| tool.clone()),
                Resource::Skill(skill) if oddity != 0 => context.skill_id = context.skill_id.map(|_| skill.clone()),
                _ => {}
            }
            if let Some(user) = &mut context.on_behalf_of {
                if oddity == 1 {
                    *user = Principal::new(PrincipalKind::Agent, user.id().clone());
                }
                // One user holds one set of roles, whichever way the request names them.
                if (user.kind(), user.id()) == (principal.kind(), principal.id()) {
                    *user = principal.clone();
                }
            }
            Question { request: PolicyRequest { principal, action, resource }, context, config }
        },
    )
}

/// A question whose resource is of a kind that the action is not about.
pub fn misfit() -> impl Strategy<Value = Question> {
    (question(), action(), select(resources())).prop_filter_map(
        "the resource fits",
        |(mut question, action, resource)| {
            if fitting(action).contains(&resource) {
                return None;
            }
            question.context.tool_name = None;
            question.context.skill_id = None;
            question.request.action = action;
            question.request.resource = resource;
            Some(question)
        },
    )
}

/// Actions, those of calls more often than those of governance.
fn action() -> impl Strategy<Value = Action> {
    use Action::{FsRead, FsWrite, MemoryPut, NetConnect, SkillExecute, ToolExecute, VaultGet, VaultUse};
    prop_oneof![
        2 => select(vec![ToolExecute, FsRead, FsWrite, NetConnect, SkillExecute, VaultGet, VaultUse, MemoryPut]),
        1 => select(Action::ALL),
    ]
}

/// The resources of the pool that an action is about, by the schema.
fn fitting(action: Action) -> Vec<Resource> {
    let uid = action_uid(action);
    let types: Vec<String> = schema().resources_for_action(&uid).unwrap().map(ToString::to_string).collect();
    resources().into_iter().filter(|resource| types.iter().any(|of| of == type_of(resource))).collect()
}

fn resources() -> Vec<Resource> {
    fn of<'a>(kind: &'a str, ids: &'a [&str]) -> impl Iterator<Item = Resource> + 'a {
        ids.iter().map(move |id| Resource::parse(&format!("{kind}:{id}")).unwrap())
    }
    of("tool", &TOOLS)
        .chain(of("skill", &SKILLS))
        .chain(of("secret", &SECRETS))
        .chain(of("path", &PATHS))
        .chain(of("host", &HOSTS))
        .chain(OBJECTS.iter().map(|text| Resource::parse(text).unwrap()))
        .collect()
}

fn principal() -> impl Strategy<Value = Principal> {
    let of = |kind: PrincipalKind, names: &'static [&'static str]| {
        select(names).prop_map(move |name| Principal::new(kind, PrincipalId::parse(name).unwrap()))
    };
    prop_oneof![
        3 => user(),
        3 => of(PrincipalKind::Agent, &AGENTS),
        1 => of(PrincipalKind::Service, &SERVICES),
    ]
}

fn user() -> impl Strategy<Value = Principal> {
    (select(&USERS[..]), subsequence(WorkspaceRole::ALL, 0..=WorkspaceRole::ALL.len())).prop_map(|(name, roles)| {
        Principal::new(PrincipalKind::User, PrincipalId::parse(name).unwrap()).with_roles(roles).unwrap()
    })
}

fn context() -> impl Strategy<Value = PolicyRequestContext> {
    use prop::option::of;
    let origin = (
        now(),
        of(select(vec!["phone", "laptop"]).prop_map(|name| DeviceId::parse(name).unwrap())),
        of(select(&CHANNELS[..]).prop_map(|name| Channel::parse(name).unwrap())),
        of((0..4_u8).prop_map(|n| SessionId::from_parts(Timestamp::from_unix_millis(0), n.into()))),
        of(any::<u8>().prop_map(|n| RunId::from_parts(Timestamp::from_unix_millis(0), n.into()))),
        of(select(vec!["ci", "web"]).prop_map(|name| TokenId::parse(name).unwrap())),
        of(user()),
    );
    let purpose = (
        of(select(&TOOLS[..]).prop_map(|name| ToolName::parse(name).unwrap())),
        of(select(&SKILLS[..]).prop_map(|name| SkillId::parse(name).unwrap())),
        subsequence(ToolCapability::ALL, 0..=3),
        of(select(&WORKSPACES[..]).prop_map(|(name, _)| WorkspaceName::parse(name).unwrap())),
        of(processes()),
        (of(memberships()), of(select(WorkspaceRole::ALL))),
        of(select(vec![0_u16, 1, 22, 443, 8080, 65535])),
        (any::<bool>(), bound_secrets()),
    );
    let plan = (
        prop_oneof![4 => Just(Posture::AlwaysAllow), 4 => Just(Posture::AskEachTime), 1 => Just(Posture::Disabled)],
        of(select(SandboxTier::ALL)),
        of(select(EgressEnforcementMode::ALL)),
        any::<bool>(),
    );
    (origin, purpose, plan).prop_map(|(origin, purpose, plan)| {
        let (now, device_id, channel, session_id, run_id, token_id, on_behalf_of) = origin;
        let (tool_name, skill_id, capabilities, workspace, process, (member_of, role), port, secrets) = purpose;
        let (configured, bound_secrets) = secrets;
        let (posture, tier, egress, elsewhere) = plan;
        PolicyRequestContext {
            now,
            device_id,
            channel,
            session_id,
            run_id,
            token_id,
            on_behalf_of,
            tool_name,
            skill_id,
            capabilities: capabilities.into_iter().collect(),
            workspace,
            process,
            member_of,
            role,
            port,
            configured,
            bound_secrets,
            posture,
            tier,
            egress,
            elsewhere,
        }
    })
}

fn bound_secrets() -> impl Strategy<Value = BTreeSet<SecretRef>> {
    subsequence(&SECRETS[..], 0..=SECRETS.len())
        .prop_map(|some| some.iter().map(|secret| SecretRef::parse(secret).unwrap()).collect())
}

/// What a call touches, from the same pools.
pub fn touches() -> impl Strategy<Value = Vec<Touch>> {
    let secret = || select(&SECRETS[..]).prop_map(|secret| SecretRef::parse(secret).unwrap());
    let path = || select(&PATHS[..]).prop_map(|path| AbsolutePath::parse(path).unwrap());
    let host = select(&HOSTS[..]).prop_map(|host| HostName::parse(host).unwrap());
    let touch = prop_oneof![
        1 => path().prop_map(Touch::Read),
        1 => path().prop_map(Touch::Write),
        1 => (host, select(vec![22_u16, 443])).prop_map(|(host, port)| Touch::Connect(host, port)),
        3 => secret().prop_map(Touch::Use),
        3 => secret().prop_map(Touch::Reveal),
        1 => select(&SKILLS[..]).prop_map(|skill| Touch::Execute(SkillId::parse(skill).unwrap())),
        2 => (select(&[Action::MemoryPut, Action::MemoryPurge, Action::MemoryList][..]), select(&MEMORIES[..]))
            .prop_map(|(action, memory)| Touch::Object { action, resource: Resource::parse(memory).unwrap() }),
    ];
    prop::collection::vec(touch, 0..6)
}

fn memberships() -> impl Strategy<Value = BTreeSet<WorkspaceName>> {
    subsequence(&WORKSPACES[..], 0..=WORKSPACES.len())
        .prop_map(|some| some.iter().map(|(name, _)| WorkspaceName::parse(name).unwrap()).collect())
}

/// Times around those that policies speak of, to the millisecond, and some before 1970.
fn now() -> impl Strategy<Value = Timestamp> {
    let around = Timestamp::parse("2026-03-02T09:30:00Z").unwrap().unix_millis();
    prop_oneof![around - 2000..around + 2000, around - 86_400_000..around + 86_400_000, -5_000_i64..5_000]
        .prop_map(Timestamp::from_unix_millis)
}

/// Processes of which it is clear whether they run Palyra or reach into its state directory.
pub fn processes() -> impl Strategy<Value = Process> {
    let argv = prop_oneof![
        12 => select(vec![
            &["/usr/bin/cargo", "test", "-p", "palyra-policy"][..],
            &["/usr/bin/cargo", "build"],
            &["/usr/bin/git", "push", "--force"],
            &["/usr/bin/git", "commit", "-m", "describe palyra"],
            &["/usr/bin/grep", "palyra", "Cargo.toml"],
            &["/bin/bash", "-c", "echo 'it is done'; exit"],
            &["/usr/bin/env", "node", "build.js"],
            &["/usr/bin/python3.11", "setup.py", ""],
            &["/bin/ls"],
            &["/bin/cat", "/statement.txt"],
        ]),
        1 => select(vec![
            &["/opt/palyra/bin/palyrad"][..],
            &["/opt/own/thing", "status"],
            &["/usr/bin/env", "palyra", "status"],
            &["/usr/bin/sudo", "/opt/own/thing"],
            &["/usr/bin/env", "bash", "-c", "palyra up"],
            &["/bin/bash", "-c", "cd /tmp; palyra approvals approve"],
            &["/usr/local/bin/node", "/opt/bin/palyra"],
        ]),
        1 => select(vec![
            &["/bin/cat", "/state/vault/key"][..],
            &["/bin/cat", "../state/vault/key"],
            &["/usr/bin/tar", "--file=/state/x.tar"],
            &["/bin/bash", "-c", "cat '/work/shop/.palyra/config'"],
            &["/state/bin/tool"],
            &["/bin/ls", ".palyra"],
        ]),
    ];
    let cwd = prop_oneof![8 => select(vec!["/work/shop", "/work", "/etc"]), 1 => select(&PATHS[..])];
    (argv, prop::option::weighted(0.8, cwd)).prop_map(|(argv, cwd)| Process {
        program: AbsolutePath::parse(argv[0]).unwrap(),
        leads_to: None,
        args: argv[1..].iter().map(|&arg| arg.to_owned()).collect(),
        cwd: cwd.map(|cwd| AbsolutePath::parse(cwd).unwrap()),
    })
}

fn config() -> impl Strategy<Value = PolicyEvaluationConfig> {
    let lists = (
        allowlist(&TOOLS, |name| ToolName::parse(name).unwrap()),
        allowlist(&SKILLS, |name| SkillId::parse(name).unwrap()),
        allowlist(&["user:ada", "agent:claude", "agent:ada", "service:ada"], |name| {
            PrincipalName::from(&Principal::parse(name).unwrap())
        }),
        allowlist(&CHANNELS, |name| Channel::parse(name).unwrap()),
        allowlist(&["github", "files"], |name| ObjectId::parse(name).unwrap()),
    );
    let rest = (
        prop::bool::weighted(0.8),
        subsequence(vec![Action::FsWrite, Action::ToolExecute, Action::CronDelete], 0..=2),
        subsequence(&SKILLS[..], 0..=2),
        subsequence(&WORKSPACES[..], 0..=4),
        prop::option::of(select(vec!["/state", "/work/shop/.palyra"])),
        prop::option::of(Just("/opt/own/thing")),
    );
    (lists, rest).prop_map(|((tools, skills, principals, channels, servers), rest)| {
        let (allow_sensitive_tools, sensitive_actions, quarantined, workspaces, state, program) = rest;
        let path = |text: &str| AbsolutePath::parse(text).unwrap();
        PolicyEvaluationConfig {
            allow_sensitive_tools,
            allowlisted_tools: tools,
            allowlisted_skills: skills,
            allowlisted_mcp: servers,
            sensitive_actions: sensitive_actions.into_iter().collect(),
            tool_execute_principal_allowlist: principals,
            tool_execute_channel_allowlist: channels,
            quarantined_skills: quarantined.into_iter().map(|skill| SkillId::parse(skill).unwrap()).collect(),
            workspaces: workspaces
                .into_iter()
                .map(|(name, root)| (WorkspaceName::parse(name).unwrap(), path(root)))
                .collect::<BTreeMap<_, _>>(),
            state_directory: state.map(path),
            palyra_programs: program.map(path).into_iter().collect::<BTreeSet<_>>(),
        }
    })
}

fn allowlist<T: Ord + Clone + std::fmt::Debug>(
    names: &'static [&'static str],
    parse: impl Fn(&str) -> T + 'static,
) -> impl Strategy<Value = Allowlist<T>> {
    prop_oneof![Just(None), subsequence(names, 0..=names.len()).prop_map(Some),].prop_map(move |only| match only {
        None => Allowlist::Any,
        Some(only) => Allowlist::Only(only.into_iter().map(&parse).collect()),
    })
}
