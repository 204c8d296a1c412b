//! `palyra mcp …`: the MCP server that the daemon is, for clients that start a command, how they are told of it, and the MCP servers behind it.
//!
//! Guarantees: nothing of a server is pinned that was not shown, or that `--yes` did not ask for; what serves a client has an agent's credential
//! and never the owner's.

mod add;
mod bridge;
mod clients;
mod connect;
mod list;
mod pin;
mod remove;
mod serve;
mod show;
mod unseen;
mod words;

use clap::Subcommand;

use crate::{Outcome, at::At, connection::meet, terminal::Terminal};

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum McpCommand {
    /// Speak MCP on standard input and output, for clients that start a command. Calls go to the daemon, as an agent.
    Serve(serve::ServeArgs),
    /// Have a client use the tools of this daemon: mints a token for it, and prints or writes its configuration.
    Connect(connect::ConnectArgs),
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
    let about_servers = match command {
        McpCommand::Serve(args) => return serve::run(&args, at),
        McpCommand::Connect(args) => return connect::run(&args, at, terminal),
        other => other,
    };
    meet(at, terminal, async |daemon| match about_servers {
        McpCommand::Add(args) => add::run(&args, daemon, terminal).await,
        McpCommand::List => list::run(daemon, terminal).await,
        McpCommand::Show(args) => show::run(&args, daemon, terminal).await,
        McpCommand::Pin(args) => pin::run(&args, daemon, terminal).await,
        McpCommand::Remove(args) => remove::run(&args, daemon, terminal).await,
        McpCommand::Serve(_) | McpCommand::Connect(_) => Ok(crate::exit::Exit::Ok),
    })
}

const EXAMPLES: &str = "\
Examples:
  palyra mcp connect claude --write --enable     lets Claude Code use the tools here
  palyra access flags set mcp_gateway on         once: lets tools be called over MCP
  palyra mcp add files --workspace shop -- mcp-server-filesystem /home/ada/shop
  palyra mcp add github --secret TOKEN=github --host api.github.com:443 -- github-mcp-server stdio
  palyra mcp add docs --url https://mcp.example.org/mcp --bearer docs
  palyra mcp show github                         its tools, and what has changed
  palyra mcp pin github                          shows what it says, and asks";
