//! `palyra memory delete` and `palyra memory purge`: what is forgotten is gone for good.

use clap::Args;
use palyra_client::Client;
use palyra_types::visible::visible;
use serde_json::json;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct DeleteArgs {
    /// The note, by its id.
    id: String,
}

#[derive(Args)]
pub(crate) struct PurgeArgs {
    /// The scope: `global`, `agent:NAME`, `user:NAME`, `workspace:NAME` or `session:ID`.
    scope: String,
}

pub(super) async fn delete(args: &DeleteArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let id = args.id.trim().to_ascii_uppercase();
    daemon.delete_memory(&id).await?;
    if terminal.json {
        terminal.document("memory.deleted", json!({ "id": id }));
    } else {
        terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ forgotten"), visible(&id)));
    }
    Ok(Exit::Ok)
}

pub(super) async fn purge(args: &PurgeArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let deleted = daemon.purge_memory(&args.scope).await?.deleted;
    if terminal.json {
        terminal.document("memory.purged", json!({ "scope": args.scope, "deleted": deleted }));
    } else {
        let notes = if deleted == 1 { "note" } else { "notes" };
        terminal.out(format!("{} {deleted} {notes} of {}", terminal.paint(GOOD, "✔ forgotten"), visible(&args.scope)));
    }
    Ok(Exit::Ok)
}
