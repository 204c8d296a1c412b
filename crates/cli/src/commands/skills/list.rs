//! `palyra skills list`: what is installed.

use palyra_api::skill::{Skill, Skills};
use palyra_client::Client;

use super::words::infinitive;
use crate::{
    Outcome,
    exit::Exit,
    table,
    terminal::{Terminal, WAIT, shown},
};

pub(super) async fn run(daemon: &Client, terminal: &Terminal) -> Outcome {
    let Skills { skills } = daemon.skills().await?;
    if terminal.json {
        terminal.document("skills", Skills { skills });
        return Ok(Exit::Ok);
    }
    let rows: Vec<[String; 5]> = skills.iter().map(row).collect();
    table::print(["SKILL", "VERSION", "KEY", "TOOLS", "MAY"], &rows, terminal);
    if skills.is_empty() {
        terminal.talk(
            "no skill is installed; `palyra skills install FILE.skill` does that, `palyra skills new` starts one",
        );
    }
    for skill in &skills {
        if let Some(quarantine) = &skill.quarantine {
            let line = format!("! {} is in quarantine: {}", shown(skill.id.as_str()), shown(&quarantine.reason));
            terminal.talk_rows(terminal.paint_err(WAIT, &line));
        }
    }
    Ok(Exit::Ok)
}

fn row(skill: &Skill) -> [String; 5] {
    let key = match &skill.signed_by {
        Some(key) => shown(key),
        None => "in development".to_owned(),
    };
    let tools: Vec<&str> = skill.tools.iter().filter_map(|tool| tool.name.as_str().rsplit('.').next()).collect();
    let may: Vec<String> = skill.may.iter().map(|one| infinitive(&shown(one))).collect();
    let may = if may.is_empty() { "use nothing".to_owned() } else { may.join("; ") };
    [shown(skill.id.as_str()), shown(&skill.version), key, tools.join(", "), may]
}
