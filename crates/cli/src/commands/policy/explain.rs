//! `palyra policy explain`: decides one call and explains each part of the decision.

use std::{
    env,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use palyra_daemon::explanation::told;
use palyra_policy::{
    Explanation, RequestDocument, Verdict, builtin_tools, compare::describe, directory::read_text,
    problem::MAX_FILE_SIZE,
};
use palyra_types::{
    AbsolutePath, Action, Channel, Clock, EgressEnforcementMode, Posture, Resource, SandboxTier, SecretRef, SkillId,
    Timestamp, ToolCapability, clock::SystemClock,
};
use serde::Serialize;

use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    report,
    selection::{Selection, absolute, workspace_of},
    terminal::{DIM, Terminal},
};

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// Read the request from a TOML or JSON file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["action", "resource", "command"])]
    request: Option<PathBuf>,
    /// Who asks, such as agent:claude or user:ada@owner.
    #[arg(long, value_name = "KIND:NAME")]
    principal: Option<String>,
    /// What they want to do. With a command: tool.execute.
    #[arg(long)]
    action: Option<Action>,
    /// What they want to do it with, such as tool:fs.read, path:/etc/hosts, host:example.org. With a command: tool:process.run.
    #[arg(long, value_name = "KIND:ID")]
    resource: Option<Resource>,
    /// The surface that received the call.
    #[arg(long, default_value = "api")]
    channel: Channel,
    /// The posture of the tool: always_allow, ask_each_time or disabled.
    #[arg(long)]
    posture: Option<Posture>,
    /// The tier: a, b or c. With a command: c.
    #[arg(long)]
    tier: Option<SandboxTier>,
    /// The egress mode: none, preflight or strict. With a command: strict.
    #[arg(long)]
    egress: Option<EgressEnforcementMode>,
    /// What the tool needs from the machine, for a tool that is not built in. Can be given again.
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<ToolCapability>,
    /// The workspace directory; the working directory if not given.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// A path the call reads. Can be given again.
    #[arg(long = "read", value_name = "PATH")]
    reads: Vec<PathBuf>,
    /// A path the call writes. Can be given again.
    #[arg(long = "write", value_name = "PATH")]
    writes: Vec<PathBuf>,
    /// A host the call connects to. Can be given again.
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,
    /// A secret the call uses without seeing it, such as github or workspace:shop/github. Can be given again.
    #[arg(long = "use", value_name = "SECRET", value_parser = SecretRef::parse_or_global)]
    uses: Vec<SecretRef>,
    /// A secret the call is given the value of. Can be given again.
    #[arg(long = "reveal", value_name = "SECRET", value_parser = SecretRef::parse_or_global)]
    reveals: Vec<SecretRef>,
    /// The skill whose tool the call is of, such as acme/markdown.
    #[arg(long, value_name = "SKILL", value_parser = SkillId::parse)]
    skill: Option<SkillId>,
    /// The secrets are bound: the tool may send them somewhere.
    #[arg(long)]
    bound: bool,
    /// The port of a net.connect.
    #[arg(long)]
    port: Option<u16>,
    /// Decide as if it were then, such as 2026-12-31T23:59:59Z.
    #[arg(long, value_name = "TIME")]
    now: Option<String>,
    #[command(flatten)]
    selection: Selection,
    /// The command that the call runs.
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    verdict: Verdict,
    parts: Vec<Explanation>,
}

pub(crate) fn run(args: &ExplainArgs, terminal: &Terminal) -> Outcome {
    let mut selected = args.selection.load(terminal)?;
    let root = absolute(args.workspace.as_deref())?;
    let document = match &args.request {
        Some(path) => read(path)?,
        None => args.document(&root)?,
    };
    let defaults = RequestDocument {
        principal: Some("agent:someone".to_owned()),
        workspace: workspace_of(&root, &mut selected.config),
        ..RequestDocument::default()
    };
    let now = match &args.now {
        Some(time) => Timestamp::parse(time).map_err(|error| {
            Failure::new(
                Exit::Usage,
                "time_invalid",
                "the time cannot be read",
                error.to_string(),
                "write it like 2026-12-31T23:59:59Z",
            )
        })?,
        None => SystemClock::new().now(),
    };
    let (call, context) = document.or(&defaults).read(now, &builtin_tools()?)?;
    let parts = selected.set.explain_call(&call, &context, &selected.config);
    let verdict = parts.iter().map(|part| part.decision.verdict).max().unwrap_or(Verdict::Deny);
    if terminal.json {
        terminal.document("policy.explanation", Report { verdict, parts });
    } else {
        let root = context.workspace.as_ref().and_then(|name| selected.config.workspaces.get(name));
        let place = root.map_or_else(String::new, |root| format!(" ({root})"));
        terminal.out(terminal.paint(DIM, &format!("{}{place}", describe(&call, &context))));
        if parts.len() > 1 {
            terminal.out(format!("{}  the call as a whole, the strictest of:", terminal.verdict(verdict)));
        }
        for part in &parts {
            report::explanation(&told(part), terminal);
        }
    }
    Ok(if verdict == Verdict::Deny { Exit::Denied } else { Exit::Ok })
}

