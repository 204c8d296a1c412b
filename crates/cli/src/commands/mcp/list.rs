//! `palyra mcp list`: the servers behind the gateway.

use palyra_client::Client;

use super::words::{origin, place, state, switched_off, tools, trouble};
use crate::{
    Outcome,
    exit::Exit,
    table,
    terminal::{Terminal, WAIT, shown},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let told = daemon.mcp_servers().await?;
    if terminal.json {
        terminal.document("mcp", told);
        return Ok(Exit::Ok);
    }
    let row = |one: &palyra_api::mcp::McpServer| {
        [shown(&one.name), state(one.state).to_owned(), tools(one), origin(one), place(&one.server)]
    };
    let rows: Vec<[String; 5]> = told.servers.iter().map(row).collect();
    table::print(["SERVER", "STATE", "TOOLS", "FROM", "PLACE"], &rows, terminal);
    if told.servers.is_empty() {
        terminal.talk("there is no MCP server behind the gateway; `palyra mcp add --help` says how to put one there");
    }
    if let Some(why) = &told.trouble {
        terminal.talk_rows(terminal.paint_err(WAIT, &format!("! nothing is offered: {}", shown(why))));
    }
    if !told.enabled && !told.servers.is_empty() {
        switched_off(terminal);
    }
    told.servers.iter().for_each(|one| trouble(one, terminal));
    Ok(Exit::Ok)
}
