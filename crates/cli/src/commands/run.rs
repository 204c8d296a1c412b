//! `palyra run -- COMMAND…`: runs a program in the working directory, governed like any call.
//!
//! What the program prints goes out byte for byte as it comes, and its exit code is passed through.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Read, Write},
    time::Duration,
};

use clap::Args;
use palyra_api::{
    ErrorDetail,
    call::{Call, NewCall, Output, Receipt},
};
use palyra_client::{Client, Which};
use palyra_types::{AbsolutePath, SecretRef, ToolName, WorkspaceName, visible::visible};
use rustix::io::ioctl_fionread;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    Outcome,
    at::At,
    connection::Connection,
    exit::Exit,
    failure::Failure,
    follow::{Follow, Followed, YesFlag},
    outcome,
    paired::DaemonName,
    report,
    selection::absolute,
    terminal::Terminal,
};

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The weakest tier that it may run in: b or c. The strongest one that policy allows is taken.
    #[arg(long, value_parser = ["b", "c"], default_value = "c")]
    tier: String,
    #[command(flatten)]
    yes: YesFlag,
    /// Pass standard input on to the program, all of it, as UTF-8. Without this it is left alone.
    #[arg(long)]
    stdin: bool,
    /// How long it may run, if that is less than the configuration says.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// A variable for the program. Can be given again.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// A host that it needs to reach, such as example.org:443. Can be given again.
    #[arg(long = "host", value_name = "HOST:PORT")]
    hosts: Vec<String>,
    /// A secret that the program uses without seeing it: a variable holds what stands for it, and the value takes its place on the way
    /// to a host that the secret is bound to. Can be given again.
    #[arg(long = "secret", value_name = "NAME=SECRET")]
    secrets: Vec<String>,
    /// A secret whose value the program is given in a variable. A person is asked every time. Can be given again.
    #[arg(long = "secret-value", value_name = "NAME=SECRET")]
    secret_values: Vec<String>,
    /// A secret whose value the program is given in a file, whose path is in a variable. A person is asked every time. Can be given again.
    #[arg(long = "secret-file", value_name = "NAME=SECRET")]
    secret_files: Vec<String>,
    /// Run it in a workspace of the daemon's, not in the working directory. A daemon on another machine knows nothing of that directory.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    /// The program and its arguments. No shell reads them.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// What `--json` tells.
#[derive(Serialize)]
struct Report {
    /// What this command exits with.
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Box<Call>>,
    /// Why Palyra refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Box<ErrorDetail>>,
}

pub(crate) fn run(args: &RunArgs, at: &At, terminal: &Terminal) -> Outcome {
    let fields = args.arguments()?;
    let connection = Connection::find(at, terminal)?;
    let place = args.place(&connection)?;
    let mut unread = Unread::new(args.stdin || terminal.json);
    unread.tell(terminal);
    let mut live = Live::new(terminal.json);
    let followed = connection.run(async |daemon| {
        let call = place.call(fields, daemon).await?;
        let follow = Follow::propose(daemon, daemon, (&call, None), args.yes.answering(), terminal).await?;
        follow.finish(&mut |which, offset, bytes| live.piece(which, offset, bytes)).await
    });
    // Whoever writes into a pipe may have been slower than this.
    unread.tell(terminal);
    match followed {
        Ok(Followed::Over(call)) => over(call, args, &mut live, terminal),
        Ok(Followed::Refused(error)) => refused(error, terminal),
        Ok(Followed::Interrupted) => {
            terminal.talk("withdrawn; whatever ran is stopped");
            Ok(Exit::Interrupted)
        }
        // As if the program had been told by the system itself.
        Ok(Followed::Unread) => Ok(Exit::Program(128 + SIGPIPE)),
        // What is not the program's own code says so.
        Err(failure) if failure.exit != Exit::Unreachable => Err(Failure { exit: Exit::Refused, ..failure }),
        Err(failure) => Err(failure),
    }
}

impl RunArgs {
    /// Where the program is to run.
    fn place(&self, connection: &Connection) -> Result<Place, Failure> {
        match (&self.workspace, connection.place()) {
            (Some(name), _) => Ok(Place::Workspace(name.clone())),
            (None, Ok(_)) => absolute(None).map(Place::Here),
            (None, Err(daemon)) => Ok(Place::OnlyWorkspace { daemon: daemon.clone() }),
        }
    }

    fn arguments(&self) -> Result<Map<String, Value>, Failure> {
        let mut fields = Map::new();
        fields.insert("command".to_owned(), json!(self.command));
        for (field, flag, given) in [
            ("env", "--env", &self.variables),
            ("secrets", "--secret", &self.secrets),
            ("secret_values", "--secret-value", &self.secret_values),
            ("secret_files", "--secret-file", &self.secret_files),
        ] {
            let pairs = pairs(flag, given)?;
            if !pairs.is_empty() {
                fields.insert(field.to_owned(), json!(pairs));
            }
        }
        if !self.hosts.is_empty() {
            fields.insert("egress_hosts".to_owned(), json!(self.hosts));
        }
        if self.stdin {
            fields.insert("stdin".to_owned(), Value::String(read_stdin()?));
        }
        if let Some(seconds) = self.timeout {
            fields.insert("timeout_seconds".to_owned(), json!(seconds));
        }
        fields.insert("tier".to_owned(), json!(self.tier));
        Ok(fields)
    }
}

