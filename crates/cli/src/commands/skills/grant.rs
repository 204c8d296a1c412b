//! `palyra skills grant`: what a skill may use from now on.
//!
//! Guarantees: what is not named stays as it is.

use clap::{ArgGroup, Args};
use palyra_client::Client;
use palyra_package::{Grants, PackageId};

use super::{
    asking::{asked_by, granted_to, sentences, tell_the_rest, told},
    granting::{GrantFlags, Taken},
    unknown::known,
    words::may,
};
use crate::{
    Outcome,
    exit::Exit,
    terminal::{GOOD, Terminal, WAIT, shown},
};

#[derive(Args)]
#[command(
    after_help = EXAMPLES,
    group(ArgGroup::new("change").args(["grants", "grant_all", "revoked", "none"]).required(true).multiple(true))
)]
pub(crate) struct GrantArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
    #[command(flatten)]
    grants: GrantFlags,
    /// Take this back: log, clock, random, kv, http, http=HOST:PORT, secret:NAME or files:NAME. Can be given again.
    #[arg(long = "revoke", value_name = "WHAT")]
    revoked: Vec<Taken>,
    /// Take everything back first.
    #[arg(long)]
    none: bool,
}

pub(super) async fn run(args: &GrantArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let skill = known(daemon, &args.id, daemon.skill(args.id.skill_id())).await?;
    let mut grants = if args.none { Grants::default() } else { granted_to(&skill)? };
    for taken in &args.revoked {
        if !taken.take(&mut grants) && !terminal.json && !args.none {
            let meant = taken.meant(&grants).map(|meant| format!("; did you mean `{meant}`?"));
            let line = format!("! `{taken}` was not granted{}", meant.unwrap_or_default());
            terminal.talk_rows(terminal.paint_err(WAIT, &line));
        }
    }
    let grants = args.grants.over(grants, &asked_by(&skill)?)?;
    let skill = daemon.grant_skill(args.id.skill_id(), &told(&grants)?).await?;
    if terminal.json {
        terminal.document("skill", &skill);
        return Ok(Exit::Ok);
    }
    terminal.out(format!("{} {}", terminal.paint(GOOD, "✔ from now on"), shown(skill.id.as_str())));
    may(&sentences(&skill.may), terminal);
    if args.grants.are_given() {
        tell_the_rest(&skill, terminal)?;
    }
    Ok(Exit::Ok)
}

const EXAMPLES: &str = "\
Examples:
  palyra skills grant acme/notes --grant clock --grant files:notes=docs:read
  palyra skills grant acme/web --grant http=example.org:443 --grant secret:token=github
  palyra skills grant acme/web --revoke secret:token
  palyra skills grant acme/web --none                takes everything back";
