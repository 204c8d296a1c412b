//! The slow and obvious way to a decision: the whole set, the whole context, everything through JSON and checked against the
//! schema. It shares no code with the engine but the texts of the schema and the baseline.
//!
//! Hierarchies are given step by step (a path is in its directory, which is in its own), facts are worked out from their
//! descriptions, and Cedar is asked twice.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    str::FromStr,
    sync::OnceLock,
};

use cedar_policy::{Authorizer, Context, Entities, EntityUid, Policy, PolicyId, PolicySet, Request, Response, Schema};
use palyra_policy::{
    Allowlist, Cause, DEFAULT_POLICY_SRC, Decision, PolicyEvaluationConfig, PolicyInfo, PolicyRequestContext,
    SCHEMA_SRC, Verdict,
};
use palyra_types::{Action, ObjectId, Principal, PrincipalKind, Process, Resource, ToolName};
use serde_json::{Map, Value, json};

use super::Question;

/// A verdict and the ids of the policies behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Allow { by: Vec<String> },
    Ask { by: Vec<String>, held_by: Vec<String> },
    Forbidden { by: Vec<String> },
    NotPermitted,
    Failed { policies: Vec<String> },
    Contradictory { by: Vec<String> },
    Malformed,
}

impl Outcome {
    /// What the engine said, in the oracle's terms. The verdict has to be the one that the cause stands for.
    pub fn of(decision: &Decision) -> Self {
        let ids =
            |policies: &[std::sync::Arc<PolicyInfo>]| policies.iter().map(|policy| policy.id.to_string()).collect();
        let (verdict, outcome) = match &decision.cause {
            Cause::Permitted { by } => (Verdict::Allow, Self::Allow { by: ids(by) }),
            Cause::NeedsApproval { by, held_by } => (Verdict::Ask, Self::Ask { by: ids(by), held_by: ids(held_by) }),
            Cause::Forbidden { by } => (Verdict::Deny, Self::Forbidden { by: ids(by) }),
            Cause::NotPermitted => (Verdict::Deny, Self::NotPermitted),
            Cause::Failed { failures } => {
                let policies = failures.iter().map(|failure| failure.policy.id.to_string()).collect();
                (Verdict::Deny, Self::Failed { policies })
            }
            Cause::Contradictory { by } => (Verdict::Deny, Self::Contradictory { by: ids(by) }),
            Cause::Malformed { .. } => (Verdict::Deny, Self::Malformed),
        };
        assert_eq!(decision.verdict, verdict, "the verdict belies its cause: {decision:?}");
        outcome
    }

    /// What two evaluations of a whole set come to.
    pub fn implied_by(answers: &Answers) -> Self {
        let Answers { unapproved, approved } = answers;
        if !unapproved.failed.is_empty() {
            return Self::Failed { policies: unapproved.failed.clone() };
        }
        if !approved.failed.is_empty() {
            return Self::Failed { policies: approved.failed.clone() };
        }
        match (unapproved.allowed, approved.allowed) {
            (true, true) => Self::Allow { by: unapproved.reasons.clone() },
            (false, true) => Self::Ask { by: approved.reasons.clone(), held_by: unapproved.reasons.clone() },
            (true, false) => Self::Contradictory { by: approved.reasons.clone() },
            (false, false) if approved.reasons.is_empty() => Self::NotPermitted,
            (false, false) => Self::Forbidden { by: approved.reasons.clone() },
        }
    }
}

/// What Cedar says of one request before and after an approval.
#[derive(Debug, Clone)]
pub struct Answers {
    pub unapproved: Answer,
    pub approved: Answer,
}

/// What Cedar says once: ids in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub allowed: bool,
    pub reasons: Vec<String>,
    pub failed: Vec<String>,
}

/// A whole policy set under Cedar's own eyes.
pub struct Oracle {
    set: PolicySet,
}

impl Oracle {
    /// The baseline and these operator policies.
    pub fn new(operator: &[String]) -> Self {
        let texts: Vec<&str> = std::iter::once(DEFAULT_POLICY_SRC).chain(operator.iter().map(String::as_str)).collect();
        Self::of(&texts)
    }