/// Names and what each stands for, as they are typed.
fn pairs<'a>(flag: &str, given: &'a [String]) -> Result<BTreeMap<&'a str, &'a str>, Failure> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let wanted = if flag == "--env" { "NAME=VALUE" } else { "NAME=SECRET" };
        let (name, value) =
            pair.split_once('=').ok_or_else(|| unusable(flag, &format!("`{}` is not {wanted}", visible(pair))))?;
        if flag != "--env" {
            // SECURITY: whoever mistakes this for a value finds it repeated nowhere.
            SecretRef::parse_or_global(value).map_err(|error| {
                unusable(flag, &format!("what stands behind `{}=` cannot name one; {}", visible(name), error.advice()))
            })?;
        }
        if pairs.insert(name, value).is_some() && flag != "--env" {
            return Err(unusable(flag, &format!("`{}` stands twice", visible(name))));
        }
    }
    Ok(pairs)
}

/// Where a program runs.
enum Place {
    /// In the working directory.
    Here(AbsolutePath),
    /// In a workspace that was named.
    Workspace(WorkspaceName),
    /// In the one workspace that a daemon on another machine has.
    OnlyWorkspace { daemon: DaemonName },
}

impl Place {
    /// The call that runs a program there.
    async fn call(&self, mut fields: Map<String, Value>, daemon: &Client) -> Result<NewCall, Failure> {
        let tool = ToolName::parse("process.run").map_err(|error| unusable("the tool", &error.to_string()))?;
        let (directory, workspace) = match self {
            Self::Here(directory) => {
                // The directory may lie in a workspace that is configured, and the program is to start here all the same.
                fields.insert("cwd".to_owned(), json!(directory));
                (Some(directory.clone()), None)
            }
            Self::Workspace(name) => (None, Some(name.clone())),
            Self::OnlyWorkspace { daemon: name } => (None, Some(only_workspace(name, daemon).await?)),
        };
        Ok(NewCall { directory, workspace, ..NewCall::new(tool, fields) })
    }
}

async fn only_workspace(name: &DaemonName, daemon: &Client) -> Result<WorkspaceName, Failure> {
    let mut names: Vec<WorkspaceName> = daemon.workspaces().await?.workspaces.into_iter().map(|one| one.name).collect();
    match names.len() {
        1 => names.pop().ok_or_else(|| unusable("the workspace", "it is gone")),
        count => {
            let what = "it is not said in which workspace to run";
            let listed: Vec<&str> = names.iter().map(WorkspaceName::as_str).collect();
            let cause = match count {
                0 => format!("this directory is not on the machine of `{name}`, which has no workspace"),
                _ => format!("this directory is not on the machine of `{name}`, which has {}", listed.join(", ")),
            };
            Err(Failure::new(
                Exit::Usage,
                "no_workspace",
                what,
                cause,
                "name a workspace of that daemon: --workspace NAME",
            ))
        }
    }
}

