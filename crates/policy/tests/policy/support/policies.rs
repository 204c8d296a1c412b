//! Strategies for operator policies: a grammar over scopes and conditions, all of which pass strict validation. Some of them
//! fail at evaluation all the same.

use palyra_types::{Action, Posture, SandboxTier, ToolCapability, WorkspaceRole};
use proptest::{prelude::*, sample::select};

use super::questions::{AGENTS, CHANNELS, HOSTS, PATHS, SECRETS, SERVICES, SKILLS, TOOLS, USERS, WORKSPACES};

/// Whether conditions may fail at evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    Never,
    Sometimes,
}

/// Where `context.approved` may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// Only where approving gives and never takes.
    Fitting,
    /// Anywhere.
    Anywhere,
}

/// A set of up to `most` policies that loads. Two sets in three hold no policy that can fail.
pub fn sets(most: usize) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        2 => set_of(most, Failures::Never, Approval::Fitting),
        1 => set_of(most, Failures::Sometimes, Approval::Fitting),
    ]
}

/// A set of up to `most` policies, of which each has its own id.
pub fn set_of(most: usize, failures: Failures, approval: Approval) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(policy(failures, approval), 0..=most)
        .prop_map(|bodies| bodies.iter().enumerate().map(|(n, body)| format!("@id(\"p{n}\")\n{body}")).collect())
}

/// The text of a policy without its id.
pub fn policy(failures: Failures, approval: Approval) -> impl Strategy<Value = String> {
    let effect = prop_oneof![2 => Just(Effect::Permit), 1 => Just(Effect::Forbid)];
    (effect, principal_scope(), action_scope(), resource_scope()).prop_flat_map(
        move |(effect, principal, action, resource)| {
            let few = prop::collection::vec(clause(effect, failures, approval), 0..=2);
            // A broad policy without conditions would decide every question, so most get another one.
            let own = prop::option::weighted(0.8, clause(effect, failures, approval));
            let about_resource = about_attributes(&resource);
            (few, own, about_resource).prop_map(move |(few, own, about_resource)| {
                let clauses: Vec<String> = few.into_iter().chain(own).chain(about_resource).collect();
                let effect = effect.word();
                format!("{effect} ({principal}, {action}, {resource})\n{};", clauses.join("\n"))
            })
        },
    )
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Permit,
    Forbid,
}

impl Effect {
    const fn word(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Forbid => "forbid",
        }
    }
}

/// A name in Cedar's spelling.
fn uid(of: &str, id: &str) -> String {
    format!("Palyra::{of}::\"{}\"", id.escape_debug())
}

/// One of these names.
fn uids(of: &'static str, ids: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    select(ids).prop_map(move |id| uid(of, id))
}

fn directory() -> impl Strategy<Value = String> + Clone {
    uids("Path", &PATHS)
}

fn domain() -> impl Strategy<Value = String> + Clone {
    prop_oneof![uids("Host", &HOSTS), Just(uid("Host", "org"))]
}

fn role() -> impl Strategy<Value = String> + Clone {
    select(WorkspaceRole::ALL).prop_map(|role| uid("Role", role.as_str()))
}

fn workspace() -> impl Strategy<Value = String> + Clone {
    select(&WORKSPACES[..]).prop_map(|(name, _)| uid("Workspace", name))
}

fn tool_group() -> impl Strategy<Value = String> + Clone {
    uids("ToolGroup", &["fs", "process", "web", "web.search"])
}

fn secret_scope() -> impl Strategy<Value = String> + Clone {
    const SCOPES: [&str; 5] =
        ["global", "workspace:shop", "agent:claude", "skill:acme/lint", "session:00000000000000000000000001"];
    uids("SecretScope", &SCOPES)
}

fn any_action() -> impl Strategy<Value = String> + Clone {
    const OFTEN: [&str; 7] =
        ["tool.execute", "fs.read", "fs.write", "net.connect", "skill.execute", "vault.use", "vault.get"];
    prop_oneof![
        2 => uids("Action", &OFTEN),
        1 => select(Action::ALL).prop_map(|action| uid("Action", action.as_str())),
    ]
}

fn any_group() -> impl Strategy<Value = String> + Clone {
    const GROUPS: [&str; 11] = [
        "read_only",
        "execution",
        "access",
        "sensitive",
        "vault",
        "memory",
        "cron",
        "oversight",
        "governance",
        "approvals",
        "administration",
    ];
    uids("Action", &GROUPS)
}

