//! `process.run`: runs a program in the workspace.
//!
//! Arguments are a list of words, never a line for a shell. They reach the program exactly as they are, hidden characters included;
//! only a NUL is refused, because the kernel would end the word there and the program would see another one than the approver.

use std::collections::{BTreeMap, BTreeSet};

use palyra_policy::Touch;
use palyra_sandbox::check_variable;
use palyra_types::{
    AbsolutePath, HostName, JsonError, JsonObject, SandboxTier, Sha256Digest, ToolMetadata,
    process::{is_interpreter, is_launcher},
};
use rustix::fs::Stat;
use serde::Deserialize;
use serde_json::json;

use super::{
    program::{Program, digest_of},
    read,
};
use crate::{
    secret::{SecretArgs, SecretUse},
    tool::{HostPort, IntendError, Intent, Look, Opened, Place, ProcessWork, Script, Tool, ToolDefinition, Work},
    workspace::{Kind, Workspace},
};

pub(super) struct ProcessRun(ToolDefinition);

impl ProcessRun {
    pub(super) fn new(metadata: ToolMetadata) -> Result<Self, JsonError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "command": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 1024,
                    "description": "The program and its arguments, one item each. No shell reads them."
                },
                "cwd": { "type": "string", "minLength": 1, "description": "Where to start, relative to the workspace; the workspace itself if left out." },
                "env": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 128,
                    "description": "Variables in addition to the fixed ones."
                },
                "stdin": { "type": "string", "description": "What the program reads on its standard input." },
                "timeout_seconds": { "type": "integer", "minimum": 1, "maximum": 86_400, "description": "How long it may run." },
                "tier": { "enum": ["b", "c"], "description": "The tier to run in; policy may demand a stronger one." },
                "egress_hosts": {
                    "type": "array", "items": { "type": "string" }, "maxItems": 64,
                    "description": "The hosts it needs to reach, such as example.org:443."
                },
                "secrets": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 16,
                    "description": "Secrets to be used without being seen, by variable, such as {\"GITHUB_TOKEN\": \"global/github\"}. \
                        The variable holds a placeholder; on the way to a host that the secret is bound to, the value takes its place."
                },
                "secret_values": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 16,
                    "description": "Secrets whose values the program is given, by variable. A person is asked each time."
                },
                "secret_files": {
                    "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 16,
                    "description": "Secrets whose values the program is given in files; each variable holds a path. A person is asked each time."
                }
            },
            "required": ["command"],
            "additionalProperties": false
        });
        let description = "Runs a program in the workspace. A name without a slash is looked up in the configured directories; \
            there is no shell in between, and shells and other interpreters may be refused.";
        ToolDefinition::new(metadata, description, schema).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    command: Vec<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    timeout_seconds: Option<u32>,
    tier: Option<SandboxTier>,
    #[serde(default)]
    egress_hosts: Vec<String>,
    #[serde(default)]
    secrets: BTreeMap<String, String>,
    #[serde(default)]
    secret_values: BTreeMap<String, String>,
    #[serde(default)]
    secret_files: BTreeMap<String, String>,
}

impl Tool for ProcessRun {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn glances(&self) -> bool {
        true
    }

    fn intend(&self, args: &JsonObject, place: &Place<'_>) -> Result<Intent, IntendError> {
        let args: Args = read(args)?;
        let Args {
            command,
            cwd,
            env,
            stdin,
            timeout_seconds,
            tier,
            egress_hosts,
            secrets,
            secret_values,
            secret_files,
        } = args;
        let secrets = SecretArgs { secrets, secret_values, secret_files }.for_process(self.0.name(), &env, place)?;
        let hosts = egress_hosts.iter().map(|text| read_host(text)).collect::<Result<BTreeSet<_>, _>>()?;
        let wanted = Wanted { command, cwd, env, hosts, secrets };
        let work = ProcessWork {
            stdin_sha256: stdin.as_ref().map(|stdin| Sha256Digest::of(stdin.as_bytes())),
            stdin: stdin.map(String::into_bytes),
            timeout_seconds,
            tier,
            ..wanted.work(place)?
        };
        Ok(Intent { touches: touches(&work), work: Work::Process(work) })
    }
}

/// A program that is wanted, before it is looked for.
pub(crate) struct Wanted {
    pub(crate) command: Vec<String>,
    /// Relative to the workspace; the workspace itself if left out.
    pub(crate) cwd: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) hosts: BTreeSet<HostPort>,
    pub(crate) secrets: Vec<SecretUse>,
}