    /// These policies alone.
    pub fn of(texts: &[&str]) -> Self {
        let parsed = PolicySet::from_str(&texts.join("\n")).unwrap();
        let named = parsed.policies().map(|policy| {
            let id = policy.annotation("id").unwrap();
            Policy::new_id(policy, PolicyId::new(id))
        });
        Self { set: PolicySet::from_policies(named).unwrap() }
    }

    /// The decision that the set stands for.
    pub fn outcome(&self, question: &Question) -> Outcome {
        self.answers(question).map_or(Outcome::Malformed, |answers| Outcome::implied_by(&answers))
    }

    /// Both evaluations, or nothing where the question does not fit the schema or contradicts itself.
    pub fn answers(&self, question: &Question) -> Option<Answers> {
        let named_twice = match (&question.request.resource, &question.context.tool_name, &question.context.skill_id) {
            (Resource::Tool(tool), Some(other), _) => tool != other,
            (Resource::Skill(skill), _, Some(other)) => skill != other,
            _ => false,
        };
        if named_twice {
            return None;
        }
        let entities = Entities::from_json_value(Value::Array(entities(question)), Some(schema())).unwrap();
        let ask = |approved: bool| {
            let request = cedar_request(question, approved)?;
            Some(Answer::of(&Authorizer::new().is_authorized(&request, &self.set, &entities)))
        };
        Some(Answers { unapproved: ask(false)?, approved: ask(true)? })
    }
}

impl Answer {
    pub fn of(response: &Response) -> Self {
        let mut reasons: Vec<String> = response.diagnostics().reason().map(ToString::to_string).collect();
        let mut failed: Vec<String> = response
            .diagnostics()
            .errors()
            .map(|cedar_policy::AuthorizationError::PolicyEvaluationError(error)| error.policy_id().to_string())
            .collect();
        reasons.sort();
        failed.sort();
        Self { allowed: response.decision() == cedar_policy::Decision::Allow, reasons, failed }
    }
}

/// The schema, parsed from the text that ships.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::from_cedarschema_str(SCHEMA_SRC).unwrap().0)
}

/// The Cedar name of an action.
pub fn action_uid(action: Action) -> EntityUid {
    EntityUid::from_json(json!({ "type": "Palyra::Action", "id": action.as_str() })).unwrap()
}

/// The name that the schema has for the kind of a resource.
pub fn type_of(resource: &Resource) -> &'static str {
    match resource.kind() {
        "tool" => "Palyra::Tool",
        "skill" => "Palyra::Skill",
        "secret" => "Palyra::Secret",
        "path" => "Palyra::Path",
        "host" => "Palyra::Host",
        "session" => "Palyra::Session",
        "cron" => "Palyra::CronJob",
        "memory" => "Palyra::Memory",
        "daemon" => "Palyra::Daemon",
        "workspace" => "Palyra::Workspace",
        "approval" => "Palyra::Approval",
        "policy" => "Palyra::PolicySet",
        "device" => "Palyra::Device",
        "token" => "Palyra::Token",
        "member" => "Palyra::Member",
        "journal" => "Palyra::Journal",
        "mcp" => "Palyra::McpServer",
        other => unreachable!("a kind that the schema lacks: {other}"),
    }
}

/// The request, held to the schema by Cedar.
fn cedar_request(question: &Question, approved: bool) -> Option<Request> {
    let action = action_uid(question.request.action);
    let context = context(question, approved)?;
    let context = Context::from_json_value(context, Some((schema(), &action))).ok()?;
    let principal = EntityUid::from_json(principal_name(&question.request.principal)).unwrap();
    let resource = EntityUid::from_json(resource_name(&question.request.resource)).unwrap();
    Request::new(principal, action, resource, context, Some(schema())).ok()
}

fn name(of: &str, id: &str) -> Value {
    json!({ "type": of, "id": id })
}

fn reference(of: &str, id: &str) -> Value {
    json!({ "__entity": name(of, id) })
}

fn principal_type(principal: &Principal) -> &'static str {
    match principal.kind() {
        PrincipalKind::User => "Palyra::User",
        PrincipalKind::Agent => "Palyra::Agent",
        PrincipalKind::Service => "Palyra::Service",
    }
}

fn principal_name(principal: &Principal) -> Value {
    name(principal_type(principal), principal.id().as_str())
}

fn resource_name(resource: &Resource) -> Value {
    name(type_of(resource), &resource.id())
}

