//! `palyra mcp connect`: has a client use the tools of this daemon.
//!
//! Guarantees: the client gets an agent's token that can propose calls and nothing else, in the workspace that was asked for, in a file that only
//! its owner reads and that no other agent or workspace has; what the client is told is printed, and written only where that was asked for.

use std::{env, path::PathBuf};

use clap::Args;
use palyra_api::{health::Identity, member::SetFlag, token::NewToken};
use palyra_client::{Bearer, Client};
use palyra_identity::private_file::{self, PrivateFileError};
use palyra_types::{Sha256Digest, WorkspaceName, visible::visible};
use serde::Serialize;
use zeroize::Zeroizing;

use super::clients::{ClientKind, Entry, EntryError, replace};
use crate::{
    Outcome,
    at::At,
    connection::{Connection, home},
    exit::Exit,
    failure::Failure,
    holder::Holder,
    lifetime::Lifetime,
    terminal::{GOOD, Terminal, WAIT},
};

#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// The client: claude, codex or cursor.
    client: ClientKind,
    /// Write the client's configuration, instead of printing what belongs there.
    #[arg(long)]
    write: bool,
    /// For one project, whose directory this is, instead of all of them.
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The agent that the client is to Palyra, such as agent:reviewer.
    #[arg(long = "name", value_name = "PRINCIPAL")]
    name: Option<Holder>,
    /// The configured workspace that its calls work in. Where there is only one, it is meant.
    #[arg(long, value_name = "NAME")]
    workspace: Option<WorkspaceName>,
    /// How long its token works, such as 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "90d")]
    expires: Lifetime,
    /// Switch the MCP gateway on, if it is off.
    #[arg(long)]
    enable: bool,
    /// Replace a server that the client knows by the same name.
    #[arg(long)]
    replace: bool,
}

#[derive(Serialize)]
struct Connected<'a> {
    client: ClientKind,
    principal: &'a str,
    token_file: &'a str,
    file: Option<String>,
    configuration: &'a str,
    gateway: bool,
}

pub(crate) fn run(args: &ConnectArgs, at: &At, terminal: &Terminal) -> Outcome {
    let connection = Connection::find(at, terminal)?;
    connection.here("connecting a client")?;
    let state = home()?;
    let principal = args.name.as_ref().map_or_else(|| args.client.agent().to_owned(), ToString::to_string);
    let Some(agent) = principal.strip_prefix("agent:") else {
        let help = "give it a name like agent:reviewer";
        return Err(Failure::new(
            Exit::Usage,
            "not_an_agent",
            "a client is an agent",
            format!("`{principal}` is none"),
            help,
        ));
    };
    let token_file = state.path().join("clients").join(file_name(agent, args.workspace.as_ref()));
    let entry = entry(args, &state, &token_file)?;
    let file = args.write.then(|| target(args)).transpose()?;
    // Whatever keeps the entry from being made is found before a token is.
    let merged = file.as_ref().map(|file| merge(args, &entry, file)).transpose()?;
    let gateway = connection.run(async |daemon| {
        // First, because no token for the gateway is minted while that is off.
        let gateway = is_on(args, daemon).await?;
        if !is_known(&connection, &token_file, (&principal, args.workspace.as_ref())).await {
            if !gateway {
                return Err(switched_off());
            }
            mint(args, &principal, &token_file, daemon).await?;
        }
        Ok(gateway)
    })?;
    if let (Some(file), Some(merged)) = (&file, &merged) {
        replace(file, merged).map_err(|error| {
            let what = format!("{} cannot be written", file.display());
            Failure::new(
                Exit::Failure,
                "unwritable",
                what,
                error.to_string(),
                "check its permissions, or leave --write out",
            )
        })?;
    }
    let configuration = args.client.snippet(&entry);
    if terminal.json {
        let token_file = token_file.display().to_string();
        let file = file.map(|file| file.display().to_string());
        let (client, principal, configuration) = (args.client, principal.as_str(), configuration.as_str());
        terminal.document(
            "mcp.connected",
            Connected { client, principal, token_file: &token_file, file, configuration, gateway },
        );
        return Ok(Exit::Ok);
    }
    tell(args, (&principal, &token_file), (file.as_ref(), &configuration, gateway), terminal);
    Ok(Exit::Ok)
}