impl ExplainArgs {
    fn document(&self, root: &AbsolutePath) -> Result<RequestDocument, Failure> {
        let some = |list: &[PathBuf]| -> Result<Option<Vec<AbsolutePath>>, Failure> {
            let paths = list.iter().map(|path| within(root, path)).collect::<Result<Vec<_>, _>>()?;
            Ok((!paths.is_empty()).then_some(paths))
        };
        let given = RequestDocument {
            principal: self.principal.clone(),
            action: self.action,
            resource: self.resource.clone(),
            channel: Some(self.channel.clone()),
            posture: self.posture,
            tier: self.tier,
            egress: self.egress,
            capabilities: (!self.capabilities.is_empty()).then(|| self.capabilities.iter().copied().collect()),
            reads: some(&self.reads)?,
            writes: some(&self.writes)?,
            hosts: (!self.hosts.is_empty()).then(|| self.hosts.clone()),
            uses: (!self.uses.is_empty()).then(|| self.uses.clone()),
            reveals: (!self.reveals.is_empty()).then(|| self.reveals.clone()),
            skill_id: self.skill.clone(),
            executes: self.skill.clone().map(|skill| vec![skill]),
            bound: self.bound.then(|| self.secrets().cloned().collect()),
            port: self.port,
            ..RequestDocument::default()
        };
        let Some((program, rest)) = self.command.split_first() else {
            return Ok(given);
        };
        let mut run = vec![resolve(program)?];
        run.extend(rest.iter().cloned());
        Ok(given.or(&RequestDocument {
            run: Some(run),
            cwd: Some(root.clone()),
            tier: Some(SandboxTier::C),
            egress: Some(EgressEnforcementMode::Strict),
            ..RequestDocument::default()
        }))
    }

    /// Every secret that the call is about.
    fn secrets(&self) -> impl Iterator<Item = &SecretRef> {
        let resource = self.resource.iter().filter_map(|resource| match resource {
            Resource::Secret(secret) => Some(secret),
            _ => None,
        });
        resource.chain(&self.uses).chain(&self.reveals)
    }
}

/// A path as the call would see it: absolute, or relative to the workspace.
fn within(root: &AbsolutePath, path: &Path) -> Result<AbsolutePath, Failure> {
    let help = "give an absolute path, or one below the workspace, without `..`";
    let refused = |cause: String| Failure::new(Exit::Usage, "path_invalid", "the path cannot be used", cause, help);
    let text = path.to_str().ok_or_else(|| refused(format!("{} is not UTF-8", path.display())))?;
    let parsed = if text.starts_with('/') { AbsolutePath::parse(text) } else { root.join(text) };
    parsed.map_err(|error| refused(error.to_string()))
}

/// The absolute path of a program, looked up the way a shell does.
fn resolve(program: &str) -> Result<String, Failure> {
    let help = "give the absolute path of the program";
    let missing = || {
        Failure::new(
            Exit::Usage,
            "no_such_program",
            format!("`{program}` cannot be resolved"),
            "it is not in PATH",
            help,
        )
    };
    if program.contains('/') {
        return Ok(absolute(Some(Path::new(program)))?.to_string());
    }
    let path = env::var_os("PATH").ok_or_else(missing)?;
    let found = env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file());
    // The name decides what many programs do (busybox, rustup), so the path that was found counts, not what it links to.
    found.and_then(|file| file.to_str().map(str::to_owned)).ok_or_else(missing)
}

/// Reads a request from a file, TOML or JSON by its ending; standard input is JSON if it starts with `{`.
fn read(path: &Path) -> Result<RequestDocument, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        // One byte more than allowed tells a request that would be cut off, and be explained without what it touches last.
        let read = io::stdin().lock().take(MAX_FILE_SIZE + 1).read_to_string(&mut text);
        let read = read.map_err(|error| refused(path, &error.to_string()))?;
        if u64::try_from(read).unwrap_or(u64::MAX) > MAX_FILE_SIZE {
            return Err(refused(path, &format!("it is longer than {MAX_FILE_SIZE} bytes")));
        }
        text
    } else {
        read_text(path)?
    };
    let json = path.extension().is_some_and(|extension| extension == "json") || text.trim_start().starts_with('{');
    if json {
        serde_json::from_str(&text).map_err(|error| refused(path, &error.to_string()))
    } else {
        toml::from_str(&text).map_err(|error| refused(path, &error.to_string()))
    }
}

fn refused(path: &Path, cause: &str) -> Failure {
    let help = "write it like the requests in policies/tests/";
    Failure::new(
        Exit::Usage,
        "request_invalid",
        format!("the request in {} cannot be read", path.display()),
        cause,
        help,
    )
}