fn principal_scope() -> impl Strategy<Value = String> {
    let one = prop_oneof![uids("User", &USERS), uids("Agent", &AGENTS), uids("Service", &SERVICES)];
    prop_oneof![
        4 => Just("principal".to_owned()),
        2 => one.clone().prop_map(|one| format!("principal == {one}")),
        1 => one.prop_map(|one| format!("principal in {one}")),
        2 => role().prop_map(|role| format!("principal in {role}")),
        1 => workspace().prop_map(|workspace| format!("principal in {workspace}")),
        2 => select(vec!["User", "Agent", "Service"]).prop_map(|kind| format!("principal is Palyra::{kind}")),
        1 => role().prop_map(|role| format!("principal is Palyra::User in {role}")),
    ]
}

fn action_scope() -> impl Strategy<Value = String> {
    let some = prop_oneof![3 => any_action(), 1 => any_group()];
    prop_oneof![
        2 => Just("action".to_owned()),
        3 => any_action().prop_map(|one| format!("action == {one}")),
        2 => any_group().prop_map(|group| format!("action in {group}")),
        1 => any_action().prop_map(|one| format!("action in {one}")),
        2 => prop::collection::vec(some, 1..4).prop_map(|list| format!("action in [{}]", list.join(", "))),
    ]
}

fn resource_scope() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        3 => directory(),
        2 => domain(),
        2 => uids("Tool", &TOOLS),
        1 => uids("Skill", &SKILLS),
        1 => uids("Secret", &SECRETS),
        1 => Just(uid("CronJob", "nightly")),
    ];
    let above = prop_oneof![
        4 => directory().prop_map(|uid| ("Path", uid)),
        2 => workspace().prop_map(|uid| ("Path", uid)),
        2 => domain().prop_map(|uid| ("Host", uid)),
        2 => tool_group().prop_map(|uid| ("Tool", uid)),
        1 => secret_scope().prop_map(|uid| ("Secret", uid)),
    ];
    prop_oneof![
        4 => Just("resource".to_owned()),
        2 => one.clone().prop_map(|one| format!("resource == {one}")),
        1 => one.prop_map(|one| format!("resource in {one}")),
        3 => above.clone().prop_map(|(_, above)| format!("resource in {above}")),
        2 => above.prop_map(|(kind, above)| format!("resource is Palyra::{kind} in {above}")),
        2 => select(vec!["Path", "Host", "Tool", "Skill", "Secret", "Daemon", "Memory"])
            .prop_map(|kind| format!("resource is Palyra::{kind}")),
    ]
}

/// A clause about the resource's attributes, where the scope says enough to allow it without a test of its type.
fn about_attributes(scope: &str) -> BoxedStrategy<Option<String>> {
    let of = |list: &'static [&'static str]| prop::option::weighted(0.3, select(list).prop_map(str::to_owned)).boxed();
    if scope.contains("Palyra::Path") || scope.contains("Palyra::Workspace") {
        of(&["when { resource.path like \"/work/*\" }", "unless { resource.name like \".*\" }"])
    } else if scope.contains("Palyra::Host") {
        of(&["when { resource.name like \"*.example.org\" }"])
    } else {
        Just(None).boxed()
    }
}

fn clause(effect: Effect, failures: Failures, approval: Approval) -> BoxedStrategy<String> {
    let plain = prop_oneof![
        3 => expression(failures).prop_map(|expr| format!("when {{ {expr} }}")),
        1 => expression(failures).prop_map(|expr| format!("unless {{ {expr} }}")),
    ];
    match approval {
        Approval::Fitting => prop_oneof![3 => plain, 1 => on_approval(effect, failures)].boxed(),
        Approval::Anywhere => {
            prop_oneof![1 => plain, 2 => on_approval_anywhere(failures), 1 => on_approval(effect, failures)].boxed()
        }
    }
}

/// Clauses in which an approval makes a permit apply more often, or a forbid less often.
fn on_approval(effect: Effect, failures: Failures) -> BoxedStrategy<String> {
    let frames: &[&str] = match effect {
        Effect::Permit => &[
            "when { context.approved }",
            "when { EXPR && context.approved }",
            "when { context.approved && EXPR }",
            "when { context.approved || EXPR }",
            "when { context.approved == true && (EXPR || false != context.approved) }",
            "unless { !context.approved }",
            "unless { EXPR && !context.approved }",
        ],
        Effect::Forbid => &[
            "unless { context.approved }",
            "unless { context.approved || EXPR }",
            "unless { EXPR && context.approved }",
            "unless { context.approved && EXPR }",
            "when { !context.approved && EXPR }",
            "when { context.approved == false }",
        ],
    };
    fill(select(frames), failures)
}

