//! `palyra skills quarantine`: keeps a skill from running, and stops it where it runs.

use clap::Args;
use palyra_client::Client;
use palyra_package::PackageId;

use super::unknown::known;
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuarantineArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
    /// Why. `palyra skills show` tells it.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn run(args: &QuarantineArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let skill = known(daemon, &args.id, daemon.quarantine_skill(args.id.skill_id(), &args.reason)).await?;
    if terminal.json {
        terminal.document("skill", &skill);
        return Ok(Exit::Ok);
    }
    let id = shown(skill.id.as_str());
    terminal.out(format!(
        "{} {id}: it runs no more, and was stopped where it ran",
        terminal.paint(GOOD, "✔ in quarantine")
    ));
    terminal.talk(format!("`palyra skills release {id}` lets it run again"));
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills quarantine acme/hello --reason 'asks for hosts that it should not know'";
