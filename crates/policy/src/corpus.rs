//! Requests to compare policy sets with.
//!
//! The built-in corpus asks, for several principals, every action on a fitting resource, tool calls in every tier and egress mode, and
//! calls that use a secret or are given one.
//! To it come witnesses: requests made from the names and literals in the policies themselves, so that a rule about one command, one path
//! or one host is exercised by a request that meets it, and by one that does not.

use std::collections::BTreeSet;

use cedar_policy::{
    ActionConstraint, EntityUid, PrincipalConstraint, ResourceConstraint,
    pst::{BinaryOp, Clause, Expr, Literal, PatternElem, UnaryOp, Var},
};
use palyra_types::{
    AbsolutePath, Action, EgressEnforcementMode, Resource, SandboxTier, SecretRef, Timestamp, VaultScope,
};

use crate::{
    demand::ContextKey,
    document::RequestDocument,
    set::{LoadedPolicy, Snapshot},
    tree::{children, is_context},
};

/// Who asks in the built-in corpus.
const PRINCIPALS: &[&str] = &[
    "agent:someone",
    "user:someone",
    "user:someone@owner",
    "user:someone@admin",
    "user:someone@operator",
    "service:someone",
];

/// How many ways of meeting a condition are tried where there are several, such as the members of a set.
const CHOICES: usize = 8;

/// What is run in the built-in corpus.
const COMMANDS: &[&[&str]] = &[
    &["/usr/bin/cargo", "test"],
    &["/bin/bash", "-c", "ls"],
    &["/bin/rm", "-rf", "build"],
    &["/usr/bin/palyra", "status"],
];

/// Requests that need no policy to think of. `workspace` is a directory inside the workspace called `workspace`.
#[must_use]
pub fn builtin(workspace: &AbsolutePath) -> Vec<RequestDocument> {
    let mut corpus = Vec::new();
    for principal in PRINCIPALS {
        for &action in Action::ALL {
            for resource in samples(action, workspace) {
                let plain = request(principal, action, &resource);
                match action {
                    Action::ToolExecute => corpus.extend(tool_calls(&plain)),
                    Action::VaultGet | Action::VaultUse => corpus.extend([plain.clone(), in_place(plain)]),
                    _ => corpus.push(plain),
                }
            }
        }
        corpus.extend(calls_with_a_secret(principal));
    }
    corpus
}

/// Requests that the policies of a set talk about.
#[must_use]
pub fn witnesses(set: &Snapshot, workspace: &AbsolutePath) -> Vec<RequestDocument> {
    set.policies.iter().flat_map(|policy| witnesses_of(policy, set, workspace)).collect()
}

fn request(principal: &str, action: Action, resource: &str) -> RequestDocument {
    RequestDocument {
        principal: Some(principal.to_owned()),
        action: Some(action),
        resource: Resource::parse(resource).ok(),
        workspace: palyra_types::WorkspaceName::parse("workspace").ok(),
        ..RequestDocument::default()
    }
}

/// A process in every tier and egress mode, and run by another program; any other tool as it is.
fn tool_calls(plain: &RequestDocument) -> Vec<RequestDocument> {
    if plain.resource.as_ref().is_none_or(|resource| resource.id() != "process.run") {
        return vec![plain.clone()];
    }
    let mut calls = Vec::new();
    for command in COMMANDS {
        let run = Some(command.iter().map(|&word| word.to_owned()).collect());
        calls.push(RequestDocument { run, elsewhere: Some(true), ..plain.clone() });
        for &tier in SandboxTier::ALL {
            for &egress in EgressEnforcementMode::ALL {
                let run = Some(command.iter().map(|&word| word.to_owned()).collect());
                calls.push(RequestDocument { run, tier: Some(tier), egress: Some(egress), ..plain.clone() });
            }
        }
    }
    calls
}

