//! Claude Code: what its hooks hand over, what its tools mean, and what it expects to be answered.
//!
//! Guarantees: whatever `PreToolUse` hands over is answered with a decision, and with `deny` where it makes no sense, which is put on record
//! without what it says; any other event is put on record and answered with nothing, which blocks nothing.
//! Does not: know every tool there will be. One that is not known asks.

use palyra_api::authorize::Asking;
use palyra_gate::{Authorized, Elsewhere, Wants};
use palyra_policy::Verdict;
use palyra_types::{Sha256Digest, ToolCapability, ToolName, visible::visible};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Wanted, on_ask, pattern, proposal,
    vocabulary::{WORST, optional, shell, text},
};
use crate::{app::App, caller::Caller, compat::offering::is_function_of, extract::Garbled, failure::Failure};

/// Answers a hook.
pub async fn answer(app: &App, caller: &Caller, said: &Map<String, Value>, asking: Option<Asking>) -> Value {
    match said.get("hook_event_name").and_then(Value::as_str) {
        Some("PreToolUse") => match decide(app, caller, said, asking).await {
            Ok(authorized) => told(&authorized),
            Err(failure) => undecided(app, caller, said, &failure).await,
        },
        Some(_) => {
            heard(app, caller, said).await;
            json!({})
        }
        None => {
            let failure = Failure::bad_request("`hook_event_name` is missing, or no text");
            undecided(app, caller, said, &failure).await
        }
    }
}

/// Answers what is no JSON object, and so may be a question.
pub async fn answer_garbled(app: &App, caller: &Caller, garbled: &Garbled) -> Value {
    let Garbled { failure, sha256 } = garbled;
    // SECURITY: what is wrong with it is told by quoting it. Who hands it over knows it; a record would keep whatever it holds.
    let reason = "what the hook handed over is no JSON object".to_owned();
    let heard = Heard { sha256: *sha256, ..Heard::from(caller) };
    put_down(app, failure, reason, heard).await
}

/// A deny with its reason, and the number of its record if it has one.
#[must_use]
pub fn denied(failure: &Failure, record: Option<u64>) -> Value {
    let help = failure.detail.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
    decision("deny", &format!("Palyra: {}{help}{}", failure.detail.message, numbered(record)))
}

async fn decide(
    app: &App,
    caller: &Caller,
    said: &Map<String, Value>,
    asking: Option<Asking>,
) -> Result<Authorized, Failure> {
    let wanted = wanted(said)?;
    let governed = arrives_here(app, &wanted.elsewhere.tool);
    let proposal = proposal(app, caller, wanted).await?;
    Ok(match governed {
        true => app.gate.let_pass(&proposal, "a call of Palyra's own tools is decided about where it arrives").await,
        false => app.gate.authorize(proposal, on_ask(asking)).await,
    })
}

/// Whether a tool is one of Palyra's own, so that its call is decided about where it arrives.
fn arrives_here(app: &App, name: &str) -> bool {
    let registry = app.gate.registry();
    name_of_own(name).is_some_and(|own| registry.definitions().any(|tool| is_function_of(tool.name(), own)))
}

/// What one of Palyra's own tools would be called as a function. Another server can have a name that begins like Palyra's: where two could
/// be meant, it is none of ours.
fn name_of_own(name: &str) -> Option<&str> {
    name.strip_prefix(OWN_TOOLS).filter(|own| !own.starts_with('_') && !own.contains("__"))
}

/// What `PreToolUse` is about.
fn wanted(said: &Map<String, Value>) -> Result<Wanted, Failure> {
    let name = text(said, "tool_name")?;
    let cwd = optional(said, "cwd")?.map(str::to_owned);
    let conversation = optional(said, "session_id")?.map(str::to_owned);
    let mut args = match said.get("tool_input") {
        Some(Value::Object(args)) => args.clone(),
        _ => return Err(Failure::bad_request("`tool_input` is missing, or no object")),
    };
    let Meant { tool, wants, needs } = meant(name, &args)?;
    // What the agent says about a command is no part of it, and would tell equal commands apart.
    if !wants.command.is_empty() {
        args.remove("description");
    }
    let tool = ToolName::parse(&tool).map_err(|error| Failure::bad_request(error.to_string()))?;
    let elsewhere = Elsewhere { tool: name.to_owned(), cwd, wants, needs: needs.iter().copied().collect() };
    Ok(Wanted { tool, args, elsewhere, workspace: None, conversation })
}

/// What a tool means.
struct Meant {
    /// Its name in the words of policy.
    tool: String,
    wants: Wants,
    /// What it needs from the machine, if it is no tool of ours.
    needs: &'static [ToolCapability],
}

