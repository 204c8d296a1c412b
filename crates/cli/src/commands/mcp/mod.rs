//! `palyra mcp …`: MCP servers behind the gateway.
//!
//! Guarantees: nothing of a server is pinned that was not shown, or that `--yes` did not ask for.

mod add;
mod list;
mod pin;
mod remove;
mod show;
mod words;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum McpCommand {
    /// Put an MCP server behind the gateway: a program that the daemon starts in a sandbox, or an address.
    Add(add::AddArgs),
    /// List the servers behind the gateway.
    List,
    /// Tell everything about a server: how it is, its tools, and what has changed since they were pinned.
    Show(show::ShowArgs),
    /// Let tools count as the server describes them now. Shows that first.
    Pin(pin::PinArgs),
    /// Remove a server, and what is pinned of it.
    Remove(remove::RemoveArgs),
}

pub(crate) fn run(command: McpCommand, at: &At, terminal: &Terminal) -> Outcome {
    meet(at, terminal, async |daemon| match command {
        McpCommand::Add(args) => add::run(&args, daemon, terminal).await,
        McpCommand::List => list::run(daemon, terminal).await,
        McpCommand::Show(args) => show::run(&args, daemon, terminal).await,
        McpCommand::Pin(args) => pin::run(&args, daemon, terminal).await,
        McpCommand::Remove(args) => remove::run(&args, daemon, terminal).await,
    })
}

const EXAMPLES: &str = "\
Examples:
  palyra access flags set mcp_gateway on         once: lets tools of servers be called
  palyra mcp add files --workspace shop -- mcp-server-filesystem /home/ada/shop
  palyra mcp add github --secret TOKEN=github --host api.github.com:443 -- github-mcp-server stdio
  palyra mcp add docs --url https://mcp.example.org/mcp --bearer docs
  palyra mcp show github                         its tools, and what has changed
  palyra mcp pin github                          shows what it says, and asks";