/// Everything that the request names, with everything above it.
fn entities(question: &Question) -> Vec<Value> {
    let Question { request, context, config } = question;
    let mut all = BTreeMap::new();
    let mut add = |uid: Value, attrs: Value, parents: Vec<Value>| {
        all.insert(uid.to_string(), json!({ "uid": uid, "attrs": attrs, "parents": parents }));
    };
    // Whoever acts on behalf of themselves is in what they are bound to.
    let parties = [(context.on_behalf_of.as_ref(), None), (Some(&request.principal), context.member_of.as_ref())];
    for (principal, bound) in parties.into_iter().filter_map(|(who, bound)| Some((who?, bound))) {
        let roles = principal.roles().iter().map(|role| name("Palyra::Role", role.as_str()));
        let workspaces: Vec<_> = match bound {
            Some(bound) => bound.iter().collect(),
            None if principal_name(principal)["type"] == "Palyra::User" => config.workspaces.keys().collect(),
            None => Vec::new(),
        };
        let workspaces = workspaces.into_iter().map(|one| name("Palyra::Workspace", one.as_str()));
        add(principal_name(principal), json!({}), roles.chain(workspaces).collect());
    }
    match &request.resource {
        Resource::Tool(tool) => {
            let mut groups = Vec::new();
            let mut rest = tool.as_str();
            while let Some((group, _)) = rest.rsplit_once('.') {
                groups.push(name("Palyra::ToolGroup", group));
                rest = group;
            }
            add(resource_name(&request.resource), json!({}), groups);
        }
        Resource::Skill(skill) => {
            let quarantined = config.quarantined_skills.contains(skill);
            add(resource_name(&request.resource), json!({ "quarantined": quarantined }), Vec::new());
        }
        Resource::Secret(secret) => {
            let scope = name("Palyra::SecretScope", &secret.scope().to_string());
            add(resource_name(&request.resource), json!({ "name": secret.name() }), vec![scope]);
        }
        Resource::Host(host) => {
            let is_address = host.as_str().parse::<std::net::IpAddr>().is_ok();
            let mut rest = Some(host.as_str());
            while let Some(host) = rest {
                rest = if is_address { None } else { host.split_once('.').map(|(_, domain)| domain) };
                let above = rest.map(|domain| name("Palyra::Host", domain)).into_iter().collect();
                add(name("Palyra::Host", host), json!({ "name": host }), above);
            }
        }
        Resource::Path(_) => {}
        Resource::Object(..) => add(resource_name(&request.resource), json!({}), Vec::new()),
    }
    let resource_path = match &request.resource {
        Resource::Path(path) => Some(path),
        _ => None,
    };
    let cwd = context.process.as_ref().and_then(|process| process.cwd.as_ref());
    for path in [resource_path, cwd].into_iter().flatten() {
        for directory in Path::new(path.as_str()).ancestors() {
            let text = directory.to_str().unwrap();
            let last = directory.file_name().map_or("", |name| name.to_str().unwrap());
            let above = directory.parent().map(|parent| name("Palyra::Path", parent.to_str().unwrap()));
            let roots = config.workspaces.iter().filter(|(_, root)| root.as_str() == text);
            let workspaces = roots.map(|(workspace, _)| name("Palyra::Workspace", workspace.as_str()));
            let parents = above.into_iter().chain(workspaces).collect();
            add(name("Palyra::Path", text), json!({ "path": text, "name": last }), parents);
        }
    }
    all.into_values().collect()
}

