//! Who may ask for what: one row for each route, and nothing is served without one.
//!
//! Guarantees: a route that has no row here answers nobody. A row says which kinds of credential count, which scope a token needs, and what
//! policy is asked before the handler is reached. `docs/api.md` has the same table, and a test walks every route with every kind of caller.
//!
//! Some questions can only be asked once a request was read: who a call belongs to, which tool a posture is for, which role is given. The row
//! then says what is asked first, and the gate or the handler asks the rest, by the same [`Caller::may`](crate::caller::Caller::may).

use std::{collections::HashMap, sync::LazyLock};

use axum::http::Method;
use palyra_access::Scope;
use palyra_types::{Action, ObjectKind};

/// Who may ask for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Anybody, without a credential.
    Open,
    /// Whoever shows a credential that will do.
    Known(Needs),
}

/// What it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Which credentials count.
    pub credentials: Credentials,
    /// The scopes of which a token needs one.
    pub scopes: &'static [Scope],
    /// What policy is asked before anything else is looked at.
    pub asks: Asks,
}

/// Which credentials count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    /// Devices, tokens and sessions of the console.
    All,
    /// Devices alone.
    Devices,
    /// API tokens alone: it is for programs.
    Tokens,
    /// Sessions of the console alone.
    Console,
}

/// What policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Nothing: it is about the caller's own credential.
    Nothing,
    /// Whether they may do this with the one thing there is of this kind.
    About(Action, ObjectKind),
    /// Whether they may do this with the thing that stands in the path.
    Named(Action, ObjectKind),
    /// Whether they may do this with the secret that stands in the path.
    Secret(Action),
    /// Whether they may do this with the skill that stands in the path, or with skills at all where none does.
    Skill(Action),
    /// Nothing yet: what belongs to the caller is theirs to see, and anything else needs `journal.read`.
    Own,
    /// Nothing yet: the handler asks whether they may do this with the scope that something is kept in.
    Kept(Action),
    /// Nothing yet: the gate decides about what is proposed.
    Gate,
}

/// A route, and who may ask for it.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The method.
    pub method: Method,
    /// The path, with `{id}` for what is named in it.
    pub path: &'static str,
    /// Who may ask.
    pub entry: Entry,
}

/// The row of a route.
#[must_use]
pub fn of(method: &Method, path: &str) -> Option<Entry> {
    // Whatever may be read may be asked about without its content.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    BY_PATH.get(path)?.iter().find(|rule| rule.method == *method).map(|rule| rule.entry)
}

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    BY_PATH.values().flatten()
}

static BY_PATH: LazyLock<HashMap<&'static str, Vec<Rule>>> = LazyLock::new(|| {
    let mut rows: HashMap<_, Vec<_>> = HashMap::new();
    for (method, path, entry) in table() {
        rows.entry(path).or_default().push(Rule { method, path, entry });
    }
    rows
});

const fn known(scopes: &'static [Scope], asks: Asks) -> Entry {
    Entry::Known(Needs { credentials: Credentials::All, scopes, asks })
}

const fn for_programs(scopes: &'static [Scope], asks: Asks) -> Entry {
    Entry::Known(Needs { credentials: Credentials::Tokens, scopes, asks })
}

const fn for_devices(asks: Asks) -> Entry {
    Entry::Known(Needs { credentials: Credentials::Devices, scopes: &[], asks })
}

