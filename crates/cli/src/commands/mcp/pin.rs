//! `palyra mcp pin`: lets tools count as their server describes them now.
//!
//! Guarantees: the daemon is told the digests of what was shown, so nothing else is pinned, whatever the server says meanwhile.

use clap::Args;
use palyra_api::mcp::{McpServer, McpTool, PinMcpTools};
use palyra_client::Client;

use super::words::{said, switched_off};
use crate::{
    Outcome,
    exit::Exit,
    failure::Failure,
    keyboard::Keyboard,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PinArgs {
    /// The server.
    name: String,
    /// The tools, by the server's names for them. Without any, all that are new or changed.
    tools: Vec<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(args: &PinArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let server = daemon.mcp_server(&args.name).await?;
    pin(&server, &args.tools, args.yes, (daemon, terminal)).await
}

/// Shows what is to be pinned, asks, and pins it.
pub(super) async fn pin(
    server: &McpServer,
    only: &[String],
    yes: bool,
    (daemon, terminal): (&Client, &Terminal),
) -> Outcome {
    let wanted: Vec<&McpTool> = server.tools.iter().filter(|tool| is_wanted(tool, only)).collect();
    if let Some(missing) = only.iter().find(|name| wanted.iter().all(|tool| tool.tool != **name)) {
        let what = format!("`{missing}` cannot be pinned");
        let cause = "the server has no such tool, or it is pinned as it is, or its name cannot be offered";
        return Err(Failure::new(Exit::Usage, "unknown_tool", what, cause, "`palyra mcp show` lists its tools"));
    }
    if wanted.is_empty() {
        if terminal.json {
            terminal.document("mcp.server", server);
        } else {
            terminal.talk("there is nothing to pin: nothing is new, and nothing has changed");
        }
        return Ok(Exit::Ok);
    }
    if !yes {
        confirm(server, &wanted, terminal).await?;
    } else if !terminal.json {
        said(server, &wanted, terminal).iter().for_each(|line| terminal.talk_rows(line));
    }
    let digests = wanted.iter().filter_map(|tool| Some((tool.tool.clone(), tool.digest?)));
    let pinned = daemon.pin_mcp_tools(&server.name, &PinMcpTools { tools: digests.collect() }).await?;
    if terminal.json {
        terminal.document("mcp.server", &pinned);
        return Ok(Exit::Ok);
    }
    let names: Vec<String> = wanted.iter().map(|tool| shown(&tool.tool)).collect();
    terminal.out_rows(format!("{} {}: {}", terminal.paint(GOOD, "✔ pinned"), shown(&server.name), names.join(", ")));
    if !pinned.enabled {
        switched_off(terminal);
    }
    Ok(Exit::Ok)
}

fn is_wanted(tool: &McpTool, only: &[String]) -> bool {
    let is_open = matches!(tool.state.as_str(), "new" | "changed") && tool.refused.is_none() && tool.digest.is_some();
    is_open && (only.is_empty() || only.contains(&tool.tool))
}

async fn confirm(server: &McpServer, wanted: &[&McpTool], terminal: &Terminal) -> Result<(), Failure> {
    let unsure = |cause: &str| {
        let name = shown(&server.name);
        let help = format!("look at them with `palyra mcp show {name}`, and say --yes if they are as they should be");
        Failure::new(Exit::Usage, "not_confirmed", "nothing was pinned", cause, help)
    };
    let mut keyboard = Keyboard::open().ok_or_else(|| unsure("nobody is there to ask"))?;
    said(server, wanted, terminal).iter().for_each(|line| keyboard.show(line));
    keyboard.prompt("let them count as they are? Type `pin`: ");
    match keyboard.line().await {
        Some(line) if line.trim() == "pin" => Ok(()),
        _ => Err(unsure("it was not confirmed")),
    }
}

const EXAMPLES: &str = "\
Examples:
  palyra mcp pin github                    all that are new or changed, after showing them
  palyra mcp pin github list_issues        this one
  palyra mcp pin github --yes              without asking, where somebody has looked before";
