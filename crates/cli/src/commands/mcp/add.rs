//! `palyra mcp add`: puts a server behind the gateway.
//!
//! Guarantees: nothing of it is offered before it is pinned; what it says of its tools is shown, and whoever is there is asked. One that cannot
//! be spoken with stays added, and is told as a failure.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};
use palyra_api::mcp::{McpServer, McpSettings, McpState, McpTool};
use palyra_client::Client;
use palyra_types::{EgressEnforcementMode, SecretRef, WorkspaceName, visible::visible};
use tokio::time::{Instant, sleep};

use super::{
    pin::pin,
    unseen::unseen,
    words::{said, switched_off, trouble},
};
use crate::{
    Outcome,
    exit::Exit,
    keyboard,
    terminal::{GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("reach").args(["url", "command"]).required(true)))]
pub(crate) struct AddArgs {
    /// What to call it: lowercase letters, digits, `-` and `_`. Its tools are called mcp.NAME.TOOL.
    name: String,
    /// The workspace that its program sees.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    workspace: Option<WorkspaceName>,
    /// A variable of its program. Can be given again.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair, conflicts_with = "url")]
    env: Vec<(String, String)>,
    /// A variable that holds a placeholder of a secret, whose value goes only where it is bound. Can be given again.
    #[arg(long = "secret", value_name = "NAME=SECRET", value_parser = secret_pair, conflicts_with = "url")]
    secrets: Vec<(String, SecretRef)>,
    /// A host that its program may reach, such as api.github.com:443. Can be given again.
    #[arg(long = "host", value_name = "HOST:PORT", conflicts_with = "url")]
    hosts: Vec<String>,
    /// How the network of its program is held: strict, preflight or none.
    #[arg(long, value_name = "MODE", conflicts_with = "url")]
    egress: Option<EgressEnforcementMode>,
    /// Its address, if somebody else runs it.
    #[arg(long)]
    url: Option<String>,
    /// The secret that is sent to the address as a bearer token.
    #[arg(long, value_name = "SECRET", value_parser = secret, requires = "url")]
    bearer: Option<SecretRef>,
    /// A secret that is sent to the address in this header. Can be given again.
    #[arg(long = "header", value_name = "NAME=SECRET", value_parser = secret_pair, requires = "url")]
    headers: Vec<(String, SecretRef)>,
    /// Leave out all tools but those that fit this, with `*` for any text. Can be given again.
    #[arg(long = "tool", value_name = "PATTERN")]
    tools: Vec<String>,
    /// How long a call may take.
    #[arg(long, value_name = "N")]
    call_seconds: Option<u32>,
    /// How long it may take until it can be called.
    #[arg(long, value_name = "N")]
    start_seconds: Option<u32>,
    /// Pin all its tools as it describes them now, without asking.
    #[arg(long)]
    yes: bool,
    /// The program and its arguments, for a server that the daemon starts.
    #[arg(last = true)]
    command: Vec<String>,
}

pub(super) async fn run(args: &AddArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let added = daemon.add_mcp_server(&args.name, &args.settings()).await?;
    if !terminal.json {
        terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ added"), shown(&added.name)));
        terminal.talk("waiting for what it says of its tools …");
    }
    let patience = Duration::from_secs(added.server.start_seconds.unwrap_or(30).into()) + Duration::from_secs(2);
    let server = settled(added, patience, daemon).await?;
    let is_connected = server.state == McpState::Connected;
    if is_connected && (args.yes || (keyboard::is_there() && !terminal.json)) {
        return pin(&server, &[], args.yes, (daemon, terminal)).await;
    }
    let exit = if is_connected { Exit::Ok } else { Exit::Failure };
    if terminal.json {
        terminal.document("mcp.server", &server);
        return Ok(exit);
    }
    if is_connected {
        let tools: Vec<&McpTool> = server.tools.iter().collect();
        said(&server, &tools, terminal).iter().for_each(|line| terminal.talk_rows(line));
        let name = shown(&server.name);
        terminal.talk_rows(format!("nothing of it is offered before it is pinned: `palyra mcp pin {name}`"));
    } else {
        unreached(args, &server, daemon, terminal).await;
    }
    if !server.enabled {
        switched_off(terminal);
    }
    Ok(exit)
}

/// Says why a server that was added cannot be spoken with, as far as that is known, and what becomes of it.
async fn unreached(args: &AddArgs, server: &McpServer, daemon: &Client, terminal: &Terminal) {
    let name = shown(&server.name);
    if server.why.is_none() {
        let line = format!("! {name} cannot be spoken with yet: it is still being started");
        terminal.talk_rows(terminal.paint_err(WAIT, &line));
    }
    trouble(server, terminal);
    let workspace = workspace(args, daemon).await;
    if let Some(file) = unseen(&args.command, workspace.as_deref()) {
        let file = visible(&file.to_string_lossy());
        terminal.talk_rows(format!(
            "  its program may not see {file}: name the workspace that holds it with --workspace, or put its directory \
             under `read_only` of [sandbox] in config.toml"
        ));
    }
    terminal.talk_rows(format!(
        "it stays added and is tried again: `palyra mcp show {name}` tells how it is, `palyra mcp remove {name}` removes it"
    ));
}

/// The directory of the workspace that its program sees.
async fn workspace(args: &AddArgs, daemon: &Client) -> Option<PathBuf> {
    let wanted = args.workspace.as_ref()?;
    let known = daemon.workspaces().await.ok()?.workspaces;
    let found = known.into_iter().find(|one| one.name == *wanted)?;
    Some(PathBuf::from(found.path.to_string()))
}

/// Waits until it can be said how a server is.
async fn settled(
    mut server: McpServer,
    patience: Duration,
    daemon: &Client,
) -> Result<McpServer, crate::failure::Failure> {
    let begun = Instant::now();
    while server.state == McpState::Starting && begun.elapsed() < patience {
        sleep(LOOK_AGAIN).await;
        server = daemon.mcp_server(&server.name).await?;
    }
    Ok(server)
}

impl AddArgs {
    fn settings(&self) -> McpSettings {
        let map = |pairs: &[(String, SecretRef)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
        McpSettings {
            command: self.command.clone(),
            url: self.url.clone(),
            plain_http: None,
            workspace: self.workspace.clone(),
            hosts: self.hosts.clone(),
            egress: self.egress,
            bearer: self.bearer.clone(),
            tools: self.tools.clone(),
            call_seconds: self.call_seconds,
            start_seconds: self.start_seconds,
            env: self.env.iter().cloned().collect(),
            secrets: map(&self.secrets),
            headers: map(&self.headers),
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn secret_pair(text: &str) -> Result<(String, SecretRef), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=SECRET")?;
    Ok((name.to_owned(), secret(value)?))
}

fn secret(text: &str) -> Result<SecretRef, String> {
    SecretRef::parse_or_global(text).map_err(|error| error.to_string())
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  palyra mcp add files --workspace shop -- mcp-server-filesystem /home/ada/shop
  palyra mcp add github --secret TOKEN=github --host api.github.com:443 -- github-mcp-server stdio
  palyra mcp add docs --url https://mcp.example.org/mcp --bearer docs";
