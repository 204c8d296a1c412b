//! `palyra skills run`: calls a tool of a skill, and prints what came of it.
//!
//! Guarantees: it is a call as any other: decided about, asked about, attested.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_api::{call::NewCall, skill::SkillTool};
use palyra_client::Client;
use palyra_package::PackageId;
use palyra_types::{ToolName, WorkspaceName, word::nearest};
use serde_json::{Map, Value};

use super::unknown::known;
use crate::{
    Outcome,
    at::At,
    commands::call::{Came, follow},
    connection::Connection,
    exit::Exit,
    failure::Failure,
    follow::YesFlag,
    outcome,
    terminal::Terminal,
};

#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
    /// The tool, as the skill calls it. Can be left out if the skill has only one.
    tool: Option<String>,
    /// What it is given, as a JSON object, also where the tool is left out; `-` reads that from standard input. Without it, an empty one.
    #[arg(value_name = "JSON", conflicts_with = "input")]
    arguments: Option<String>,
    /// Read what it is given from this file.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The configured workspace to work in.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    #[command(flatten)]
    yes: YesFlag,
}

pub(super) fn run(args: &RunArgs, at: &At, terminal: &Terminal) -> Outcome {
    let args = &args.settled();
    let fields = args.arguments()?;
    let connection = Connection::find(at, terminal)?;
    let outcome = connection.run(async |daemon| {
        let tool = args.tool(daemon).await?;
        let call = NewCall { workspace: args.workspace.clone(), ..NewCall::new(tool, fields) };
        match follow(daemon, daemon, (&call, None), args.yes.answering(), terminal).await {
            Ok(Came::Over(call)) => Ok(outcome::exit(&call)),
            Ok(Came::Withdrawn) => Ok(Exit::Interrupted),
            Err(failure) => Err(args.refused(daemon, failure).await),
        }
    });
    let fits = format!("`palyra --json skills show {}` shows what each of its tools takes", args.id);
    outcome.map_err(|failure| failure.advised("bad_arguments", &fits))
}

impl RunArgs {
    /// With what it is given in its place, if that stands where the tool is left out.
    fn settled(&self) -> Self {
        match &self.tool {
            Some(word) if is_input(word) && self.arguments.is_none() && self.input.is_none() => {
                Self { tool: None, arguments: Some(word.clone()), ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// The tool that is meant: the one that is named, or the only one that there is.
    async fn tool(&self, daemon: &Client) -> Result<ToolName, Failure> {
        if let Some(name) = self.tool.as_deref().and_then(|word| self.id.tool_name(word).ok()) {
            return Ok(name);
        }
        let skill = known(daemon, &self.id, daemon.skill(self.id.skill_id())).await?;
        match (&self.tool, skill.tools.as_slice()) {
            (Some(word), tools) => Err(self.no_such_tool(word, tools, Exit::Usage)),
            (None, [only]) => Ok(only.name.clone()),
            (None, several) => {
                let names = names(several);
                let what = format!("it is not said which tool of {} to call", self.id);
                let first = names.first().copied().unwrap_or("TOOL");
                let help = format!("name one, for example: palyra skills run {} {first}", self.id);
                Err(Failure::new(Exit::Usage, "no_tool", what, format!("it has {}", names.join(", ")), help))
            }
        }
    }

    /// A refusal, which names the tools if it is about one that does not exist.
    async fn refused(&self, daemon: &Client, failure: Failure) -> Failure {
        let (Some(word), "unknown_tool") = (&self.tool, failure.code.as_ref()) else { return failure };
        match known(daemon, &self.id, daemon.skill(self.id.skill_id())).await {
            Ok(skill) => Failure { call: failure.call, ..self.no_such_tool(word, &skill.tools, failure.exit) },
            Err(unknown) if unknown.code == "unknown_skill" => unknown,
            // Whoever may call a skill need not be let see what is installed.
            Err(_) => failure,
        }
    }

    fn no_such_tool(&self, word: &str, tools: &[SkillTool], exit: Exit) -> Failure {
        let (id, names) = (&self.id, names(tools));
        let what = format!("`{}` is no tool of {id}", beginning(word));
        let has = format!("it has {}", names.join(", "));
        let first = names.first().copied().unwrap_or("TOOL");
        let (cause, help) = match nearest(word, &names) {
            _ if is_input(word) => (
                format!("what it is given stands where the tool is named; {has}"),
                format!("name the tool before it: palyra skills run {id} {first} JSON"),
            ),
            Some(near) => (has, format!("did you mean `{near}`?")),
            None => (has, format!("`palyra skills show {id}` tells what each does")),
        };
        Failure::new(exit, "unknown_tool", what, cause, help)
    }

    fn arguments(&self) -> Result<Map<String, Value>, Failure> {
        let help = "for example '{\"text\": \"…\"}', --input FILE, or - for standard input";
        let refused =
            |cause: String| Failure::new(Exit::Usage, "arguments_invalid", "the arguments cannot be read", cause, help);
        let text = match (&self.arguments, &self.input) {
            (None, None) => return Ok(Map::new()),
            (Some(text), _) if text == "-" => from_stdin().map_err(|error| refused(error.to_string()))?,
            (Some(text), _) => text.clone(),
            (None, Some(path)) if path == Path::new("-") => from_stdin().map_err(|error| refused(error.to_string()))?,
            (None, Some(path)) => {
                fs::read_to_string(path).map_err(|error| refused(format!("{}: {error}", path.display())))?
            }
        };
        match serde_json::from_str(&text) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(refused("it is no JSON object".to_owned())),
            Err(error) => Err(refused(error.to_string())),
        }
    }
}

/// The names of tools, as the skill calls them.
fn names(tools: &[SkillTool]) -> Vec<&str> {
    tools.iter().filter_map(|tool| tool.name.as_str().rsplit('.').next()).collect()
}

/// As much of a word as a line has room for.
fn beginning(word: &str) -> String {
    match word.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()),
        None => word.to_owned(),
    }
}

/// How many characters of a word are repeated that is no tool.
const SHOWN: usize = 40;

/// Whether a word is what a tool is given, and no tool.
fn is_input(word: &str) -> bool {
    word == "-" || word.trim_start().starts_with(['{', '['])
}

fn from_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills run acme/hello count '{\"text\": \"Tea, or coffee?\"}'
  palyra skills run acme/diff --input texts.json     if it has one tool only
  palyra skills run acme/web fetch --yes '{\"url\": \"https://example.org/\"}'
  jq -n '{text: \"Tea\"}' | palyra --json skills run acme/hello count -";
