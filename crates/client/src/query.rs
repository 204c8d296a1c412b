//! Paths with questions behind them.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;
use serde_json::Value;

/// A path and the fields of a value as its query. Fields that are absent or no plain values are left out.
pub(crate) fn with_query(path: &str, query: &impl Serialize) -> String {
    let mut text = path.to_owned();
    let fields = match serde_json::to_value(query) {
        Ok(Value::Object(fields)) => fields,
        _ => return text,
    };
    let mut mark = '?';
    // In one order, whatever the order of the fields is.
    for (name, value) in BTreeMap::from_iter(fields) {
        let value = match value {
            Value::String(value) => value,
            Value::Number(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
        };
        text.push(mark);
        text.push_str(&encoded(&name));
        text.push('=');
        text.push_str(&encoded(&value));
        mark = '&';
    }
    text
}

/// A name as one part of a path.
pub(crate) fn segment(name: &str) -> String {
    encoded(name)
}

/// Text in which only what means nothing in a query stands for itself.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use palyra_api::{event::EventQuery, tool::PosturePlace};
    use palyra_types::ToolName;

    use super::*;

    #[test]
    fn a_query_says_what_it_was_given_and_nothing_more() {
        assert_eq!(with_query("/e", &EventQuery { after: None }), "/e");
        assert_eq!(with_query("/e", &EventQuery { after: Some(0) }), "/e?after=0");
        let place = PosturePlace {
            layer: "agent".into(),
            key: "agent:a&b=c d/é".into(),
            tool: ToolName::parse("fs.read").unwrap(),
        };
        assert_eq!(with_query("/p", &place), "/p?key=agent%3Aa%26b%3Dc%20d%2F%C3%A9&layer=agent&tool=fs.read");
    }
}
