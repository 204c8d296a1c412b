//! `palyra mcp remove`: removes a server, and what is pinned of it.

use clap::Args;
use palyra_client::Client;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The server.
    name: String,
}

pub(super) async fn run(args: &RemoveArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    daemon.remove_mcp_server(&args.name).await?;
    if terminal.json {
        terminal.document("mcp.removed", serde_json::json!({ "name": args.name }));
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}, and what was pinned of it", terminal.paint(GOOD, "✔ removed"), shown(&args.name)));
    Ok(Exit::Ok)
}
