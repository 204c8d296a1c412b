//! `palyra skills release`: lets a skill run again.

use clap::Args;
use palyra_client::Client;
use palyra_package::PackageId;

use super::{asking::sentences, unknown::known, words::may};
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, shown},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReleaseArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
}

pub(super) async fn run(args: &ReleaseArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let skill = known(daemon, &args.id, daemon.release_skill(args.id.skill_id())).await?;
    if terminal.json {
        terminal.document("skill", &skill);
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ released"), shown(skill.id.as_str())));
    may(&sentences(&skill.may), terminal);
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills release acme/hello";