impl Meant {
    fn ours(tool: &str, wants: Wants) -> Self {
        Self { tool: tool.to_owned(), wants, needs: WORST }
    }
}

fn meant(name: &str, args: &Map<String, Value>) -> Result<Meant, Failure> {
    let path = |key: &str| text(args, key).map(|path| vec![path.to_owned()]);
    let reads = |reads: Vec<String>| Meant::ours("fs.read", Wants { reads, ..Wants::default() });
    let writes = |writes: Vec<String>| Meant::ours("fs.write", Wants { writes, ..Wants::default() });
    let searches = |searches: Vec<String>| Meant::ours("fs.search", Wants { searches, ..Wants::default() });
    Ok(match name {
        "Bash" | "Monitor" => {
            let command = shell(text(args, "command")?);
            Meant::ours("process.run", Wants { command, ..Wants::default() })
        }
        "Read" => reads(path("file_path")?),
        "NotebookRead" => reads(path("notebook_path")?),
        "LS" => Meant { tool: "fs.list".to_owned(), ..searches(path("path")?) },
        "Grep" => searches(vec![optional(args, "path")?.unwrap_or(".").to_owned()]),
        "Glob" => searches(vec![pattern::start(optional(args, "path")?, text(args, "pattern")?)?]),
        "Write" | "Edit" | "MultiEdit" => writes(path("file_path")?),
        "NotebookEdit" => writes(path("notebook_path")?),
        "WebFetch" => {
            Meant::ours("http.fetch", Wants { urls: vec![text(args, "url")?.to_owned()], ..Wants::default() })
        }
        _ => foreign(name)?,
    })
}

/// A tool of a server, or one that only Claude Code has.
fn foreign(name: &str) -> Result<Meant, Failure> {
    let wants = Wants::default();
    let Some(rest) = name.strip_prefix("mcp__") else {
        let needs: &[ToolCapability] = match name {
            "WebSearch" => &[ToolCapability::Network],
            name if INTERNAL.contains(&name) => &[],
            _ => WORST,
        };
        return Ok(Meant { tool: format!("claude-code.{name}"), wants, needs });
    };
    match rest.split_once("__") {
        // A dot in its name would make it another server to policy.
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() && !server.contains('.') => {
            Ok(Meant { tool: format!("mcp.{server}.{tool}"), wants, needs: WORST })
        }
        _ => Err(Failure::bad_request(format!("`{}` names no tool of a server", visible(name)))),
    }
}

/// A decision as Claude Code reads it.
fn told(authorized: &Authorized) -> Value {
    let Authorized { verdict, reason, help, record, .. } = authorized;
    let word = match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    };
    let help = help.as_deref().filter(|_| *verdict == Verdict::Deny).map(|help| format!(" ({help})"));
    decision(word, &format!("Palyra: {reason}{}{}", help.unwrap_or_default(), numbered(*record)))
}

/// The number by which a decision is known.
fn numbered(record: Option<u64>) -> String {
    record.map(|seq| format!(" [record {seq}]")).unwrap_or_default()
}

fn decision(word: &str, reason: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": word, "permissionDecisionReason": visible(reason),
    } })
}

/// Puts an event on record that nobody decides about. Whether that works is nothing that should stop the agent: it asks before it acts.
async fn heard(app: &App, caller: &Caller, said: &Map<String, Value>) {
    if let Err(error) = app.gate.hook_told(&Heard::by(caller, said)).await {
        tracing::warn!(%error, "what a hook tells cannot be recorded");
    }
}

/// Denies what makes no proposal.
async fn undecided(app: &App, caller: &Caller, said: &Map<String, Value>, failure: &Failure) -> Value {
    let reason = failure.detail.message.chars().take(LONGEST).collect();
    put_down(app, failure, reason, Heard::by(caller, said)).await
}

/// Denies what cannot be decided about, and puts that on record. It is denied also where that does not work.
async fn put_down(app: &App, failure: &Failure, reason: String, heard: Heard<'_>) -> Value {
    let (code, advice) = (failure.detail.code.as_str(), failure.detail.help.as_deref());
    let recorded = app.gate.hook_refused(&Undecided { verdict: Verdict::Deny, code, reason, advice, heard }).await;
    if let Err(error) = &recorded {
        tracing::warn!(%error, "what was denied to a hook cannot be recorded");
    }
    denied(failure, recorded.ok())
}

/// The body of `hook.decided` about what makes no proposal.
#[derive(Serialize)]
struct Undecided<'a> {
    verdict: Verdict,
    code: &'a str,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a str>,
    #[serde(flatten)]
    heard: Heard<'a>,
}

/// The body of `hook.told`.
#[derive(Serialize)]
struct Heard<'a> {
    program: &'a str,
    principal: String,
    channel: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256Digest>,
}