fn tell(
    args: &ConnectArgs,
    (principal, token_file): (&str, &PathBuf),
    (file, configuration, gateway): (Option<&PathBuf>, &str, bool),
    terminal: &Terminal,
) {
    match file {
        Some(file) => {
            let done = format!("✔ {} knows the server `palyra` now: {}", args.client, file.display());
            terminal.talk(terminal.paint_err(GOOD, &done));
        }
        None => {
            configuration.lines().for_each(|line| terminal.out(line));
            if let Ok(file) = target(args) {
                terminal.talk(format!("put this into {}, or add --write", file.display()));
            }
        }
    }
    terminal.talk_rows(format!("it is {} to policy; its token is in {}", visible(principal), token_file.display()));
    if !gateway {
        let off = "! the MCP gateway is off: `palyra access flags set mcp_gateway on`, or add --enable";
        terminal.talk(terminal.paint_err(WAIT, off));
    }
}

/// How the client starts the server.
fn entry(args: &ConnectArgs, state: &palyra_types::StateHome, token_file: &std::path::Path) -> Result<Entry, Failure> {
    let own = env::current_exe().map_err(|error| {
        let help = "start it by its path";
        Failure::new(Exit::Failure, "no_program", "this program cannot be found", error.to_string(), help)
    })?;
    let mut rest =
        vec!["mcp".to_owned(), "serve".to_owned(), "--token-file".to_owned(), token_file.display().to_string()];
    if let Some(workspace) = &args.workspace {
        rest.extend(["--workspace".to_owned(), workspace.to_string()]);
    }
    let home = env::var_os("PALYRA_HOME").map(|_| state.path().display().to_string());
    Ok(Entry { command: own.display().to_string(), args: rest, home })
}

/// The client's file.
fn target(args: &ConnectArgs) -> Result<PathBuf, Failure> {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let file = home.and_then(|home| args.client.file(&home, args.project.as_deref()));
    file.ok_or_else(|| {
        let help = "set HOME, or name a project: --project DIR";
        Failure::new(Exit::Usage, "no_home", "there is no home directory", "HOME is not set", help)
    })
}

fn merge(args: &ConnectArgs, entry: &Entry, file: &PathBuf) -> Result<String, Failure> {
    let refused = |error: &EntryError| {
        let what = format!("{} stays as it is", file.display());
        Failure::new(Exit::Failure, "not_written", what, error.to_string(), error.advice())
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(refused(&EntryError::Unreadable(error.to_string()))),
    };
    args.client.merged(&text, entry, args.replace).map_err(|error| refused(&error))
}

/// Whether the token that is there is still good for this agent in this workspace.
async fn is_known(connection: &Connection, file: &std::path::Path, wanted: (&str, Option<&WorkspaceName>)) -> bool {
    let Ok(text) = private_file::read(file, LONGEST_TOKEN) else { return false };
    let text = Zeroizing::new(String::from_utf8_lossy(&text).trim().to_owned());
    let (Ok(bearer), Ok(local)) = (Bearer::parse(&text), connection.local()) else { return false };
    // Only once the daemon of this installation has shown that it is there.
    let Ok(daemon) = connection.daemon() else { return false };
    if daemon.readiness().await.is_err() {
        return false;
    }
    let identity = Client::local(local).with_bearer(bearer).identity().await;
    identity.is_ok_and(|known| serves(&known, wanted))
}

/// Whether a token is for this agent, for calls, and for this workspace alone or for none in particular.
// SECURITY: one that is bound to nothing would let the client into every workspace, whichever was asked for.
fn serves(known: &Identity, (principal, workspace): (&str, Option<&WorkspaceName>)) -> bool {
    let scopes = known.scopes.as_deref().unwrap_or_default();
    known.principal == principal
        && SCOPES.iter().all(|scope| scopes.iter().any(|one| one == scope))
        && known.workspaces.as_deref() == workspace.map(std::slice::from_ref)
}

async fn mint(args: &ConnectArgs, principal: &str, file: &std::path::Path, daemon: &Client) -> Result<(), Failure> {
    let minted = daemon
        .mint_token(&NewToken {
            channel: None,
            name: format!("mcp {}", args.client),
            principal: principal.to_owned(),
            scopes: SCOPES.map(str::to_owned).to_vec(),
            lifetime_seconds: args.expires.seconds(),
            role: None,
            workspaces: args.workspace.clone().map(|workspace| vec![workspace]),
            per_minute: None,
            concurrent: None,
        })
        .await?;
    let secret = Zeroizing::new(minted.secret);
    private_file::write(file, secret.as_bytes()).map_err(|error: PrivateFileError| {
        let what = format!("the token cannot be kept in {}", file.display());
        let help = format!("`palyra tokens revoke {}` ends it", minted.token.id);
        Failure::new(Exit::Failure, "unkept", what, error.to_string(), help)
    })
}