/// A fetch that uses a secret, bound and not, and a process that is given one.
fn calls_with_a_secret(principal: &str) -> Vec<RequestDocument> {
    let Ok(secret) = SecretRef::parse("global/any") else { return Vec::new() };
    let strict = Some(EgressEnforcementMode::Strict);
    let fetch = RequestDocument {
        hosts: Some(vec!["example.org".to_owned()]),
        uses: Some(vec![secret.clone()]),
        egress: strict,
        ..request(principal, Action::ToolExecute, "tool:http.fetch")
    };
    let run = RequestDocument {
        run: Some(vec!["/usr/bin/cargo".to_owned(), "publish".to_owned()]),
        reveals: Some(vec![secret.clone()]),
        tier: Some(SandboxTier::C),
        egress: strict,
        ..request(principal, Action::ToolExecute, "tool:process.run")
    };
    vec![RequestDocument { bound: Some([secret].into()), ..fetch.clone() }, fetch, run]
}

/// The same request, made where its secret belongs, with the secret bound: anywhere else nothing can be said for it.
fn in_place(mut document: RequestDocument) -> RequestDocument {
    let Some(Resource::Secret(secret)) = &document.resource else { return document };
    document.bound = Some([secret.clone()].into());
    match secret.scope() {
        VaultScope::Global => {}
        VaultScope::Workspace(name) => document.workspace = Some(name.clone()),
        VaultScope::Agent(name) if document.principal.as_deref() == Some("agent:someone") => {
            document.principal = Some(format!("agent:{name}"));
        }
        VaultScope::Agent(_) => {}
        VaultScope::Skill(id) => document.skill_id = Some(id.clone()),
        VaultScope::Session(id) => document.session_id = Some(*id),
    }
    document
}

/// Fitting resources for an action.
fn samples(action: Action, workspace: &AbsolutePath) -> Vec<String> {
    let one = |resource: &str| vec![resource.to_owned()];
    match action {
        Action::ToolExecute => {
            ["process.run", "fs.read", "fs.write", "unknown.tool"].map(|tool| format!("tool:{tool}")).to_vec()
        }
        Action::FsRead | Action::FsWrite => vec![format!("path:{workspace}/file"), "path:/etc/passwd".to_owned()],
        Action::NetConnect => one("host:example.org"),
        Action::SkillExecute
        | Action::SkillInstall
        | Action::SkillGrant
        | Action::SkillRemove
        | Action::SkillQuarantine => one("skill:any"),
        Action::VaultGet | Action::VaultUse | Action::VaultPut | Action::VaultDelete | Action::VaultBind => {
            one("secret:global/any")
        }
        Action::MemorySearch
        | Action::MemoryList
        | Action::MemoryPut
        | Action::MemoryDelete
        | Action::MemoryPurge
        | Action::MemoryManage
        | Action::ArtifactPut
        | Action::ArtifactGet
        | Action::ArtifactList
        | Action::ArtifactDelete => one("memory:global"),
        Action::CronCreate | Action::CronPause | Action::CronDelete | Action::CronManage => one("cron:any"),
        Action::ApprovalAnswer => one("approval:any"),
        Action::PolicyRead | Action::PolicyWrite => one("policy:active"),
        Action::PostureSet => one("tool:process.run"),
        Action::JournalRead | Action::JournalErase => one("journal:local"),
        Action::DevicePair | Action::DeviceRevoke => one("device:any"),
        Action::TokenCreate | Action::TokenRevoke => one("token:any"),
        Action::MemberManage => one("member:any"),
        Action::McpManage | Action::McpStart => one("mcp:any"),
        Action::ToolList
        | Action::SkillList
        | Action::DaemonStatus
        | Action::DaemonConfigure
        | Action::DaemonStop
        | Action::VaultList
        | Action::VaultAdminister
        | Action::CronList
        | Action::ApprovalList
        | Action::DeviceList
        | Action::TokenList
        | Action::MemberList
        | Action::McpList => one("daemon:local"),
    }
}