impl<'a> Heard<'a> {
    /// What somebody told: its names, and a digest of everything.
    fn by(caller: &'a Caller, said: &Map<String, Value>) -> Self {
        let short =
            |name: &str| said.get(name).and_then(Value::as_str).map(|text| text.chars().take(LONGEST).collect());
        Self {
            event: short("hook_event_name"),
            conversation: short("session_id"),
            tool: short("tool_name"),
            tool_use: short("tool_use_id"),
            sha256: serde_json::to_vec(said).map(|bytes| Sha256Digest::of(&bytes)).ok(),
            ..Self::from(caller)
        }
    }
}

impl<'a> From<&'a Caller> for Heard<'a> {
    /// Who told something, and nothing of what.
    fn from(caller: &'a Caller) -> Self {
        Self {
            program: "claude-code",
            principal: caller.principal.to_string(),
            channel: caller.channel.as_str(),
            token: caller.token().map(ToString::to_string),
            event: None,
            conversation: None,
            tool: None,
            tool_use: None,
            sha256: None,
        }
    }
}

/// The tools of the server that Palyra itself is to Claude Code.
const OWN_TOOLS: &str = "mcp__palyra__";

/// Tools that keep Claude Code's own house and reach nothing: what a helper of it does asks by itself.
const INTERNAL: &[&str] = &[
    "Agent",
    "BashOutput",
    "EnterPlanMode",
    "KillBash",
    "KillShell",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
];

/// The longest text of an event that is kept.
const LONGEST: usize = 128;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]
mod tests {
    use super::*;

    fn of(name: &str, args: Value) -> (String, Wants) {
        let Value::Object(args) = args else { panic!("no object") };
        let Meant { tool, wants, .. } = meant(name, &args).unwrap();
        (tool, wants)
    }

    #[test]
    fn each_tool_means_what_the_matching_one_of_ours_does() {
        let texts = |some: &[&str]| some.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let none = Wants::default;
        for (name, args, tool, wants) in [
            (
                "Bash",
                json!({ "command": "ls | wc", "description": "Counts" }),
                "process.run",
                Wants { command: texts(&["bash", "-c", "ls | wc"]), ..none() },
            ),
            ("Read", json!({ "file_path": "/a" }), "fs.read", Wants { reads: texts(&["/a"]), ..none() }),
            ("NotebookRead", json!({ "notebook_path": "/n" }), "fs.read", Wants { reads: texts(&["/n"]), ..none() }),
            ("LS", json!({ "path": "/d" }), "fs.list", Wants { searches: texts(&["/d"]), ..none() }),
            ("Grep", json!({ "pattern": "x" }), "fs.search", Wants { searches: texts(&["."]), ..none() }),
            ("Grep", json!({ "pattern": "x", "path": "s" }), "fs.search", Wants { searches: texts(&["s"]), ..none() }),
            (
                "Write",
                json!({ "file_path": "/a", "content": "" }),
                "fs.write",
                Wants { writes: texts(&["/a"]), ..none() },
            ),
            ("Edit", json!({ "file_path": "/a" }), "fs.write", Wants { writes: texts(&["/a"]), ..none() }),
            ("MultiEdit", json!({ "file_path": "/a" }), "fs.write", Wants { writes: texts(&["/a"]), ..none() }),
            ("NotebookEdit", json!({ "notebook_path": "/n" }), "fs.write", Wants { writes: texts(&["/n"]), ..none() }),
            (
                "WebFetch",
                json!({ "url": "https://example.org/a", "prompt": "p" }),
                "http.fetch",
                Wants { urls: texts(&["https://example.org/a"]), ..none() },
            ),
            ("WebSearch", json!({ "query": "q" }), "claude-code.WebSearch", none()),
            ("Task", json!({}), "claude-code.Task", none()),
            ("Teleport", json!({}), "claude-code.Teleport", none()),
            ("mcp__github__issue", json!({}), "mcp.github.issue", none()),
        ] {
            assert_eq!(of(name, args), (tool.to_owned(), wants), "{name}");
        }
    }

    #[test]
    fn only_what_no_other_server_could_mean_is_a_name_of_ours() {
        assert_eq!(name_of_own("mcp__palyra__fs_read"), Some("fs_read"));
        for name in ["fs_read", "mcp__palyrax__fs_read", "mcp__palyra___read", "mcp__palyra__evil__read"] {
            assert_eq!(name_of_own(name), None, "{name}");
        }
    }

    #[test]
    fn what_names_no_tool_of_a_server_is_refused() {
        for name in ["mcp__", "mcp__github", "mcp____x", "mcp__a__", "mcp__a.b__x"] {
            assert!(meant(name, &Map::new()).is_err(), "{name}");
        }
    }
}