/// The whole table.
fn table() -> Vec<(Method, &'static str, Entry)> {
    use Action::{
        ApprovalAnswer, ApprovalList, ArtifactGet, ArtifactList, CronList, CronManage, DaemonConfigure, DeviceList,
        DevicePair, JournalRead, McpList, McpManage, MemberList, MemberManage, MemoryList, MemoryManage, PolicyRead,
        PolicyWrite, SkillGrant, SkillInstall, SkillList, SkillQuarantine, SkillRemove, TokenCreate, TokenList,
        ToolList, VaultAdminister, VaultDelete, VaultList, VaultPut,
    };
    use Asks::{About, Gate, Kept, Named, Nothing, Own, Secret, Skill};
    use ObjectKind::{Approval, CronJob, Daemon, Device, Journal, McpServer, Member, Memory, PolicySet, Token};
    use Scope::{
        ApprovalsDecide, ApprovalsRead, CallsCreate, CallsRead, CompatChatCreate, CompatEmbeddingsCreate,
        CompatModelsRead, CompatResponsesCreate, CronManage as ManageCron, CronRead, DaemonConfigure as Configure,
        DevicesManage, DevicesRead, EventsRead, JournalRead as ReadJournal, McpCall, McpManage as ManageMcp, McpRead,
        MembersManage, MembersRead, MemoryManage as ManageMemory, MemoryRead, PolicyRead as ReadPolicy,
        PolicyWrite as WritePolicy, SkillsManage, SkillsRead, TokensManage, TokensRead, VaultManage, VaultRead,
    };
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    let journal = known(&[ReadJournal], About(JournalRead, Journal));
    let own = known(&[CallsRead], Own);
    let proposing = known(&[CallsCreate], Gate);
    let tools = known(&[CallsCreate, CallsRead, McpCall], About(ToolList, Daemon));
    let questions = known(&[ApprovalsRead, ApprovalsDecide], About(ApprovalList, Daemon));
    let answering = known(&[ApprovalsDecide], Named(ApprovalAnswer, Approval));
    let policy = known(&[ReadPolicy], About(PolicyRead, PolicySet));
    let pairing = known(&[DevicesManage], About(DevicePair, Device));
    let members = known(&[MembersRead], About(MemberList, Daemon));
    let managing = known(&[MembersManage], About(MemberManage, Member));
    let secrets = known(&[VaultRead, VaultManage], About(VaultList, Daemon));
    let binding = known(&[VaultManage], Gate);
    let keeping = known(&[VaultManage], About(VaultAdminister, Daemon));
    let skills = known(&[SkillsRead, SkillsManage, CallsCreate, CallsRead, McpCall], About(SkillList, Daemon));
    let installing = known(&[SkillsManage], Skill(SkillInstall));
    let stopping = known(&[SkillsManage], Skill(SkillQuarantine));
    let serving = known(&[ManageMcp], Named(McpManage, McpServer));
    let kept = |action| known(&[MemoryRead, ManageMemory], Kept(action));
    let forgetting = known(&[ManageMemory], About(MemoryManage, Memory));
    let scheduling = known(&[ManageCron], Named(CronManage, CronJob));
    vec![
        (get.clone(), "/healthz", Entry::Open),
        (get.clone(), "/readyz", Entry::Open),
        (get.clone(), "/openapi.json", Entry::Open),
        (get.clone(), "/metrics", journal),
        (get.clone(), "/api/v1/identity", known(&[], Nothing)),
        (post.clone(), "/api/v1/calls", proposing),
        (get.clone(), "/api/v1/calls", journal),
        (get.clone(), "/api/v1/calls/{id}", own),
        (delete.clone(), "/api/v1/calls/{id}", known(&[CallsCreate], Own)),
        (get.clone(), "/api/v1/calls/{id}/explanation", own),
        (post.clone(), "/api/v1/calls/{id}/replay", own),
        (post.clone(), "/api/v1/authorize", proposing),
        (get.clone(), "/api/v1/authorizations", journal),
        (get.clone(), "/api/v1/authorizations/{seq}/explanation", journal),
        (post.clone(), "/hooks/claude-code", proposing),
        (post.clone(), "/api/v1/runs", proposing),
        (get.clone(), "/api/v1/runs/{id}", own),
        (get.clone(), "/api/v1/runs/{id}/stream", own),
        (get.clone(), "/api/v1/runs/{id}/transcript", own),
        (get.clone(), "/api/v1/sessions", own),
        (get.clone(), "/api/v1/sessions/{id}", own),
        (delete.clone(), "/api/v1/sessions/{id}/transcript", known(&[Configure], About(DaemonConfigure, Daemon))),
        (get.clone(), "/api/v1/approvals", questions),
        (
            get.clone(),
            "/api/v1/approvals/{id}",
            known(&[ApprovalsRead, ApprovalsDecide], Named(ApprovalList, Approval)),
        ),
        (post.clone(), "/api/v1/approvals/{id}/approve", answering),
        (post.clone(), "/api/v1/approvals/{id}/deny", answering),
        (post.clone(), "/api/v1/approvals/unlock", known(&[ApprovalsDecide], About(ApprovalAnswer, Approval))),
        (get.clone(), "/api/v1/grants", questions),
        (delete.clone(), "/api/v1/grants/{id}", answering),
        (get.clone(), "/api/v1/tools", tools),
        (get.clone(), "/api/v1/workspaces", tools),
        (get.clone(), "/api/v1/postures", policy),
        (put.clone(), "/api/v1/postures", known(&[WritePolicy], Gate)),
        (delete.clone(), "/api/v1/postures", known(&[WritePolicy], Gate)),
        (get.clone(), "/api/v1/policy", policy),
        (post.clone(), "/api/v1/policy/reload", known(&[WritePolicy], About(PolicyWrite, PolicySet))),
        (post.clone(), "/api/v1/policy/replay", policy),
        (get.clone(), "/api/v1/journal/head", journal),
        (get.clone(), "/api/v1/journal/records", journal),
        (get.clone(), "/api/v1/journal/records/{seq}", journal),
        (get.clone(), "/api/v1/journal/proofs/{seq}", journal),
        (post.clone(), "/api/v1/journal/verify", journal),
        (get.clone(), "/api/v1/journal/export", journal),
        (get.clone(), "/api/v1/events", known(&[EventsRead, ReadJournal], About(JournalRead, Journal))),
        (get.clone(), "/api/v1/devices", known(&[DevicesRead, DevicesManage], About(DeviceList, Daemon))),
        (delete.clone(), "/api/v1/devices/{id}", known(&[DevicesManage], Own)),
        (post.clone(), "/api/v1/devices/pairings", pairing),
        (get.clone(), "/api/v1/devices/pairings/{id}", pairing),
        (delete.clone(), "/api/v1/devices/pairings/{id}", pairing),
        (post.clone(), "/api/v1/devices/pairings/{id}/confirm", pairing),
        (post.clone(), "/api/v1/devices/certificate", for_devices(Nothing)),
        (get.clone(), "/api/v1/authority", known(&[DevicesRead, DevicesManage], About(DeviceList, Daemon))),
        (post.clone(), "/api/v1/authority/rotation", known(&[Configure], About(DaemonConfigure, Daemon))),
        (get.clone(), "/api/v1/tokens", known(&[TokensRead, TokensManage], About(TokenList, Daemon))),
        (get.clone(), "/api/v1/scopes", known(&[], About(TokenList, Daemon))),
        (post.clone(), "/api/v1/tokens", known(&[TokensManage], About(TokenCreate, Token))),
        (post.clone(), "/api/v1/tokens/{id}/rotate", known(&[TokensManage], Named(TokenCreate, Token))),
        (delete.clone(), "/api/v1/tokens/{id}", known(&[TokensManage], Own)),
        (get.clone(), "/api/v1/members", members),
        (put.clone(), "/api/v1/members/{user}", managing),
        (delete.clone(), "/api/v1/members/{user}", managing),
        (post.clone(), "/api/v1/invitations", managing),
        (delete.clone(), "/api/v1/invitations/{id}", managing),
        (get.clone(), "/api/v1/roles", members),
        (get.clone(), "/api/v1/flags", known(&[MembersRead, Configure], About(MemberList, Daemon))),
        (get.clone(), "/api/v1/vault", secrets),
        (get.clone(), "/api/v1/vault/secrets", secrets),
        (get.clone(), "/api/v1/vault/secrets/{scope}/{name}", secrets),
        (put.clone(), "/api/v1/vault/secrets/{scope}/{name}", known(&[VaultManage], Secret(VaultPut))),
        (delete.clone(), "/api/v1/vault/secrets/{scope}/{name}", known(&[VaultManage], Secret(VaultDelete))),
        (post.clone(), "/api/v1/vault/bindings", binding),
        (delete.clone(), "/api/v1/vault/bindings/{id}", binding),
        (post.clone(), "/api/v1/vault/rotate", keeping),
        (post.clone(), "/api/v1/vault/unlock", keeping),
        (post.clone(), "/api/v1/vault/adopt", keeping),
        (post.clone(), "/api/v1/vault/export", keeping),
        (post.clone(), "/api/v1/vault/import", keeping),
        (get.clone(), "/api/v1/skills", skills),
        (post.clone(), "/api/v1/skills", installing),
        (post.clone(), "/api/v1/skills/inspect", installing),
        (get.clone(), "/api/v1/skills/{publisher}/{name}", skills),
        (delete.clone(), "/api/v1/skills/{publisher}/{name}", known(&[SkillsManage], Skill(SkillRemove))),
        (put.clone(), "/api/v1/skills/{publisher}/{name}/grants", known(&[SkillsManage], Skill(SkillGrant))),
        (post.clone(), "/api/v1/skills/{publisher}/{name}/quarantine", stopping),
        (delete.clone(), "/api/v1/skills/{publisher}/{name}/quarantine", stopping),
        (get.clone(), "/api/v1/publishers", known(&[SkillsRead, SkillsManage], About(SkillList, Daemon))),
        (put.clone(), "/api/v1/publishers/{publisher}/keys", installing),
        (delete.clone(), "/api/v1/publishers/{publisher}/keys/{key_id}", installing),
        (get.clone(), "/api/v1/mcp", known(&[McpRead, ManageMcp], About(McpList, Daemon))),
        (get.clone(), "/api/v1/mcp/{name}", known(&[McpRead, ManageMcp], Named(McpList, McpServer))),
        (put.clone(), "/api/v1/mcp/{name}", serving),
        (delete.clone(), "/api/v1/mcp/{name}", serving),
        (post.clone(), "/api/v1/mcp/{name}/pins", serving),
        (get.clone(), "/api/v1/memory", kept(MemoryList)),
        (delete.clone(), "/api/v1/memory", forgetting),
        (delete.clone(), "/api/v1/memory/{id}", forgetting),
        (get.clone(), "/api/v1/memory/scopes", known(&[MemoryRead, ManageMemory], About(MemoryManage, Memory))),
        (get.clone(), "/api/v1/artifacts", kept(ArtifactList)),
        (get.clone(), "/api/v1/artifacts/{id}", kept(ArtifactGet)),
        (delete.clone(), "/api/v1/artifacts/{id}", forgetting),
        (get.clone(), "/api/v1/cron", known(&[CronRead, ManageCron], About(CronList, Daemon))),
        (post.clone(), "/api/v1/cron/{id}/pause", scheduling),
        (post.clone(), "/api/v1/cron/{id}/resume", scheduling),
        (delete.clone(), "/api/v1/cron/{id}", scheduling),
        (get.clone(), "/v1/models", known(&[CompatModelsRead], Gate)),
        (get.clone(), "/v1/models/{id}", known(&[CompatModelsRead], Gate)),
        (post.clone(), "/v1/chat/completions", known(&[CompatChatCreate], Gate)),
        (post.clone(), "/v1/responses", known(&[CompatResponsesCreate], Gate)),
        (get.clone(), "/v1/responses/{id}", known(&[CompatResponsesCreate], Own)),
        (delete.clone(), "/v1/responses/{id}", known(&[CompatResponsesCreate], Own)),
        (get.clone(), "/v1/responses/{id}/input_items", known(&[CompatResponsesCreate], Own)),
        (post.clone(), "/v1/embeddings", known(&[CompatEmbeddingsCreate], Gate)),
        (get.clone(), "/mcp", for_programs(&[McpCall], Gate)),
        (post.clone(), "/mcp", for_programs(&[McpCall], Gate)),
        (delete.clone(), "/mcp", for_programs(&[McpCall], Gate)),
        (put, "/api/v1/flags/{name}", known(&[Configure], About(DaemonConfigure, Daemon))),
        (post.clone(), "/api/v1/console/links", for_devices(About(ApprovalList, Daemon))),
        (post, "/api/v1/console/session", Entry::Open),
        (
            delete,
            "/api/v1/console/session",
            Entry::Known(Needs { credentials: Credentials::Console, scopes: &[], asks: Nothing }),
        ),
    ]
}