/// The whole context.
fn context(question: &Question, approved: bool) -> Option<Value> {
    let PolicyRequestContext {
        now,
        device_id,
        channel,
        session_id,
        run_id,
        token_id,
        on_behalf_of,
        tool_name,
        skill_id,
        capabilities,
        workspace,
        process,
        member_of: _,
        role,
        port,
        configured: _,
        bound_secrets: _,
        posture,
        tier,
        egress,
        elsewhere: _,
    } = &question.context;
    let mut context = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            context.insert(key.to_owned(), value);
        }
    };
    let whole_second = now.unix_millis() - now.unix_millis().rem_euclid(1000);
    let now = palyra_types::Timestamp::from_unix_millis(whole_second).to_string();
    put("now", Some(json!({ "__extn": { "fn": "datetime", "arg": now } })));
    put("device_id", device_id.as_ref().map(|id| json!(id)));
    put("channel", channel.as_ref().map(|channel| json!(channel)));
    put("session_id", session_id.as_ref().map(|id| json!(id)));
    put("run_id", run_id.as_ref().map(|id| json!(id)));
    put("token_id", token_id.as_ref().map(|id| json!(id)));
    put("on_behalf_of", on_behalf_of.as_ref().map(|user| json!({ "__entity": principal_name(user) })));
    put("tool_name", tool_name.as_ref().map(|tool| json!(tool)));
    put("skill_id", skill_id.as_ref().map(|skill| json!(skill)));
    let capabilities = capabilities.iter().map(|one| reference("Palyra::Capability", one.as_str())).collect();
    put("capabilities", Some(Value::Array(capabilities)));
    put("workspace", workspace.as_ref().map(|name| reference("Palyra::Workspace", name.as_str())));
    put("process", process.as_ref().map(process_record));
    put("role", role.map(|role| reference("Palyra::Role", role.as_str())));
    put("port", port.map(|port| json!(port)));
    put("posture", Some(reference("Palyra::Posture", posture.as_str())));
    put("tier", tier.map(|tier| reference("Palyra::Tier", tier.as_str())));
    put("egress", egress.map(|mode| reference("Palyra::Egress", mode.as_str())));
    put("approved", Some(json!(approved)));
    for (fact, holds) in facts(question) {
        put(fact, Some(json!(holds)));
    }
    Some(Value::Object(context))
}

fn process_record(process: &Process) -> Value {
    let program = process.program.as_str();
    let mut record = json!({
        "program": program,
        "name": program.rsplit('/').next(),
        "args": process.args,
        "command": process.command(),
        "interpreter": INTERPRETERS.iter().any(|name| program.ends_with(&format!("/{name}"))),
    });
    for (key, arg) in ["arg1", "arg2"].iter().zip(&process.args) {
        record[key] = json!(arg);
    }
    if let Some(cwd) = &process.cwd {
        record["cwd"] = reference("Palyra::Path", cwd.as_str());
    }
    record
}

