//! `palyra tools` and `palyra workspaces`: what calls can be about.

use palyra_types::visible::{visible, visible_block};

use crate::{
    Outcome,
    at::At,
    connection::meet,
    exit::Exit,
    terminal::{BAD, BOLD, DIM, Terminal},
};

pub(crate) fn tools(at: &At, terminal: &Terminal) -> Outcome {
    let tools = meet(at, terminal, async |daemon| Ok(daemon.tools().await?))?;
    if terminal.json {
        terminal.document("tools", &tools);
        return Ok(Exit::Ok);
    }
    for tool in &tools.tools {
        let needs: Vec<&str> = tool.capabilities.iter().map(|capability| capability.as_str()).collect();
        let needs = if needs.is_empty() { "nothing".to_owned() } else { needs.join(", ") };
        terminal.out(format!("{}  {}", terminal.paint(BOLD, tool.name.as_str()), visible(&tool.summary)));
        if let Some(skill) = tool.skill.as_ref().filter(|_| tool.quarantined) {
            let (mark, id) = (terminal.paint(BAD, "✖ in quarantine"), visible(skill.as_str()));
            terminal.out(format!("    {mark}: it cannot be called; `palyra skills show {id}` says why"));
        }
        terminal.out(terminal.paint(DIM, &format!("    {} by default · needs {needs}", tool.default_posture)));
        for line in visible_block(&tool.description).lines() {
            terminal.out(format!("    {line}"));
        }
        terminal.out(format!("    arguments: {}", arguments(&tool.input_schema)));
    }
    Ok(Exit::Ok)
}

pub(crate) fn workspaces(at: &At, terminal: &Terminal) -> Outcome {
    let workspaces = meet(at, terminal, async |daemon| Ok(daemon.workspaces().await?))?;
    if terminal.json {
        terminal.document("workspaces", &workspaces);
        return Ok(Exit::Ok);
    }
    for workspace in &workspaces.workspaces {
        let name = terminal.paint(BOLD, workspace.name.as_str());
        terminal.out(format!("{name}  {}", visible(workspace.path.as_str())));
    }
    if workspaces.workspaces.is_empty() {
        terminal.talk("no workspace is configured; add a [[workspace]] to config.toml, see `palyra paths`");
    }
    Ok(Exit::Ok)
}

/// The names of a tool's arguments, those that may be left out in brackets.
fn arguments(schema: &serde_json::Value) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(|list| list.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .collect();
    let names = schema.get("properties").and_then(|fields| fields.as_object()).into_iter().flatten();
    let names: Vec<String> = names
        .map(|(name, _)| if required.contains(&name.as_str()) { visible(name) } else { format!("[{}]", visible(name)) })
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}
