//! `palyra journal tail`: the last records, and those to come.

use clap::Args;
use palyra_api::{
    Event,
    journal::{Record, RecordQuery},
};
use palyra_types::{Timestamp, visible::visible};
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    failure::Failure,
    lifeline::Lifeline,
    terminal::{BOLD, DIM, Terminal},
};

#[derive(Args)]
pub(crate) struct TailArgs {
    /// How many.
    #[arg(short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// Go on with what happens next, until it is interrupted.
    #[arg(long, short)]
    follow: bool,
}

pub(super) fn run(args: &TailArgs, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| {
        let records = daemon.records(&RecordQuery { from: None, limit: Some(args.count) }).await?;
        if terminal.json && !args.follow {
            terminal.document("journal.records", &records);
            return Ok(Exit::Ok);
        }
        for record in &records.records {
            if terminal.json {
                terminal.line("journal.record", record);
            } else {
                show(record, terminal);
            }
        }
        if !args.follow {
            return Ok(Exit::Ok);
        }
        follow(Lifeline::new(daemon.clone(), at, terminal), records.size.checked_sub(1), terminal).await
    })
}

async fn follow(mut daemon: Lifeline<'_>, mut last: Option<u64>, terminal: &Terminal) -> Outcome {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(Exit::Failure, "signals", "the program cannot start", error.to_string(), "try again")
    })?;
    loop {
        match events(&mut daemon, &mut last, &mut interrupt, terminal).await {
            Ok(()) => return Ok(Exit::Ok),
            Err(failure) => {
                if daemon.wait(failure, &mut interrupt).await? {
                    return Ok(Exit::Ok);
                }
            }
        }
    }
}

async fn events(
    daemon: &mut Lifeline<'_>,
    last: &mut Option<u64>,
    interrupt: &mut Signal,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut stream = daemon.events(*last).await?;
    loop {
        let event = tokio::select! {
            event = stream.next() => event?,
            _ = interrupt.recv() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(Lifeline::lost());
        };
        *last = stream.last_id().or(*last);
        if event.seq.is_none() {
            continue;
        }
        if terminal.json {
            terminal.line("event", &event);
        } else {
            happened(&event, terminal);
        }
    }
}

fn show(record: &Record, terminal: &Terminal) {
    let header: Value = serde_json::from_str(&record.record).unwrap_or_default();
    let subject = |key: &str| header.get(key).and_then(Value::as_str);
    let about = subject("call").map(|id| format!("call {id}")).or_else(|| subject("run").map(|id| format!("run {id}")));
    let body = record.body.as_ref().map_or_else(|| "(erased)".to_owned(), |body| gist(&record.kind, body));
    line(record.seq, record.time, &record.kind, (about.as_deref(), &body), terminal);
}

fn happened(event: &Event, terminal: &Terminal) {
    let about = event.call_id.map(|id| format!("call {id}")).or_else(|| event.run_id.map(|id| format!("run {id}")));
    let body = if event.data.is_null() { "(erased)".to_owned() } else { gist(&event.kind, &event.data) };
    line(event.seq.unwrap_or_default(), event.time, &event.kind, (about.as_deref(), &body), terminal);
}

fn line(seq: u64, time: Timestamp, kind: &str, (about, gist): (Option<&str>, &str), terminal: &Terminal) {
    let about = about.map(visible).unwrap_or_default();
    terminal.out_rows(format!(
        "{seq:>6}  {}  {}  {about}  {gist}",
        terminal.paint(DIM, &time.to_string()),
        terminal.paint(BOLD, &format!("{:<18}", visible(kind)))
    ));
}

/// A few words of what a record says; `palyra journal show` shows all of it.
fn gist(kind: &str, body: &Value) -> String {
    if kind.split_once('.').is_some_and(|(noun, _)| ABOUT_ACCESS.contains(&noun)) {
        return access(body);
    }
    if kind.starts_with("vault.") {
        return vault(body);
    }
    if let Some(summary) = body.get("summary").and_then(Value::as_str).filter(|_| is_about_skills(kind)) {
        let by = body.get("by").and_then(Value::as_str).map(|by| format!("by {}, ", visible(by)));
        return format!("{}{}", by.unwrap_or_default(), visible(summary));
    }
    if let Some(connection) = connection(body) {
        return connection;
    }
    let words = ["tool", "verdict", "state", "ending", "by", "code", "refused", "origin"];
    let find = |key: &str| {
        let nested = ["proposal", "decision", "answer", "attestation", "prompt"];
        body.get(key)
            .or_else(|| nested.iter().find_map(|part| body.get(part)?.get(key)))
            .and_then(Value::as_str)
            .map(|text| format!("{key} {}", visible(text)))
    };
    // An attestation is the first line of a signed note.
    let attested = body.get("note").and_then(Value::as_str).and_then(|note| note.lines().next());
    let attested = attested.and_then(|line| serde_json::from_str::<Value>(line).ok());
    let ending = attested.as_ref().and_then(|attested| attested.get("ending")?.as_str());
    let ending = ending.map(|ending| format!("ending {}", visible(ending)));
    let gist = words.iter().filter_map(|key| find(key)).chain(ending).collect::<Vec<_>>().join(", ");
    match body.get("args").and_then(Value::as_object) {
        Some(args) if !args.is_empty() => format!("{gist}: {}", shortened(&proposed(args))),
        _ => gist,
    }
}

