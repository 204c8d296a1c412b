//! The secrets that a server is sent, and what it says without them.
//!
//! Guarantees: what hides them leaves no part of one that another is a part of. Does not: find one that a server has changed, such as by
//! turning it around.

use std::sync::Arc;

use palyra_gate::Gate;
use palyra_types::SecretRef;
use palyra_upstream::{Address, Reach, ServerSection, Tool};
use serde_json::Value;
use zeroize::Zeroizing;

/// The values of secrets that requests to a server are sent with, held for as long as it takes to find them in what it says.
pub(super) struct Sent(Vec<Zeroizing<String>>);

impl Sent {
    /// Those of a server. A program has placeholders only.
    pub(super) fn of(gate: &Gate, section: &ServerSection) -> Self {
        match &section.reach {
            Reach::Address(address) => Self::to(gate, address),
            Reach::Program(_) => Self(Vec::new()),
        }
    }

    pub(super) fn to(gate: &Gate, address: &Address) -> Self {
        Self::new(secrets(address).iter().filter_map(|secret| gate.provider_key(secret)))
    }

    fn new(values: impl Iterator<Item = Zeroizing<String>>) -> Self {
        let mut values: Vec<_> = values
            .map(|value| Zeroizing::new(value.trim().to_owned()))
            .filter(|value| value.len() >= SHORTEST_SECRET)
            .collect();
        // One may be a part of another, of which nothing is to be left.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// A text with asterisks where it holds one of them.
    pub(super) fn hide(&self, text: &str) -> String {
        let hide = |text: String, value: &Zeroizing<String>| match text.contains(value.as_str()) {
            true => text.replace(value.as_str(), &"*".repeat(value.len())),
            false => text,
        };
        self.0.iter().fold(text.to_owned(), hide)
    }

    /// The same for every text of a value, the names of members included.
    pub(super) fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(members) => {
                let said = std::mem::take(members);
                members.extend(said.into_iter().map(|(name, mut member)| {
                    self.hide_in(&mut member);
                    (self.hide(&name), member)
                }));
            }
            Value::Number(number) => {
                let said = number.to_string();
                let told = self.hide(&said);
                if told != said {
                    *value = Value::String(told);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// What a server says of a tool, as others may be told; nothing where that is no tool any more.
    pub(super) fn hide_in_tool(&self, tool: Arc<Tool>) -> Option<Arc<Tool>> {
        if self.0.is_empty() {
            return Some(tool);
        }
        let said = serde_json::to_value(&*tool).ok()?;
        let mut told = said.clone();
        self.hide_in(&mut told);
        if told == said { Some(tool) } else { serde_json::from_value(told).ok().map(Arc::new) }
    }
}

/// The secrets that requests to an address are sent with.
pub(super) fn secrets(address: &Address) -> Vec<SecretRef> {
    address.bearer.iter().chain(address.headers.values()).cloned().collect()
}

/// Shorter values would be found everywhere.
const SHORTEST_SECRET: usize = 6;

#[cfg(test)]
impl Sent {
    /// These values.
    pub(super) fn these(values: &[&str]) -> Self {
        Self::new(values.iter().map(|value| Zeroizing::new((*value).to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_secret_that_holds_another_nothing_is_left() {
        let hidden = Sent::these(&["hunter22", "hunter22-tea\n", "tea"]).hide("tea: hunter22-tea, hunter22");
        assert_eq!(hidden, "tea: ************, ********");
    }

    #[test]
    fn secrets_come_back_neither_as_values_nor_as_names() {
        let mut value = json!({ "structuredContent": { "hunter22": [{ "a hunter22": 1 }, "hunter22"], "tea": null } });
        Sent::these(&["hunter22"]).hide_in(&mut value);
        let hidden = json!({ "structuredContent": { "********": [{ "a ********": 1 }, "********"], "tea": null } });
        assert_eq!(value, hidden);
    }

    #[test]
    fn a_secret_of_digits_does_not_come_back_as_a_number() {
        let mut value = json!({ "default": 481_516_234_200_u64, "maximum": 42 });
        Sent::these(&["481516234200"]).hide_in(&mut value);
        assert_eq!(value, json!({ "default": "************", "maximum": 42 }));
    }

    #[test]
    fn a_tool_is_told_of_without_secrets_and_else_as_it_was() {
        let tool = |description: &str, argument: &str| -> Arc<Tool> {
            let schema = json!({ "type": "object", "properties": { argument: { "type": "string" } } });
            let said = json!({ "name": "echo", "description": description, "inputSchema": schema });
            Arc::new(serde_json::from_value(said).unwrap())
        };
        let sent = Sent::these(&["hunter22"]);
        assert_eq!(sent.hide_in_tool(tool("for hunter22", "hunter22")).unwrap(), tool("for ********", "********"));
        let plain = tool("for tea", "pot");
        assert!(Arc::ptr_eq(&sent.hide_in_tool(Arc::clone(&plain)).unwrap(), &plain));
    }
}