/// What the configuration says, from the descriptions of the facts.
fn facts(question: &Question) -> [(&'static str, bool); 12] {
    let Question { request, context, config } = question;
    let destroys_or_reveals = ["cron.delete", "memory.delete", "memory.purge", "vault.get"];
    let server_is_listed = |tool: &ToolName| {
        let mut parts = tool.as_str().splitn(3, '.');
        let (first, server, rest) = (parts.next(), parts.next(), parts.next());
        first == Some("mcp")
            && rest.is_some()
            && server
                .and_then(|name| ObjectId::parse(name).ok())
                .is_some_and(|name| listed(&config.allowlisted_mcp, &name))
    };
    let tool_is_listed = |tool: &ToolName| listed(&config.allowlisted_tools, tool) || server_is_listed(tool);
    let skill_is_listed = context.skill_id.iter().any(|skill| listed(&config.allowlisted_skills, skill));
    [
        ("allow_sensitive_tools", config.allow_sensitive_tools),
        ("elsewhere", context.elsewhere),
        (
            "member",
            context.workspace.is_none()
                || context.member_of.is_none()
                || context.member_of.iter().flatten().any(|one| Some(one) == context.workspace.as_ref()),
        ),
        ("configured", context.configured && is_own_server(question)),
        (
            "bound",
            context.bound_secrets.iter().any(|secret| request.resource.to_string() == format!("secret:{secret}")),
        ),
        ("in_scope", in_scope(question)),
        (
            "sensitive_action",
            destroys_or_reveals.contains(&request.action.as_str())
                || config.sensitive_actions.contains(&request.action),
        ),
        (
            "allowlisted",
            match &request.resource {
                Resource::Skill(skill) => listed(&config.allowlisted_skills, skill),
                Resource::Tool(tool) => tool_is_listed(tool) || skill_is_listed,
                _ => context.tool_name.as_ref().is_some_and(|tool| tool_is_listed(tool) || skill_is_listed),
            },
        ),
        (
            "principal_authorized",
            match serde_json::to_value(&config.tool_execute_principal_allowlist).unwrap() {
                Value::Array(names) => names.contains(&json!(request.principal.to_string())),
                star => star == json!("*"),
            },
        ),
        (
            "channel_authorized",
            match (&config.tool_execute_channel_allowlist, &context.channel) {
                (Allowlist::Any, _) => true,
                (Allowlist::Only(_), None) => false,
                (Allowlist::Only(channels), Some(channel)) => channels.iter().any(|listed| listed == channel),
            },
        ),
        ("runs_palyra", context.process.as_ref().is_some_and(|process| runs_palyra(process, config))),
        ("touches_state", touches_state(question)),
    ]
}

/// What an MCP server asks, unless it is about another one.
fn is_own_server(question: &Question) -> bool {
    let asking = question.request.principal.to_string();
    let about = question.request.resource.to_string();
    match (asking.strip_prefix("service:mcp."), about.strip_prefix("mcp:")) {
        (Some(own), Some(other)) => own == other,
        (own, None) => own.is_some(),
        (None, Some(_)) => false,
    }
}

/// What is about no secret and no memory; a global one; or one whose scope is spelt like something that the request has.
fn in_scope(question: &Question) -> bool {
    let Question { request, context, .. } = question;
    let written = request.resource.to_string();
    let (scope, principals) = match (written.strip_prefix("secret:"), written.strip_prefix("memory:")) {
        (Some(secret), _) => (secret.rsplit_once('/').unwrap().0, "agent:"),
        (None, Some(memory)) => (memory, ""),
        (None, None) => return true,
    };
    let has = [
        Some("global".to_owned()),
        context.workspace.as_ref().map(|name| format!("workspace:{name}")),
        context.skill_id.as_ref().map(|id| format!("skill:{id}")),
        context.session_id.as_ref().map(|id| format!("session:{id}")),
        Some(request.principal.to_string()).filter(|principal| principal.starts_with(principals)),
    ];
    has.into_iter().flatten().any(|one| one == scope)
}

fn listed<T: PartialEq>(list: &Allowlist<T>, item: &T) -> bool {
    match list {
        Allowlist::Any => true,
        Allowlist::Only(items) => items.iter().any(|listed| listed == item),
    }
}

/// The interpreters and launchers among the programs of [`super::questions::processes`].
const INTERPRETERS: [&str; 3] = ["bash", "python3.11", "node"];
const LAUNCHERS: [&str; 2] = ["env", "sudo"];

/// Palyra is run by its name, by a configured path, or by handing either to something that runs what it is handed.
fn runs_palyra(process: &Process, config: &PolicyEvaluationConfig) -> bool {
    let is_palyra = |word: &str| {
        let last = Path::new(word).file_name().and_then(|name| name.to_str());
        matches!(last, Some("palyra" | "palyrad")) || config.palyra_programs.iter().any(|path| path.as_str() == word)
    };
    let program = process.program.as_str();
    let runs_its_arguments = INTERPRETERS.iter().chain(&LAUNCHERS).any(|name| program.ends_with(&format!("/{name}")));
    is_palyra(program) || (runs_its_arguments && process.args.iter().flat_map(|arg| words(arg)).any(is_palyra))
}

/// The path itself, the program, the working directory, or a path spelt out in an argument lies in the state directory; or the
/// state directory lies in what is written.
fn touches_state(question: &Question) -> bool {
    let Some(state) = &question.config.state_directory else { return false };
    let state = Path::new(state.as_str());
    let inside = |path: &str| Path::new(path).starts_with(state);
    let above = |path: &str| question.request.action == Action::FsWrite && state.starts_with(path);
    let by_resource =
        matches!(&question.request.resource, Resource::Path(path) if inside(path.as_str()) || above(path.as_str()));
    let by_process = question.context.process.as_ref().is_some_and(|process| {
        let cwd = process.cwd.as_ref().map(|cwd| cwd.as_str());
        let by_argument = process.args.iter().flat_map(|arg| words(arg)).any(|word| match cwd {
            Some(cwd) => folded(&Path::new(cwd).join(word)).starts_with(state),
            None => word.starts_with('/') && folded(Path::new(word)).starts_with(state),
        });
        inside(process.program.as_str()) || cwd.is_some_and(inside) || by_argument
    });
    by_resource || by_process
}

/// The words of the arguments that [`super::questions::processes`] generates.
fn words(arg: &str) -> impl Iterator<Item = &str> {
    arg.split([' ', '=', '\'', ';']).filter(|word| !word.is_empty())
}

fn folded(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut folded, component| {
        match component {
            Component::ParentDir => {
                folded.pop();
            }
            other => folded.push(other),
        }
        folded
    })
}
