//! `palyra artifacts delete`: what is deleted is gone for good.

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
    /// The file, by its id.
    id: String,
}

pub(super) async fn run(args: &DeleteArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let id = args.id.trim().to_ascii_uppercase();
    daemon.delete_artifact(&id).await?;
    if terminal.json {
        terminal.document("artifact.deleted", json!({ "id": id }));
    } else {
        terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ deleted"), visible(&id)));
    }
    Ok(Exit::Ok)
}