fn witnesses_of(policy: &LoadedPolicy, set: &Snapshot, workspace: &AbsolutePath) -> Vec<RequestDocument> {
    let mut documents = Vec::new();
    for action in actions_of(policy, set) {
        for principal in principals_of(policy) {
            let resources = resources_of(policy, workspace).unwrap_or_else(|| samples(action, workspace));
            for resource in resources {
                let plain = request(&principal, action, &resource);
                for choice in 0..CHOICES {
                    let mut meeting = plain.clone();
                    for clause in policy.tree.clauses() {
                        let (Clause::When(expr) | Clause::Unless(expr)) = clause;
                        meet(expr, choice, &mut meeting);
                    }
                    let meeting = in_place(meeting);
                    if !documents.contains(&meeting) {
                        documents.push(meeting);
                    }
                }
                documents.push(plain);
            }
        }
    }
    documents
}

fn actions_of(policy: &LoadedPolicy, set: &Snapshot) -> BTreeSet<Action> {
    let of = |wanted: &[EntityUid]| {
        let is_wanted = |action: Action| {
            let name = set.vocabulary.action(action);
            name.is_some_and(|name| wanted.iter().any(|wanted| name.uid == *wanted || name.groups.contains(wanted)))
        };
        Action::ALL.iter().copied().filter(|&action| is_wanted(action)).collect()
    };
    match policy.cedar.action_constraint() {
        // A rule about everything is met by the actions that matter most.
        ActionConstraint::Any => {
            use Action::{FsRead, FsWrite, NetConnect, ToolExecute, VaultGet, VaultUse};
            [ToolExecute, FsRead, FsWrite, NetConnect, VaultUse, VaultGet].into()
        }
        ActionConstraint::Eq(uid) => of(&[uid]),
        ActionConstraint::In(uids) => of(&uids),
    }
}

fn principals_of(policy: &LoadedPolicy) -> Vec<String> {
    let named = |uid: &EntityUid| match uid.type_name().basename() {
        "Role" => format!("user:someone@{}", uid.id().unescaped()),
        kind => format!("{}:{}", kind.to_lowercase(), uid.id().unescaped()),
    };
    match policy.cedar.principal_constraint() {
        PrincipalConstraint::Any => ["agent:someone", "user:someone"].map(str::to_owned).to_vec(),
        PrincipalConstraint::Is(of) => vec![format!("{}:someone", of.basename().to_lowercase())],
        PrincipalConstraint::Eq(uid) | PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
            vec![named(&uid)]
        }
    }
}

/// The resources that the scope names, or `None` if it names none.
fn resources_of(policy: &LoadedPolicy, workspace: &AbsolutePath) -> Option<Vec<String>> {
    let (uid, exact) = match policy.cedar.resource_constraint() {
        ResourceConstraint::Any | ResourceConstraint::Is(_) => return None,
        ResourceConstraint::Eq(uid) => (uid, true),
        ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => (uid, false),
    };
    let id = uid.id().unescaped();
    let resource = match (uid.type_name().basename(), exact) {
        ("Workspace", _) if id == "workspace" => format!("path:{workspace}/witness"),
        ("ToolGroup", _) => format!("tool:{id}.any"),
        ("SecretScope", _) => format!("secret:{id}/any"),
        ("Path", false) => format!("path:{}/witness", id.trim_end_matches('/')),
        ("Host", false) => format!("host:witness.{id}"),
        ("CronJob", _) => format!("cron:{id}"),
        ("PolicySet", _) => format!("policy:{id}"),
        ("McpServer", _) => format!("mcp:{id}"),
        (other, _) => format!("{}:{id}", other.to_lowercase()),
    };
    Resource::parse(&resource).is_ok().then(|| vec![resource])
}

