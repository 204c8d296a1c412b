//! How two JSON values differ, place by place.

use palyra_types::visible::visible;
use serde_json::Value;

/// A place where two values differ.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Difference {
    /// Where, as a JSON pointer. Nothing is the whole.
    pub(super) at: String,
    /// What was expected there, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<Value>,
    /// What was found there, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<Value>,
}

impl Difference {
    /// The lines that tell it.
    pub(super) fn lines(&self) -> Vec<String> {
        let at = if self.at.is_empty() { "the answer".to_owned() } else { visible(&self.at) };
        let told = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), short);
        vec![at, format!("  - {}", told(&self.expected)), format!("  + {}", told(&self.found))]
    }
}

/// Every place where two values differ.
pub(super) fn between(expected: &Value, found: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    walk("", Some(expected), Some(found), &mut differences);
    differences
}

fn walk(at: &str, expected: Option<&Value>, found: Option<&Value>, into: &mut Vec<Difference>) {
    match (expected, found) {
        (Some(one), Some(other)) if one == other => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let more = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(more) {
                let place = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                walk(&place, one.get(key), other.get(key), into);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for number in 0..one.len().max(other.len()) {
                walk(&format!("{at}/{number}"), one.get(number), other.get(number), into);
            }
        }
        (expected, found) => {
            into.push(Difference { at: at.to_owned(), expected: expected.cloned(), found: found.cloned() });
        }
    }
}

/// A value on one line; what is too long to be read there is cut. `--json` tells it whole.
fn short(value: &Value) -> String {
    let text = visible(&value.to_string());
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

const MOST_SHOWN: usize = 400;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_places_that_differ_are_told() {
        let expected = json!({ "words": 3, "lines": [1, 2], "same": { "deep": true }, "a/b": 1 });
        let found = json!({ "words": 4, "lines": [1, 2, 3], "same": { "deep": true }, "new": null });
        let told: Vec<String> = between(&expected, &found).iter().flat_map(Difference::lines).collect();
        let lines = ["/words", "  - 3", "  + 4", "/lines/2", "  - nothing", "  + 3"];
        let more = ["/a~1b", "  - 1", "  + nothing", "/new", "  - nothing", "  + null"];
        assert_eq!(told, [lines, more].concat());
        assert_eq!(between(&expected, &expected), []);
    }

    #[test]
    fn values_of_another_kind_differ_as_a_whole() {
        let told: Vec<String> = between(&json!([1]), &json!({ "0": 1 })).iter().flat_map(Difference::lines).collect();
        assert_eq!(told, ["the answer", "  - [1]", "  + {\"0\":1}"]);
        let long = between(&json!("x".repeat(1_000)), &Value::Null);
        assert_eq!(long[0].lines()[1].chars().count(), MOST_SHOWN + "  - …".chars().count());
    }
}