/// Clauses that use `context.approved` in every way, most of them wrong for one effect or for both.
fn on_approval_anywhere(failures: Failures) -> BoxedStrategy<String> {
    let keyword = select(vec!["when", "unless"]);
    let frame = select(vec![
        "context.approved",
        "!context.approved",
        "!!context.approved",
        "context.approved && EXPR",
        "!context.approved || EXPR",
        "!(EXPR && context.approved)",
        "context.approved == EXPR",
        "EXPR != context.approved",
        "context.approved == true",
        "false == (context.approved || EXPR)",
        "(context.approved == false) != true",
        "if context.approved then EXPR else true",
        "if EXPR then context.approved else !context.approved",
        "if EXPR then true else context.approved",
        "[context.approved].contains(EXPR)",
        "[true, context.approved].containsAll([false])",
        "{said: context.approved}.said",
        "{all: context}.all.approved",
        "context has approved && context.approved",
        "context[\"approved\"]",
        "(context.approved && !context.approved) || EXPR",
        "(context.approved && EXPR) == (context.approved || EXPR)",
    ]);
    fill((keyword, frame).prop_map(|(keyword, frame)| format!("{keyword} {{ {frame} }}")), failures)
}

/// Puts a condition wherever a frame says `EXPR`. Where conditions may fail, every other one does, so that some policies fail
/// only before or only after an approval.
fn fill(frame: impl Strategy<Value = impl ToString> + 'static, failures: Failures) -> BoxedStrategy<String> {
    let expression = match failures {
        Failures::Never => expression(failures),
        Failures::Sometimes => prop_oneof![expression(failures), failing_atom()].boxed(),
    };
    (frame, expression).prop_map(|(frame, expr)| frame.to_string().replace("EXPR", &expr)).boxed()
}

/// A condition that does not depend on approval.
fn expression(failures: Failures) -> BoxedStrategy<String> {
    let atom = move || match failures {
        Failures::Never => atom().boxed(),
        Failures::Sometimes => prop_oneof![12 => atom(), 1 => failing_atom()].boxed(),
    };
    prop_oneof![
        8 => atom(),
        1 => atom().prop_map(|a| format!("!{a}")),
        2 => (atom(), atom()).prop_map(|(a, b)| format!("({a} && {b})")),
        2 => (atom(), atom()).prop_map(|(a, b)| format!("({a} || {b})")),
        1 => (atom(), atom(), atom()).prop_map(|(a, b, c)| format!("(if {a} then {b} else {c})")),
    ]
    .boxed()
}

/// Passes validation and fails at evaluation, at least for some questions.
fn failing_atom() -> impl Strategy<Value = String> {
    select(vec![
        "(context has port && context.port * 9223372036854775807 * 2 > 0)",
        "(context has port && context.port - 9223372036854775807 - 10 < 0)",
        "(context.now.offset(duration(\"9223372036854775807ms\")) > context.now)",
    ])
    .prop_map(str::to_owned)
}

fn atom() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => about_circumstances(),
        2 => about_process(),
        2 => about_the_triple(),
    ]
    .prop_map(|atom| format!("({atom})"))
}

