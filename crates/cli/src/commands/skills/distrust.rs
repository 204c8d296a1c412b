//! `palyra skills distrust`: a key speaks for a publisher no more.

use clap::Args;
use palyra_client::Client;
use palyra_package::PublisherName;
use palyra_types::visible::visible;

use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DistrustArgs {
    /// The publisher.
    publisher: PublisherName,
    /// The id of the key, as `palyra skills publishers` shows it.
    key_id: String,
}

pub(super) async fn run(args: &DistrustArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    daemon.distrust_key(args.publisher.as_str(), &args.key_id).await?;
    if terminal.json {
        let told = serde_json::json!({ "publisher": args.publisher, "key_id": args.key_id });
        terminal.document("skill.distrusted", told);
        return Ok(Exit::Ok);
    }
    let (publisher, key) = (&args.publisher, visible(&args.key_id));
    terminal.out(format!("{} key {key} speaks for {publisher} no more", terminal.paint(GOOD, "✔")));
    terminal
        .talk("what it signed is in quarantine now; `palyra skills list` shows it, `palyra skills remove` removes it");
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills publishers
  palyra skills distrust acme E7620F1842B4E81F";
