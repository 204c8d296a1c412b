//! What our own tools mean when another program does what they do, and what a tool means that nobody here knows.
//!
//! Guarantees: what names no file, host or program where the tool needs one is refused, and so is an argument that only Palyra could keep to,
//! such as a tier. Whatever a program is given beside its words is read, too. Of a tool that is not known, the worst is assumed.

use std::collections::BTreeMap;

use palyra_api::authorize::Authorize;
use palyra_gate::{Elsewhere, HostPort, Wants};
use palyra_types::{HostName, ToolCapability};
use serde_json::{Map, Value};

use super::Wanted;
use crate::failure::Failure;

/// What is wanted.
///
/// # Errors
/// When the arguments do not say.
pub fn wanted(asked: Authorize) -> Result<Wanted, Failure> {
    let Authorize { tool, args, cwd, workspace, conversation, on_ask: _ } = asked;
    let mut elsewhere =
        Elsewhere { tool: tool.to_string(), cwd, wants: Wants::default(), needs: WORST.iter().copied().collect() };
    let wants = &mut elsewhere.wants;
    match tool.as_str() {
        "process.run" => {
            known(&args, &["command", "cwd", "env", "stdin", "timeout_seconds", "egress_hosts"])?;
            wants.command = command(&args)?;
            wants.env = variables(&args)?;
            let hosts = texts(&args, "egress_hosts")?;
            if hosts.len() > MOST_HOSTS {
                return Err(bad(format!("`egress_hosts` names more than {MOST_HOSTS} hosts")));
            }
            wants.hosts = hosts.iter().map(|host| host_and_port(host)).collect::<Result<_, _>>()?;
            if let Some(own) = optional(&args, "cwd")? {
                if [Some(own), elsewhere.cwd.as_deref()].into_iter().flatten().any(is_padded) {
                    return Err(bad("`cwd` begins or ends with a blank".to_owned()));
                }
                elsewhere.cwd = Some(within(elsewhere.cwd.as_deref(), own));
            }
        }
        "fs.read" => wants.reads.push(text(&args, "path")?.to_owned()),
        "fs.list" | "fs.search" => wants.searches.push(optional(&args, "path")?.unwrap_or(".").to_owned()),
        "fs.write" => wants.writes.push(text(&args, "path")?.to_owned()),
        "http.fetch" => {
            if args.contains_key("secrets") {
                return Err(not_here("secrets"));
            }
            wants.urls.push(text(&args, "url")?.to_owned());
        }
        _ => {}
    }
    Ok(Wanted { tool, args, elsewhere, workspace, conversation })
}

/// A command: its words, or a line for a shell.
fn command(args: &Map<String, Value>) -> Result<Vec<String>, Failure> {
    match args.get("command") {
        Some(Value::String(line)) => Ok(shell(line)),
        Some(Value::Array(_)) => match texts(args, "command")? {
            words if words.is_empty() => Err(missing("command")),
            words => Ok(words),
        },
        _ => Err(missing("command")),
    }
}

/// The command that has a shell read a line.
pub(super) fn shell(line: &str) -> Vec<String> {
    ["bash", "-c", line].map(str::to_owned).to_vec()
}

/// The variables that a command is given.
fn variables(args: &Map<String, Value>) -> Result<BTreeMap<String, String>, Failure> {
    let given = match args.get("env") {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(given)) if given.len() > MOST_VARIABLES => {
            return Err(bad(format!("`env` has more than {MOST_VARIABLES} variables")));
        }
        Some(Value::Object(given)) => given,
        Some(_) => return Err(bad("`env` is no object of variables".to_owned())),
    };
    let variable = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    let read = given.iter().map(variable).collect::<Option<_>>();
    read.ok_or_else(|| bad("`env` holds something else than texts".to_owned()))
}

/// A directory as it is seen from another.
fn within(outer: Option<&str>, inner: &str) -> String {
    match outer {
        Some(outer) if !inner.starts_with('/') => format!("{outer}/{inner}"),
        _ => inner.to_owned(),
    }
}

/// Whether there are blanks at an end of a text, which some programs take away before they read it.
pub(super) fn is_padded(text: &str) -> bool {
    text.trim_matches(|sign: char| sign.is_whitespace() || sign == '\u{feff}') != text
}

/// A required text.
pub(super) fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    optional(args, name)?.ok_or_else(|| missing(name))
}

/// A text that may be left out.
pub(super) fn optional<'a>(args: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Failure> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(format!("`{name}` is no text"))),
    }
}

fn texts(args: &Map<String, Value>, name: &str) -> Result<Vec<String>, Failure> {
    let Some(value) = args.get(name) else { return Ok(Vec::new()) };
    let items = value.as_array().ok_or_else(|| bad(format!("`{name}` is no list")))?;
    let text = |item: &Value| item.as_str().map(str::to_owned);
    items
        .iter()
        .map(text)
        .collect::<Option<_>>()
        .ok_or_else(|| bad(format!("`{name}` holds something else than texts")))
}

fn host_and_port(text: &str) -> Result<HostPort, Failure> {
    let read = || {
        let (host, port) = text.rsplit_once(':')?;
        Some(HostPort { host: HostName::parse(host).ok()?, port: port.parse().ok()? })
    };
    read().ok_or_else(|| bad("a host is written like example.org:443".to_owned()))
}

fn known(args: &Map<String, Value>, names: &[&str]) -> Result<(), Failure> {
    match args.keys().find(|name| !names.contains(&name.as_str())) {
        Some(other) => Err(not_here(other)),
        None => Ok(()),
    }
}

fn missing(name: &str) -> Failure {
    bad(format!("`{name}` is missing"))
}

fn not_here(name: &str) -> Failure {
    let name = palyra_types::visible::visible(name);
    bad(format!("`{name}` means nothing for what another program does itself"))
}

fn bad(message: String) -> Failure {
    Failure::new("bad_arguments", message, "docs/hooks.md says what each tool takes")
}

/// As many as our own calls may name.
const MOST_HOSTS: usize = 64;

/// As many as our own calls may have.
const MOST_VARIABLES: usize = 128;

/// What a tool may need that nobody here knows.
pub(super) const WORST: &[ToolCapability] = &[
    ToolCapability::ProcessExec,
    ToolCapability::Network,
    ToolCapability::FilesystemRead,
    ToolCapability::FilesystemWrite,
];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(args: Value) -> Result<Wants, Failure> {
        let asked = serde_json::from_value(json!({ "tool": "process.run", "args": args })).unwrap();
        wanted(asked).map(|wanted| wanted.elsewhere.wants)
    }

    #[test]
    fn what_a_program_is_given_is_part_of_what_is_wanted() {
        let wants = asked(json!({ "command": ["make"], "env": { "B": "2", "A": "" } })).unwrap();
        let env = [("A", ""), ("B", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(wants, Wants { command: vec!["make".to_owned()], env: env.into(), ..Wants::default() });
        for none in [json!({ "command": ["make"] }), json!({ "command": ["make"], "env": null })] {
            assert_eq!(asked(none).unwrap().env, BTreeMap::new());
        }
    }

    #[test]
    fn variables_that_are_no_texts_are_refused() {
        let many: Map<String, Value> = (0..=MOST_VARIABLES).map(|index| (format!("V{index}"), json!("x"))).collect();
        for env in [json!("A=1"), json!(["A=1"]), json!({ "A": 1 }), json!({ "A": null }), Value::Object(many)] {
            let code = asked(json!({ "command": ["make"], "env": &env })).map_err(|failure| failure.detail.code);
            assert_eq!(code.err().as_deref(), Some("bad_arguments"), "{env}");
        }
    }
}