/// Fills in what the conditions compare the request with. Contradicting conditions overwrite each other; a witness is a try, and
/// `choice` says which of several ways to take.
fn meet(expr: &Expr, choice: usize, document: &mut RequestDocument) {
    match expr {
        Expr::BinaryOp { op: BinaryOp::Eq, left, right } => match (&**left, &**right) {
            (place, Expr::Literal(value)) | (Expr::Literal(value), place) => fill(place, &word_of(value), document),
            _ => {}
        },
        Expr::BinaryOp { op: BinaryOp::Contains, left, right } => match (&**left, &**right) {
            (Expr::GetAttr { expr, attr }, Expr::Literal(value)) if attr == "args" && is_process(expr) => {
                run_of(document).push(word_of(value));
            }
            (Expr::Set(items), place) => {
                if let Some(Expr::Literal(value)) = items.get(choice % items.len().max(1)).map(|item| &**item) {
                    fill(place, &word_of(value), document);
                }
            }
            _ => {}
        },
        // Just below, at, and just above a bound: one of them is on the right side of it.
        Expr::BinaryOp {
            op: BinaryOp::Less | BinaryOp::LessEq | BinaryOp::Greater | BinaryOp::GreaterEq,
            left,
            right,
        } => match (&**left, &**right) {
            (place, bound) if is_constant(bound) => fill_bound(place, bound, choice, document),
            (bound, place) if is_constant(bound) => fill_bound(place, bound, choice, document),
            _ => {}
        },
        Expr::Like { expr, pattern } => {
            let filler = if choice.is_multiple_of(2) { "witness" } else { "" };
            let word: String = pattern
                .iter()
                .map(|part| match part {
                    PatternElem::Char(c) => c.to_string(),
                    _ => filler.to_owned(),
                })
                .collect();
            fill(expr, &word, document);
        }
        Expr::GetAttr { expr, attr } if is_context(expr) && attr == ContextKey::Elsewhere.as_str() => {
            document.elsewhere = Some(true);
        }
        other => children(other).into_iter().for_each(|part| meet(part, choice, document)),
    }
}

fn word_of(value: &Literal) -> String {
    match value {
        Literal::String(text) => text.to_string(),
        Literal::EntityUID(uid) => uid.eid.to_string(),
        Literal::Long(number) => number.to_string(),
        _ => String::new(),
    }
}

fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(_) | Expr::UnaryOp { op: UnaryOp::Datetime, .. })
}

fn fill_bound(place: &Expr, bound: &Expr, choice: usize, document: &mut RequestDocument) {
    let step = i64::try_from(choice % 3).unwrap_or(0) - 1;
    match (place, bound) {
        (_, Expr::Literal(Literal::Long(number))) => fill(place, &number.saturating_add(step).to_string(), document),
        (Expr::GetAttr { expr, attr }, Expr::UnaryOp { op: UnaryOp::Datetime, expr: date })
            if is_context(expr) && attr == "now" =>
        {
            if let Expr::Literal(Literal::String(date)) = &**date {
                let full = if date.contains('T') { date.to_string() } else { format!("{date}T00:00:00Z") };
                let shifted =
                    |time: Timestamp| Timestamp::from_unix_millis(time.unix_millis().saturating_add(step * 1000));
                document.now = Timestamp::parse(&full).ok().map(shifted);
            }
        }
        _ => {}
    }
}

fn fill(place: &Expr, word: &str, document: &mut RequestDocument) {
    let Expr::GetAttr { expr, attr } = place else { return };
    let word = word.to_owned();
    if is_process(expr) {
        let run = run_of(document);
        match attr.as_str() {
            "program" => set_word(run, 0, word),
            "name" => set_word(run, 0, format!("/usr/bin/{word}")),
            "arg1" => set_word(run, 1, word),
            "arg2" => set_word(run, 2, word),
            // A command is quoted; only the plain ones are taken apart here.
            "command" if !word.contains('\'') => *run = word.split(' ').map(str::to_owned).collect(),
            _ => {}
        }
    } else if matches!(&**expr, Expr::Var(Var::Resource)) {
        let resource = match (&document.resource, attr.as_str()) {
            (Some(Resource::Path(_)), "path") => format!("path:{word}"),
            (Some(Resource::Path(_)), "name") => format!("path:/witness/{word}"),
            (Some(Resource::Host(_)), "name") => format!("host:{word}"),
            (Some(Resource::Secret(secret)), "name") => format!("secret:{}/{word}", secret.scope()),
            _ => return,
        };
        document.resource = Resource::parse(&resource).ok().or_else(|| document.resource.take());
    } else if is_context(expr) {
        match ContextKey::parse(attr) {
            Ok(ContextKey::Tier) => document.tier = word.parse().ok(),
            Ok(ContextKey::Egress) => document.egress = word.parse().ok(),
            Ok(ContextKey::Posture) => document.posture = word.parse().ok(),
            Ok(ContextKey::Channel) => document.channel = word.parse().ok(),
            Ok(ContextKey::Workspace) => document.workspace = word.parse().ok(),
            Ok(ContextKey::DeviceId) => document.device_id = word.parse().ok(),
            Ok(ContextKey::TokenId) => document.token_id = word.parse().ok(),
            Ok(ContextKey::SkillId) => document.skill_id = word.parse().ok(),
            Ok(ContextKey::SessionId) => document.session_id = word.parse().ok(),
            Ok(ContextKey::OnBehalfOf) => document.on_behalf_of = Some(format!("user:{word}")),
            Ok(ContextKey::Port) => document.port = word.parse().ok(),
            _ => {}
        }
    }
}

