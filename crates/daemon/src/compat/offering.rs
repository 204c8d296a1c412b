//! Which tools an agent model is offered, and by which names.
//!
//! Guarantees: a tool is offered if the agent's configuration names it and policy would not refuse it to this caller whatever its arguments;
//! the name that the model sees leads back to one tool only. Offering permits nothing: each call is decided on its own.

use std::collections::BTreeMap;

use palyra_types::{Sha256Digest, ToolName};
use serde_json::{Value, json};

use crate::{app::App, caller::Caller, failure::Failure};

/// Tools that are offered to a model.
#[derive(Debug, Default)]
pub struct Offered {
    by_function: BTreeMap<String, ToolName>,
    definitions: Vec<Value>,
}

impl Offered {
    /// The tools that a caller is offered, of those that these patterns name: a name, or the beginning of one with `*` behind it.
    ///
    /// # Errors
    /// When a tool that the client brings along has the name of one of them.
    pub fn to(app: &App, caller: &Caller, patterns: &[String], of_client: &[Value]) -> Result<Self, Failure> {
        let mut offered = Self::default();
        for definition in app.gate.registry().definitions() {
            let name = definition.name();
            if !patterns.iter().any(|pattern| matches(pattern, name.as_str())) {
                continue;
            }
            if !app.gate.could(&caller.petitioner(), definition.metadata()) {
                continue;
            }
            let function = function_name(name);
            offered.definitions.push(json!({ "type": "function", "function": {
                "name": function, "description": definition.description(), "parameters": definition.input_schema(),
            } }));
            offered.by_function.insert(function, name.clone());
        }
        let names = of_client.iter().filter_map(|tool| tool.get("function")?.get("name")?.as_str());
        match names.into_iter().find(|name| offered.by_function.contains_key(*name)) {
            None => Ok(offered),
            Some(name) => Err(Failure::new(
                "bad_request",
                format!("the tool `{}` is one of Palyra's own", palyra_types::visible::visible(name)),
                "give your tool another name, or leave it out",
            )),
        }
    }

    /// The tool that a function is.
    #[must_use]
    pub fn tool(&self, function: &str) -> Option<&ToolName> {
        self.by_function.get(function)
    }

    /// As the model is told.
    #[must_use]
    pub fn definitions(&self) -> &[Value] {
        &self.definitions
    }

    /// The names that are offered.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.by_function.keys().map(String::as_str)
    }
}

/// Whether a pattern names a tool.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// The name of a tool as models can spell it: letters, digits, `_` and `-`, at most 64. Where two could be spelt alike, a digest tells them
/// apart.
#[must_use]
pub fn function_name(tool: &ToolName) -> String {
    let plain: String = tool.as_str().chars().map(plain).collect();
    // A dot is the one sign that most names have; whatever else was replaced could stand for something else.
    let is_plain = tool.as_str().chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    if is_plain && plain.len() <= LONGEST {
        return plain;
    }
    let digest = Sha256Digest::of(tool.as_str().as_bytes()).to_string();
    let mark: String = digest.chars().filter(char::is_ascii_hexdigit).take(MARK).collect();
    let beginning: String = plain.chars().take(LONGEST - MARK - 1).collect();
    format!("{beginning}_{mark}")
}

/// Whether this is the name of a function that stands for a tool. Asked of every tool for every call, so it spells few of them.
#[must_use]
pub fn is_function_of(tool: &ToolName, name: &str) -> bool {
    let mut both = tool.as_str().chars().zip(name.chars()).take(LONGEST - MARK - 1);
    both.all(|(own, told)| plain(own) == told) && function_name(tool) == name
}

const fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }
}

const LONGEST: usize = 64;

const MARK: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_name_is_one_that_models_can_spell_and_leads_back() {
        let name = |text: &str| function_name(&ToolName::parse(text).unwrap());
        assert_eq!(name("process.run"), "process_run");
        assert_eq!(name("skill.acme.text-diff.run"), "skill_acme_text-diff_run");
        assert_ne!(name("mcp.a.b_c"), name("mcp.a.b.c"));
        assert_ne!(name("mcp.a/b"), name("mcp.a:b"));
        let long = name(&format!("mcp.server.{}", "x".repeat(100)));
        assert!(long.len() <= 64 && long != name(&format!("mcp.server.{}", "x".repeat(101))), "{long}");
    }

    #[test]
    fn a_function_stands_for_the_tool_that_it_is_named_after_and_for_no_other() {
        let texts = ["process.run", "skill.acme.text-diff.run", "mcp.a.b_c", "mcp.a.b.c", "mcp.a/b", "mcp.a:b"];
        let long = [100, 101].map(|count| format!("mcp.server.{}", "x".repeat(count)));
        let tools: Vec<_> = texts
            .into_iter()
            .chain(long.iter().map(String::as_str))
            .map(|text| ToolName::parse(text).unwrap())
            .collect();
        for one in &tools {
            let meant: Vec<_> = tools.iter().filter(|tool| is_function_of(tool, &function_name(one))).collect();
            assert_eq!(meant, [one]);
        }
        assert!(!is_function_of(&tools[0], "process_ru") && !is_function_of(&tools[0], "process_run_"));
    }

    #[test]
    fn patterns_name_tools_or_their_beginnings() {
        assert!(matches("*", "fs.read") && matches("fs.*", "fs.read") && matches("fs.read", "fs.read"));
        assert!(!matches("fs.*", "process.run") && !matches("fs", "fs.read"));
    }
}
