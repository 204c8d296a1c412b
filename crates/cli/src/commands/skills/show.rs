//! `palyra skills show`: everything about an installed skill.

use clap::Args;
use palyra_api::skill::{Skill, SkillLimits};
use palyra_client::Client;
use palyra_package::PackageId;

use super::{
    asking::{sentences, tell_the_rest},
    unknown::known,
    words::{asks, bytes, field, fields, may},
};
use crate::{
    Outcome,
    exit::Exit,
    terminal::{BAD, BOLD, Terminal, WAIT, shown, shown_block},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The skill, such as acme/hello.
    id: PackageId,
}

pub(super) async fn run(args: &ShowArgs, daemon: &Client, terminal: &Terminal) -> Outcome {
    let skill = known(daemon, &args.id, daemon.skill(args.id.skill_id())).await?;
    if terminal.json {
        terminal.document("skill", &skill);
        return Ok(Exit::Ok);
    }
    tell(&skill, terminal);
    tell_the_rest(&skill, terminal)?;
    Ok(Exit::Ok)
}

/// Tells about a skill that was changed, or was asked for.
pub(super) fn tell(skill: &Skill, terminal: &Terminal) {
    terminal.out(terminal.paint(BOLD, &format!("{} {}", shown(skill.id.as_str()), shown(&skill.version))));
    if let Some(quarantine) = &skill.quarantine {
        let line = format!("✖ in quarantine: {}", shown(&quarantine.reason));
        field("state", &terminal.paint(BAD, &line), terminal);
        field("", &format!("by {} at {}", shown(&quarantine.by), quarantine.at), terminal);
    }
    field("summary", &shown(&skill.summary), terminal);
    if let Some(text) = &skill.description {
        fields("about", &shown_block(text).lines().map(str::to_owned).collect::<Vec<_>>(), terminal);
    }
    field("license", &shown(&skill.license), terminal);
    if let Some(page) = &skill.homepage {
        field("homepage", &shown(page), terminal);
    }
    let signed = match &skill.signed_by {
        Some(key) => format!("by key {}", shown(key)),
        None => terminal.paint(WAIT, "! by nobody: it is in development"),
    };
    field("signed", &signed, terminal);
    field("installed", &format!("{} by {}", skill.installed_at, shown(&skill.installed_by)), terminal);
    field("package", &skill.package_sha256.to_string(), terminal);
    let tools = skill.tools.iter().map(|tool| format!("{}: {}", tool.name, shown(&tool.summary)));
    fields("tools", &tools.collect::<Vec<_>>(), terminal);
    asks(&sentences(&skill.asks), terminal);
    may(&sentences(&skill.may), terminal);
    fields("a call", &limits(&skill.limits), terminal);
}

fn limits(limits: &SkillLimits) -> Vec<String> {
    let work = match limits.metering.as_str() {
        "fuel" => format!("{} units of fuel", limits.fuel),
        _ => format!("computes for {} ms", limits.cpu_ms),
    };
    vec![
        format!("{work}, takes {} ms, waiting counted", limits.wall_ms),
        format!("{} of memory, an answer of {}", bytes(limits.memory_bytes), bytes(limits.output_bytes)),
    ]
}

const EXAMPLES: &str = "\
Examples:
  palyra skills show acme/hello
  palyra --json skills show acme/hello               with the schemas of its tools";
