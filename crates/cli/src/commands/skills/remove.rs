//! `palyra skills remove`: removes a skill, and what it kept.

use clap::Args;
use palyra_client::Client;
use palyra_package::PackageId;

use super::unknown::known;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
}

pub(super) async fn run(args: &RemoveArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    known(daemon, &args.id, daemon.remove_skill(args.id.skill_id())).await?;
    if terminal.json {
        terminal.document("skill.removed", serde_json::json!({ "id": args.id }));
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}, and what it kept for later calls", terminal.paint(GOOD, "✔ removed"), args.id));
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills remove acme/hello";
