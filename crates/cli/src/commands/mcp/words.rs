//! What is said about MCP servers and their tools, in lines.

use std::iter;

use anstyle::Style;
use palyra_api::mcp::{McpServer, McpSettings, McpState, McpTool};

use crate::terminal::{BAD, BOLD, DIM, GOOD, Terminal, WAIT, shown};

/// How a server is, in a word.
pub(super) const fn state(state: McpState) -> &'static str {
    match state {
        McpState::Starting => "starting",
        McpState::Connected => "connected",
        McpState::Waiting => "not connected",
    }
}

/// Who has put a server there.
pub(super) fn origin(server: &McpServer) -> String {
    match server.configured.as_str() {
        "config" => "config.toml".to_owned(),
        "command" => "palyra mcp add".to_owned(),
        other => shown(other),
    }
}

/// The program or the address of a server.
pub(super) fn place(settings: &McpSettings) -> String {
    match &settings.url {
        Some(url) => shown(url),
        None => shown(&settings.command.join(" ")),
    }
}

/// How the tools of a server stand, in a few words.
pub(super) fn tools(server: &McpServer) -> String {
    let count = |state: &str| server.tools.iter().filter(|one| one.state == state && one.refused.is_none()).count();
    let refused = server.tools.iter().filter(|one| one.refused.is_some()).count();
    let all = [
        (count("pinned"), "pinned"),
        (count("new"), "new"),
        (count("changed"), "changed"),
        (count("gone"), "gone"),
        (refused, "refused"),
    ];
    let told: Vec<String> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

/// A tool in a line: how it stands, and what it is called here.
pub(super) fn tool_line(tool: &McpTool, paint: impl Fn(Style, &str) -> String) -> String {
    let (glyph, style) = match (tool.state.as_str(), &tool.refused) {
        (_, Some(_)) | ("gone", _) => ("✖", BAD),
        ("pinned", None) => ("✔", GOOD),
        _ => ("!", WAIT),
    };
    let word = if tool.refused.is_some() { "refused" } else { tool.state.as_str() };
    let name = tool.name.as_ref().map_or_else(|| shown(&tool.tool), |name| name.to_string());
    let why = tool.refused.as_ref().map(|why| format!(": {}", shown(why))).unwrap_or_default();
    format!("{} {}{why}", paint(style, &format!("{glyph} {word:<8}")), paint(BOLD, &name))
}

/// What is different from what is pinned, or all that the server says of a tool that was never pinned.
pub(super) fn difference(tool: &McpTool, paint: impl Fn(Style, &str) -> String) -> Vec<String> {
    let lines = if tool.state == "changed" { &tool.diff } else { &tool.definition };
    let painted = |line: &String| {
        let text = shown(line);
        match (tool.state.as_str(), line.chars().next()) {
            ("changed", Some('+')) => paint(GOOD, &text),
            ("changed", Some('-')) => paint(BAD, &text),
            _ => paint(DIM, &text),
        }
    };
    lines.iter().map(|line| format!("    {}", painted(line))).collect()
}

/// What a server says of these tools, for whoever is to let them count.
pub(super) fn said(server: &McpServer, tools: &[&McpTool], terminal: &Terminal) -> Vec<String> {
    let paint = |style: Style, text: &str| terminal.paint_err(style, text);
    let about = |tool: &&McpTool| {
        let line = format!("  {}", tool_line(tool, paint));
        iter::once(line).chain(difference(tool, paint)).collect::<Vec<_>>()
    };
    let says = if tools.is_empty() { "has no tools" } else { "says of its tools:" };
    let heading = format!("{} {says}", shown(&server.name));
    iter::once(heading).chain(tools.iter().flat_map(about)).collect()
}

/// Says how to switch on what nothing of any server is offered without.
pub(super) fn switched_off(terminal: &Terminal) {
    let line = "! tools of MCP servers are switched off, so nothing is offered; `palyra access flags set mcp_gateway on` switches them on";
    terminal.talk_rows(terminal.paint_err(WAIT, line));
}

/// Says why a server cannot be spoken with, and what to do.
pub(super) fn trouble(server: &McpServer, terminal: &Terminal) {
    if let Some(why) = &server.why {
        terminal
            .talk_rows(terminal.paint_err(WAIT, &format!("! {} cannot be spoken with: {}", server.name, shown(why))));
        if let Some(help) = &server.help {
            terminal.talk_rows(format!("  {}", shown(help)));
        }
    }
    for line in server.stderr.iter().flat_map(|text| text.lines()) {
        terminal.talk_rows(terminal.paint_err(DIM, &format!("  │ {}", shown(line))));
    }
}