/// Whether the gateway is on, after it was switched on if that was asked for.
async fn is_on(args: &ConnectArgs, daemon: &Client) -> Result<bool, Failure> {
    let on = daemon.flags().await?.flags.iter().any(|flag| flag.name == FLAG && flag.on);
    if !on && args.enable {
        daemon.set_flag(FLAG, &SetFlag { on: true }).await?;
    }
    Ok(on || args.enable)
}

fn switched_off() -> Failure {
    let cause = "while it is, no token for calls over MCP is minted";
    let help = "add --enable, or switch it on first: `palyra access flags set mcp_gateway on`";
    Failure::new(Exit::Failure, "feature_off", "the MCP gateway is off, so nothing was connected", cause, help)
}

/// The file of the token of an agent in a workspace, or in none in particular. Each has its own.
fn file_name(agent: &str, workspace: Option<&WorkspaceName>) -> String {
    let workspace = workspace.map(|workspace| format!("@{}", spelt(workspace.as_str())));
    let name = format!("{}{}", spelt(agent), workspace.unwrap_or_default());
    match name.len() {
        0..=LONGEST_NAME => format!("{name}.token"),
        // No name is spelt so.
        _ => format!("_sha256-{}.token", Sha256Digest::of(name.as_bytes()).to_hex()),
    }
}

/// A name with each sign but letters, digits and `-` as `_` and its number, so that no two are spelt alike.
fn spelt(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("_{byte:02x}") }).collect()
}

/// What the token is for: calls over MCP, and by hooks.
const SCOPES: [&str; 2] = ["mcp.call", "calls.create"];

const FLAG: &str = "mcp_gateway";

/// Most bytes of a name that is written out; the name of a file has 255 at the most.
const LONGEST_NAME: usize = 200;

/// Longer than any token.
const LONGEST_TOKEN: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str) -> WorkspaceName {
        WorkspaceName::parse(name).unwrap()
    }

    #[test]
    fn no_two_agents_or_workspaces_share_a_file() {
        assert_eq!(file_name("claude", None), "claude.token");
        assert_eq!(file_name("claude-code", Some(&workspace("shop"))), "claude-code@shop.token");
        let long = "a".repeat(128);
        let (dots, slashes) = (".".repeat(100), "/".repeat(100));
        let (dotted, slashed) = (format!("a{dots}"), format!("a{slashes}"));
        let agents = ["a.b", "a_b", "a-b", "a/b", "a_2eb", "a@b", "a", "ab", &long, &dotted, &slashed];
        let workspaces = [None, Some(workspace("b")), Some(workspace("a.b")), Some(workspace("b@c"))];
        let names: Vec<String> = agents
            .iter()
            .flat_map(|agent| workspaces.iter().map(move |workspace| file_name(agent, workspace.as_ref())))
            .collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 255 && !name.contains('/')), "{names:?}");
    }

    #[test]
    fn a_token_serves_the_workspace_that_it_is_bound_to_and_no_other() {
        let identity = |workspaces: Option<&[&str]>, scopes: &[&str]| Identity {
            principal: "agent:claude".to_owned(),
            roles: Vec::new(),
            credential: "token".to_owned(),
            device: None,
            token: None,
            scopes: Some(scopes.iter().map(|&scope| scope.to_owned()).collect()),
            workspaces: workspaces.map(|names| names.iter().map(|name| workspace(name)).collect()),
            until: None,
        };
        let (shop, other) = (workspace("shop"), workspace("other"));
        let serves = |known: &Identity, wanted| serves(known, ("agent:claude", wanted));
        let bound = identity(Some(&["shop"]), &SCOPES);
        assert!(serves(&bound, Some(&shop)) && !serves(&bound, Some(&other)) && !serves(&bound, None));
        let free = identity(None, &SCOPES);
        assert!(serves(&free, None) && !serves(&free, Some(&shop)));
        assert!(!serves(&identity(Some(&["shop", "other"]), &SCOPES), Some(&shop)));
        assert!(!serves(&identity(None, &["mcp.call"]), None));
        assert!(!super::serves(&free, ("agent:other", None)));
    }
}