fn is_about_skills(kind: &str) -> bool {
    kind.starts_with("skill.") || kind.starts_with("publisher.")
}

/// What changed about who is let in, or was tried.
fn access(body: &Value) -> String {
    let words = ["by", "id", "name", "user", "for", "role", "feature", "to", "step", "from", "why"];
    let word = |key: &&str| Some(format!("{key} {}", visible(body.get(key)?.as_str()?)));
    words.iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

/// What became of the vault, or of a secret.
fn vault(body: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => Some(visible(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let named = |one: &Value| one.get("secret").or_else(|| one.get("terms")?.get("secret")).and_then(text);
    let lists = ["put", "bound"].iter().filter_map(|key| {
        let names: Vec<String> = body.get(key)?.as_array()?.iter().filter_map(named).collect();
        (!names.is_empty()).then(|| format!("{key} {}", names.join(" ")))
    });
    let flags = ["rekeyed", "adopted"].iter().filter(|key| body.get(key) == Some(&Value::Bool(true)));
    let words = ["by", "secret", "removed", "version", "unbound", "handed", "position", "host", "port", "backend"];
    let words = words.iter().chain(&["generation", "what", "refused"]);
    let words = words.filter_map(|key| Some(format!("{key} {}", text(body.get(key)?)?)));
    words.chain(lists).chain(flags.map(|flag| (*flag).to_owned())).collect::<Vec<_>>().join(", ")
}

/// What became of a connection.
fn connection(body: &Value) -> Option<String> {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(visible);
    let number = |key: &str| body.get(key).and_then(Value::as_u64);
    let (named, via, outcome) = (text("named")?, text("via")?, body.get("outcome")?);
    let became = match outcome.get("refused").and_then(|refused| refused.get("kind")?.as_str()) {
        Some(kind) => format!("refused: {}", visible(kind)),
        None => format!("{}, sent {}, received {}", visible(outcome.as_str()?), number("sent")?, number("received")?),
    };
    let at = text("address").map(|address| format!(" at {address}")).unwrap_or_default();
    Some(format!("{named} port {}{at} by {via}, {became}", number("port")?))
}

/// What was proposed: the words of a command, else the arguments by name, the path first.
fn proposed(args: &Map<String, Value>) -> String {
    let word = |value: &Value| match value.as_str() {
        // A word that could be taken for several, or for none, has its ends shown.
        Some(text) if text.is_empty() || text.contains([' ', '"']) => {
            format!("\"{}\"", visible(text).replace('\\', "\\\\").replace('"', "\\\""))
        }
        Some(text) => visible(text),
        None => visible(&value.to_string()),
    };
    if let Some(command) = args.get("command").and_then(Value::as_array) {
        return command.iter().map(word).collect::<Vec<_>>().join(" ");
    }
    let (path, others): (Vec<_>, Vec<_>) = args.iter().partition(|(name, _)| *name == "path");
    let named = path.into_iter().chain(others).map(|(name, value)| format!("{}={}", visible(name), word(value)));
    named.collect::<Vec<_>>().join(" ")
}

/// The beginning of a text that takes a line of its own where it is shown whole.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The first words of records about who is let in.
const ABOUT_ACCESS: &[&str] = &["access", "authority", "console", "device", "feature", "member", "pairing", "token"];

/// How many characters of what was proposed are shown.
const MOST_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proposal_says_what_was_proposed_in_one_short_and_visible_line() {
        let run = |command: Value| {
            gist("tool.proposed", &json!({ "tool": "process.run", "args": { "command": command, "cwd": "src" } }))
        };
        assert_eq!(run(json!(["git", "log", "-1"])), "tool process.run: git log -1");
        assert_ne!(run(json!(["cat", "a x\" \"b y"])), run(json!(["cat", "a x", "b y"])));
        assert_eq!(
            run(json!(["echo", "two words", "", "\u{202e}\n"])),
            "tool process.run: echo \"two words\" \"\" <U+202E><U+000A>"
        );
        assert_eq!(run(json!(["echo", "x".repeat(100)])), format!("tool process.run: echo {}…", "x".repeat(75)));
        let write = json!({ "tool": "fs.write", "args": { "content": "a b", "path": "notes" } });
        assert_eq!(gist("tool.proposed", &write), "tool fs.write: path=notes content=\"a b\"");
        assert_eq!(
            gist("tool.proposed", &json!({ "tool": "fs.list", "args": { "depth": 1 } })),
            "tool fs.list: depth=1"
        );
        assert_eq!(gist("tool.proposed", &json!({ "tool": "fs.list", "args": {} })), "tool fs.list");
        assert_eq!(gist("tool.attested", &json!({ "refused": "no_sandbox", "reason": "none" })), "refused no_sandbox");
    }

    #[test]
    fn a_change_of_who_is_let_in_says_who_made_it_and_what_it_is_about() {
        let minted =
            json!({ "by": "user:ada", "id": "tok-1", "name": "ci\u{202e}", "role": null, "scopes": ["calls.read"] });
        assert_eq!(gist("token.minted", &minted), "by user:ada, id tok-1, name ci<U+202E>");
        let failed =
            json!({ "from": "192.0.2.7:50000", "pairing": null, "why": "its time was over", "guesses_left": 2 });
        assert_eq!(gist("pairing.failed", &failed), "from 192.0.2.7:50000, why its time was over");
    }
}
