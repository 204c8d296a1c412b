//! `palyra vault unbind`: a secret may go there no more.

use clap::Args;
use palyra_client::Client;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
pub(crate) struct UnbindArgs {
    /// The binding: its number, as `palyra vault show` tells it.
    #[arg(value_parser = number)]
    id: u64,
}

pub(super) async fn run(args: &UnbindArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    daemon.unbind_secret(args.id).await?;
    match terminal.json {
        true => terminal.document("vault.unbound", serde_json::json!({ "id": args.id })),
        false => terminal.out(format!("{} binding {}", terminal.paint(GOOD, "✔ removed"), args.id)),
    }
    Ok(Exit::Ok)
}

fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "a binding is known by its number, as `palyra vault show NAME` tells it")
}
