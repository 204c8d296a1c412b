//! `palyra mcp …`: the MCP server that the daemon is, for clients that start a command, and how they are told of it.

mod bridge;
mod clients;
mod connect;
mod serve;

use clap::Subcommand;

use crate::{Outcome, at::At, terminal::Terminal};

#[derive(Subcommand)]
pub(crate) enum McpCommand {
    /// Speak MCP on standard input and output, for clients that start a command. Calls go to the daemon, as an agent.
    Serve(serve::ServeArgs),
    /// Have a client use the tools of this daemon: mints a token for it, and prints or writes its configuration.
    Connect(connect::ConnectArgs),
}

pub(crate) fn run(command: McpCommand, at: &At, terminal: &Terminal) -> Outcome {
    match command {
        McpCommand::Serve(args) => serve::run(&args, at),
        McpCommand::Connect(args) => connect::run(&args, at, terminal),
    }
}