fn about_circumstances() -> impl Strategy<Value = String> {
    let facts = select(vec![
        "allowlisted",
        "principal_authorized",
        "channel_authorized",
        "allow_sensitive_tools",
        "sensitive_action",
        "member",
        "configured",
        "bound",
        "in_scope",
        "runs_palyra",
        "touches_state",
    ]);
    let fixed = select(vec![
        "context.capabilities.isEmpty()",
        "context has device_id && context.device_id == \"phone\"",
        "context has session_id && context.session_id like \"*0\"",
        "context has run_id",
        "context has token_id && context.token_id != \"ci\"",
        "context has tool_name && context.tool_name like \"fs.*\"",
        "context has skill_id && [\"acme/lint\", \"zed/pdf\"].contains(context.skill_id)",
        "context has egress && [Palyra::Egress::\"strict\", Palyra::Egress::\"none\"].contains(context.egress)",
        "context has role && context.role == Palyra::Role::\"admin\"",
        "context has port && context.port < 1024",
        "context has port && context.port == 443",
        "context.now < datetime(\"2026-03-02T09:30:00Z\")",
        "context.now >= datetime(\"2026-03-02T09:30:00.500Z\")",
        "context.now == datetime(\"2026-03-02T09:30:00Z\")",
        "context.now.toTime() < duration(\"9h30m\")",
        "context.now.toDate() == datetime(\"2026-03-02\")",
        "context.now < datetime(\"1970-01-01\")",
    ]);
    prop_oneof![
        3 => facts.prop_map(|fact| format!("context.{fact}")),
        4 => fixed.prop_map(str::to_owned),
        1 => select(Posture::ALL).prop_map(|one| format!("context.posture == {}", uid("Posture", one.as_str()))),
        1 => select(SandboxTier::ALL).prop_map(|one| format!("context has tier && context.tier == {}", uid("Tier", one.as_str()))),
        1 => select(ToolCapability::ALL).prop_map(|one| format!("context.capabilities.contains({})", uid("Capability", one.as_str()))),
        1 => select(&CHANNELS[..]).prop_map(|one| format!("context has channel && context.channel == \"{one}\"")),
        1 => workspace().prop_map(|one| format!("context has workspace && context.workspace == {one}")),
        1 => role().prop_map(|one| format!("context has on_behalf_of && context.on_behalf_of in {one}")),
        1 => uids("User", &USERS).prop_map(|one| format!("context has on_behalf_of && context.on_behalf_of == {one}")),
        1 => (role(), role()).prop_map(|(a, b)| format!("context has on_behalf_of && context.on_behalf_of in [{a}, {b}]")),
    ]
}

fn about_process() -> impl Strategy<Value = String> {
    let fixed = select(vec![
        "context has process && context.process.interpreter",
        "context has process && context.process.name == \"git\"",
        "context has process && context.process.program like \"/usr/bin/*\"",
        "context has process && context.process.command like \"*palyra*\"",
        "context has process && context.process.args.contains(\"--force\")",
        "context has process && context.process.args.containsAny([\"-c\", \"test\"])",
        "context has process && context.process.args.isEmpty()",
        "context has process.arg1 && context.process.arg1 == \"push\"",
        "context has process && context.process has arg2 && context.process.arg2 like \"-*\"",
        "context has process.cwd && context.process.cwd.path like \"/work/*\"",
        "context has process.cwd && context.process.cwd.name == \"shop\"",
        "context has process.cwd && context has workspace && context.process.cwd in context.workspace",
        "context has process.cwd && resource is Palyra::Path && resource in context.process.cwd",
        "context has process.cwd && resource is Palyra::Path && context.process.cwd == resource",
    ]);
    prop_oneof![
        4 => fixed.prop_map(str::to_owned),
        2 => directory().prop_map(|one| format!("context has process.cwd && context.process.cwd in {one}")),
        1 => workspace().prop_map(|one| format!("context has process.cwd && context.process.cwd in {one}")),
    ]
}

fn about_the_triple() -> impl Strategy<Value = String> {
    let fixed = select(vec![
        "principal is Palyra::Agent",
        "principal is Palyra::User && context has on_behalf_of && principal == context.on_behalf_of",
        "principal is Palyra::User && [Palyra::User::\"ada\", Palyra::User::\"claude\"].contains(principal)",
        "principal is Palyra::User in Palyra::Role::\"admin\"",
        "resource is Palyra::Path && resource.path like \"/work/shop/*\"",
        "resource is Palyra::Path && resource.name == \".env\"",
        "resource is Palyra::Host && resource.name like \"*.org\"",
        "resource is Palyra::Secret && resource.name == \"github\"",
        "resource is Palyra::Skill && resource.quarantined",
        "context has workspace && resource in context.workspace",
    ]);
    let above = prop_oneof![directory(), domain(), workspace(), tool_group(), secret_scope()];
    prop_oneof![
        4 => fixed.prop_map(str::to_owned),
        2 => above.prop_map(|above| format!("resource in {above}")),
        1 => role().prop_map(|role| format!("principal in {role}")),
        1 => workspace().prop_map(|workspace| format!("principal in {workspace}")),
        1 => uids("User", &USERS).prop_map(|user| format!("principal is Palyra::User && principal == {user}")),
        1 => any_action().prop_map(|action| format!("action == {action}")),
        1 => any_group().prop_map(|group| format!("action in {group}")),
    ]
}