fn read_stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let refused = |cause: &str| unusable("standard input", cause);
    io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes).map_err(|error| refused(&error.to_string()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_STDIN {
        return Err(refused(&format!("it is longer than {MAX_STDIN} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| refused("it is not UTF-8"))
}

fn unusable(what: &str, cause: &str) -> Failure {
    let help = match what.starts_with("--secret") {
        true => "write it like `--secret TOKEN=github`; `palyra vault list` shows the secrets",
        false => "see `palyra run --help`; a file in the workspace can hold what does not fit",
    };
    Failure::new(Exit::Usage, "usage", format!("{what} cannot be used"), cause, help)
}

fn over(call: Box<Call>, args: &RunArgs, live: &mut Live, terminal: &Terminal) -> Outcome {
    let exit = exit(&call);
    if terminal.json {
        terminal.document("run", Report { exit_code: exit.code(), call: Some(call), error: None });
        return Ok(exit);
    }
    if let Some(Output::Process { stdout, stderr, .. }) = &call.output {
        for (which, stream) in [(Which::Stdout, stdout), (Which::Stderr, stderr)] {
            let kept = outcome::bytes(stream);
            if let Some(missing) = live.rest(which, &kept, stream.total) {
                let kept = outcome::kept(stream.total.saturating_sub(missing), stream.total);
                terminal.talk(format!("palyra: {}: {kept}", name(which)));
            }
        }
    }
    if let Some(receipt) = call.receipt.as_ref().filter(|receipt| receipt.ending() != "completed") {
        let advice = if receipt.ending() == "timed_out" { timeout_advice(args.timeout, receipt) } else { "" };
        terminal.talk(format!("palyra: {}{advice}", outcome::ending(receipt)));
    }
    // A program that worked got on without what it was refused.
    if exit != Exit::Ok {
        for reason in call.receipt.iter().flat_map(outcome::reasons) {
            terminal.talk(format!("palyra: {reason}"));
        }
    }
    Ok(exit)
}

/// Which limit a program has hit that ran for too long.
fn timeout_advice(asked: Option<u32>, receipt: &Receipt) -> &'static str {
    match asked {
        // It was given the time that was asked for; else the configuration gave it less.
        Some(seconds) if receipt.ran() >= Duration::from_secs(seconds.into()) => ", which `--timeout` set",
        Some(_) => ", which `wall_ms` under [sandbox.limits] in config.toml sets; `--timeout` cannot make it longer",
        None => ", which `wall_ms` under [sandbox.limits] in config.toml sets; `--timeout` makes it shorter",
    }
}

fn refused(error: Box<ErrorDetail>, terminal: &Terminal) -> Outcome {
    if terminal.json {
        let exit_code = Exit::Refused.code();
        terminal.document("run", Report { exit_code, call: None, error: Some(error) });
    } else {
        report::failure(&Failure::refused(&error), terminal);
    }
    Ok(Exit::Refused)
}

fn exit(call: &Call) -> Exit {
    let Some(receipt) = &call.receipt else { return Exit::Refused };
    match (receipt.ending(), receipt.exit_code(), receipt.signal()) {
        ("timed_out", ..) => Exit::TimedOut,
        ("completed", Some(code), _) => Exit::Program(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        ("completed", None, Some(signal)) => Exit::Program(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        _ => Exit::Refused,
    }
}

const fn name(which: Which) -> &'static str {
    match which {
        Which::Stdout => "stdout",
        Which::Stderr => "stderr",
    }
}

/// Standard input that nobody passes on, which is told once.
struct Unread {
    told: bool,
}

impl Unread {
    const fn new(told: bool) -> Self {
        Self { told }
    }

    /// Says that it is not passed on, if there is something in it. Never waits for it.
    fn tell(&mut self, terminal: &Terminal) {
        let stdin = io::stdin();
        // A device such as /dev/null has no count; a terminal has one, of what a person types for somebody else.
        if !self.told && !stdin.is_terminal() && ioctl_fionread(&stdin).is_ok_and(|waiting| waiting > 0) {
            self.told = true;
            terminal.talk("palyra: standard input is not passed on to the program; `--stdin` does that");
        }
    }
}

/// What was shown of both streams. Once a piece is missing, the rest waits for the end, so that nothing is shown out of order.
struct Live {
    silent: bool,
    stdout: Shown,
    stderr: Shown,
}

#[derive(Default)]
struct Shown {
    bytes: u64,
    gap: bool,
}

impl Live {
    fn new(silent: bool) -> Self {
        Self { silent, stdout: Shown::default(), stderr: Shown::default() }
    }

    fn of(&mut self, which: Which) -> &mut Shown {
        match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        }
    }

    fn piece(&mut self, which: Which, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let silent = self.silent;
        let shown = self.of(which);
        shown.gap |= offset != shown.bytes;
        if shown.gap || silent {
            return Ok(());
        }
        shown.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        write(which, bytes)
    }

    /// Shows what was not shown live, and says how many bytes are lost.
    fn rest(&mut self, which: Which, kept: &[u8], total: u64) -> Option<u64> {
        let shown = self.of(which);
        let from = usize::try_from(shown.bytes).unwrap_or(usize::MAX);
        let rest = kept.get(from..).unwrap_or_default();
        // Whoever stopped reading does not want the rest.
        let _ = write(which, rest);
        let told = shown.bytes.max(u64::try_from(kept.len()).unwrap_or(u64::MAX));
        Some(total.saturating_sub(told)).filter(|&missing| missing > 0)
    }
}

fn write(which: Which, bytes: &[u8]) -> io::Result<()> {
    match which {
        Which::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Which::Stderr => io::stderr().lock().write_all(bytes),
    }
}

/// How much of standard input is passed on.
const MAX_STDIN: u64 = 1 << 20;

const SIGPIPE: u8 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_stops_live_output_and_the_rest_comes_from_the_end() {
        let mut live = Live::new(false);
        live.piece(Which::Stderr, 0, b"").unwrap();
        live.piece(Which::Stderr, 5, b"late").unwrap();
        live.piece(Which::Stderr, 0, b"again").unwrap();
        assert_eq!((live.stderr.bytes, live.stderr.gap), (0, true));
        assert_eq!(live.rest(Which::Stderr, b"", 9), Some(9), "what is not kept is told");
        assert_eq!(live.rest(Which::Stderr, b"", 0), None);
    }
}
