//! `palyra mcp show`: everything about a server.

use anstyle::Style;
use clap::Args;
use palyra_client::Client;

use super::words::{difference, place, state, switched_off, tool_line, trouble};
use crate::{
    Outcome,
    exit::Exit,
    terminal::{BOLD, Terminal, shown},
};

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The server.
    name: String,
}

pub(super) async fn run(args: &ShowArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let server = daemon.mcp_server(&args.name).await?;
    if terminal.json {
        terminal.document("mcp.server", &server);
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{}  {}", terminal.paint(BOLD, &shown(&server.name)), state(server.state)));
    terminal.out_rows(format!("  {}", place(&server.server)));
    let about = [
        ("calls itself", server.calls_itself.as_deref().map(shown)),
        ("speaks", server.protocol.as_deref().map(shown)),
        ("workspace", server.server.workspace.as_ref().map(ToString::to_string)),
        ("may reach", (!server.server.hosts.is_empty()).then(|| shown(&server.server.hosts.join(", ")))),
        ("is held by", (!server.layers.is_empty()).then(|| shown(&server.layers.join(", ")))),
    ];
    for (what, said) in about.iter().filter_map(|(what, said)| Some((what, said.as_ref()?))) {
        terminal.out_rows(format!("  {what:<12} {said}"));
    }
    let paint = |style: Style, text: &str| terminal.paint(style, text);
    for tool in &server.tools {
        terminal.out_rows(format!("  {}", tool_line(tool, paint)));
        // What is to be looked at before it is pinned.
        if matches!(tool.state.as_str(), "new" | "changed") {
            difference(tool, paint).iter().for_each(|line| terminal.out_rows(line));
        }
    }
    trouble(&server, terminal);
    if !server.enabled {
        switched_off(terminal);
    }
    Ok(Exit::Ok)
}