fn is_process(expr: &Expr) -> bool {
    matches!(expr, Expr::GetAttr { expr, attr } if is_context(expr) && attr == "process")
}

fn run_of(document: &mut RequestDocument) -> &mut Vec<String> {
    document.run.get_or_insert_with(|| vec!["/usr/bin/any".to_owned()])
}

fn set_word(run: &mut Vec<String>, position: usize, word: String) {
    while run.len() <= position {
        run.push("any".to_owned());
    }
    if let Some(place) = run.get_mut(position) {
        *place = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Preset, SourceFile, Verdict, baseline::builtin_tools};

    #[test]
    fn a_rule_about_secrets_is_met_where_they_belong_and_are_bound() {
        let workspace = AbsolutePath::parse("/workspace").unwrap();
        let (tools, config) = (builtin_tools().unwrap(), Preset::Workspace.config().unwrap());
        for (resource, condition) in [
            ("resource", ""),
            ("resource == Palyra::Secret::\"skill:acme/markdown/key\"", ""),
            ("resource in Palyra::SecretScope::\"workspace:shop\"", "when { resource.name == \"key\" }"),
            ("resource in Palyra::SecretScope::\"agent:claude\"", "when { context.bound && context.in_scope }"),
            ("resource in Palyra::SecretScope::\"session:01ARZ3NDEKTSV4RRFFQ69G5FAV\"", ""),
        ] {
            for action in [Action::VaultUse, Action::VaultGet] {
                let effect = if action == Action::VaultUse { "permit" } else { "forbid" };
                let rule = format!(
                    "@id(\"own\") {effect} (principal, action == Palyra::Action::\"{action}\", {resource}) {condition};"
                );
                let set =
                    Snapshot::load(&[Preset::Workspace.source(), SourceFile::operator("own", rule.as_str())]).unwrap();
                let met = witnesses(&set, &workspace).iter().any(|document| {
                    let (call, context) = document.read(Timestamp::from_unix_millis(0), &tools).unwrap();
                    let decision = set.decide_call(&call, &context, &config);
                    let by_it =
                        decision.deciding().flat_map(|part| part.decision.policies()).any(|by| by.id.as_str() == "own");
                    by_it && decision.verdict == if effect == "permit" { Verdict::Allow } else { Verdict::Deny }
                });
                assert!(met, "{rule}");
            }
        }
    }

    #[test]
    fn the_built_in_requests_use_and_reveal_a_secret_in_every_way_that_counts() {
        let corpus = builtin(&AbsolutePath::parse("/workspace").unwrap());
        let with = |wanted: &dyn Fn(&RequestDocument) -> bool| corpus.iter().filter(|one| wanted(one)).count();
        assert_eq!(with(&|one| one.uses.is_some() && one.bound.is_some()), PRINCIPALS.len());
        assert_eq!(with(&|one| one.uses.is_some() && one.bound.is_none()), PRINCIPALS.len());
        assert_eq!(with(&|one| one.reveals.is_some()), PRINCIPALS.len());
        assert_eq!(with(&|one| one.action == Some(Action::VaultUse)), 2 * PRINCIPALS.len());
    }
}
