//! The secrets that a server is sent, and what it says without them.
//!
//! Guarantees: a value that was handed out for a request is found in whatever the server says from then on, whether its secret is replaced,
//! removed, at its end or locked up meanwhile. What hides values leaves no part of one that another is a part of.
//! Does not: find one that a server has changed, such as by turning it around; remember more than the last values of a secret, or any of them
//! for longer than the server is configured so.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use palyra_gate::Gate;
use palyra_types::SecretRef;
use palyra_upstream::{Address, Reach, ServerSection, Tool};
use serde_json::Value;
use zeroize::Zeroizing;

/// Takes the secrets of one server's requests out of the vault, and remembers what it handed out.
pub(super) struct Leases {
    gate: Gate,
    secrets: Vec<SecretRef>,
    handed_out: Mutex<HandedOut>,
}

impl Leases {
    /// Those of a server. A program has placeholders only.
    pub(super) fn of(gate: Gate, section: &ServerSection) -> Self {
        let secrets = match &section.reach {
            Reach::Address(address) => secrets(address),
            Reach::Program(_) => Vec::new(),
        };
        Self { gate, secrets, handed_out: Mutex::default() }
    }

    /// The value of a secret, for a request that is about to be sent.
    pub(super) fn take(&self, secret: &SecretRef) -> Option<Zeroizing<String>> {
        let value = self.gate.provider_key(secret)?;
        // SECURITY: remembered before it leaves. When the server answers, the vault may have another value, or none.
        self.handed_out.lock().unwrap_or_else(PoisonError::into_inner).remember(secret, &value);
        Some(value)
    }

    /// What was sent, and what would be sent now.
    pub(super) fn sent(&self) -> Sent {
        let now = self.secrets.iter().filter_map(|secret| self.gate.provider_key(secret));
        let mut values = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner).values();
        values.extend(now);
        Sent::new(values.into_iter())
    }
}

/// The last values of each secret that were handed out, oldest first.
#[derive(Default)]
struct HandedOut(BTreeMap<SecretRef, VecDeque<Zeroizing<String>>>);

impl HandedOut {
    fn remember(&mut self, secret: &SecretRef, value: &Zeroizing<String>) {
        let known = self.0.entry(secret.clone()).or_default();
        if known.back() == Some(value) {
            return;
        }
        known.retain(|one| one != value);
        known.push_back(value.clone());
        if known.len() > MOST_VALUES {
            known.pop_front();
        }
    }

    fn values(&self) -> Vec<Zeroizing<String>> {
        self.0.values().flatten().cloned().collect()
    }
}

/// The values of secrets that requests to a server are sent with, held for as long as it takes to find them in what it says.
pub(super) struct Sent(Vec<Zeroizing<String>>);

impl Sent {
    fn new(values: impl Iterator<Item = Zeroizing<String>>) -> Self {
        let mut values: Vec<_> = values
            .map(|value| Zeroizing::new(value.trim().to_owned()))
            .filter(|value| value.len() >= SHORTEST_SECRET)
            .collect();
        // One may be a part of another, of which nothing is to be left.
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.as_str().cmp(b.as_str())));
        values.dedup();
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

/// How many values of a secret are remembered: more than anybody stores while a server answers.
const MOST_VALUES: usize = 8;

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
    fn of_what_was_handed_out_the_last_values_of_each_secret_are_remembered() {
        let (key, other) = (SecretRef::parse("global/key").unwrap(), SecretRef::parse("global/other").unwrap());
        let mut handed_out = HandedOut::default();
        let mut remember = |secret: &SecretRef, value: String| handed_out.remember(secret, &Zeroizing::new(value));
        remember(&other, "hunter22".to_owned());
        for number in 1..=9 {
            remember(&key, format!("value-{number}"));
        }
        // One that is used again is as good as new.
        remember(&key, "value-3".to_owned());
        remember(&key, "value-10".to_owned());
        let values = handed_out.values();
        let values: Vec<_> = values.iter().map(|value| value.as_str()).collect();
        let last = ["value-4", "value-5", "value-6", "value-7", "value-8", "value-9", "value-3", "value-10"];
        assert_eq!(values, [&last[..], &["hunter22"]].concat());
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