impl Wanted {
    /// What would be run, with everything in it found.
    ///
    /// # Errors
    /// When the words mean nothing that could be run.
    pub(crate) fn work(self, place: &Place<'_>) -> Result<ProcessWork, IntendError> {
        let Self { command, cwd, env, hosts, secrets } = self;
        check_words(&command)?;
        check_environment(&env)?;
        let workspace = place.workspace()?;
        if cwd.as_deref().is_some_and(|cwd| cwd != "." && cwd != workspace.root().as_str()) {
            place.whole()?;
        }
        let cwd = match place.look {
            Look::Glance => workspace.root().clone(),
            Look::Whole => workspace.resolve(cwd.as_deref().unwrap_or("."))?.directory()?,
        };
        let mut words = command.into_iter();
        let argv0 = words.next().ok_or(IntendError::NoProgram)?;
        let args: Vec<String> = words.collect();
        let program = Program::find(&argv0, &cwd, place)?;
        let runs_other_code = program.names().any(|name| is_interpreter(name) || is_launcher(name));
        if runs_other_code {
            place.whole()?;
        }
        let mut scripts = if runs_other_code { find_scripts(&args, &cwd, workspace) } else { BTreeMap::new() };
        scripts.extend(program.interpreters.into_iter().map(|script| (script.path.clone(), script)));
        Ok(ProcessWork {
            program: program.path,
            opened: Opened(program.opened),
            leads_to: program.leads_to,
            program_sha256: program.sha256,
            argv0,
            args,
            cwd,
            env,
            stdin_sha256: None,
            stdin: None,
            timeout_seconds: None,
            tier: None,
            hosts: hosts.into_iter().collect(),
            scripts: scripts.into_values().collect(),
            secrets,
        })
    }
}

/// What policy is asked about a program, besides what it is.
pub(crate) fn touches(work: &ProcessWork) -> Vec<Touch> {
    let hosts = work.hosts.iter().map(|HostPort { host, port }| Touch::Connect(host.clone(), *port));
    hosts.chain(work.secrets.iter().map(SecretUse::touch)).collect()
}

/// Refuses words that no program could be started with.
pub(crate) fn check_words(command: &[String]) -> Result<(), IntendError> {
    if let Some(index) = command.iter().position(|word| word.contains('\0')) {
        return Err(IntendError::Nul { what: format!("`command[{index}]`") });
    }
    let length = command.iter().map(|word| word.len() + 1).sum();
    within("the words of the command", length, MOST_WORDS)
}

/// Refuses variables that would have a program do something else than its words say.
pub(crate) fn check_environment(env: &BTreeMap<String, String>) -> Result<(), IntendError> {
    for (name, value) in env {
        check_variable(name)?;
        if value.contains('\0') {
            return Err(IntendError::Nul { what: format!("the variable `{}`", palyra_types::visible::visible(name)) });
        }
    }
    let length = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    within("the variables", length, MOST_VARIABLES)
}

fn within(what: &'static str, length: usize, limit: usize) -> Result<(), IntendError> {
    if length > limit { Err(IntendError::TooMuch { what, length, limit }) } else { Ok(()) }
}

/// Reads `host:port`; an IPv6 address stands in brackets, because it could not be told from its port otherwise.
fn read_host(text: &str) -> Result<HostPort, IntendError> {
    let malformed = || IntendError::HostWithoutPort(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    if host.contains(':') && !host.starts_with('[') {
        return Err(malformed());
    }
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    let port = port.parse().ok().filter(|_| plain).ok_or_else(malformed)?;
    Ok(HostPort { host: HostName::parse(host)?, port })
}

/// Every argument that names a file of the workspace, since which of them is the script depends on the interpreter.
fn find_scripts(args: &[String], cwd: &AbsolutePath, workspace: &Workspace) -> BTreeMap<AbsolutePath, Script> {
    let mut scripts: BTreeMap<AbsolutePath, Script> = BTreeMap::new();
    let named = args.iter().filter(|arg| !arg.is_empty() && !arg.starts_with('-'));
    for found in named.filter_map(|arg| workspace.resolve_below(cwd, arg).ok()) {
        if found.kind == Kind::File && !scripts.contains_key(&found.path) {
            let digested = scripts.len() < MOST_SCRIPTS && found.size <= LARGEST_SCRIPT;
            let opened = workspace.open_file(&found.path).ok();
            // SECURITY: a script that is padded, or hidden behind many others, must not change behind an approval either.
            let stamp = opened.as_ref().map(|(_, status)| stamp(status));
            let sha256 =
                opened.filter(|_| digested).and_then(|(file, _)| digest_of(file, LARGEST_SCRIPT).ok().flatten());
            let stamp = stamp.filter(|_| sha256.is_none());
            scripts.insert(found.path.clone(), Script { path: found.path, sha256, stamp });
        }
    }
    scripts
}

/// The time of the last change of an inode is the kernel's own: it can be neither set nor kept by whoever writes the file.
fn stamp(status: &Stat) -> Sha256Digest {
    let Stat { st_dev, st_ino, st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, .. } = status;
    let numbers = format!("{st_dev} {st_ino} {st_size} {st_mtime} {st_mtime_nsec} {st_ctime} {st_ctime_nsec}");
    Sha256Digest::of(numbers.as_bytes())
}

/// How many bytes the words of a command take at most, each with its end.
const MOST_WORDS: usize = 128 * 1024;

/// How many bytes the variables take at most.
const MOST_VARIABLES: usize = 64 * 1024;

/// How many scripts are digested.
const MOST_SCRIPTS: usize = 64;

/// The largest script that is digested.
const LARGEST_SCRIPT: u64 = 16 << 20;
