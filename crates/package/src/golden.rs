//! Golden cases: what a tool is asked in a test, and what it has to answer.
//!
//! ```json
//! { "tool": "diff", "input": { "old": "a", "new": "b" }, "output": { "changed": 1 } }
//! { "tool": "diff", "input": {}, "error": { "code": "bad-input" } }
//! ```
//!
//! Guarantees: a case says either what is answered or how it fails. What the host tells the tool is written down beside it, so that a case runs
//! without a network, a clock or files.
//! Does not: run anything.

use palyra_types::{
    json::{Json, Limits},
    visible::visible,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// One case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GoldenCase {
    /// The tool, as the manifest names it.
    pub tool: String,
    /// What it is given.
    pub input: Value,
    /// What it has to come to.
    #[serde(flatten)]
    pub expected: Expected,
    /// What it asks of the host, in order, and what it is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostAnswer>,
}

/// What a tool has to come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// This answer.
    Output(Value),
    /// This failure.
    Error(ExpectedError),
}

/// A failure that a tool has to come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    /// The word that it fails with.
    pub code: String,
    /// What it says, if that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A question to the host and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostAnswer {
    /// The function, such as `http.fetch`.
    pub function: String,
    /// What it has to be asked, if that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Value>,
    /// What it answers: `{"ok": …}` or `{"error": {"kind": …, "message": …}}`.
    pub answered: Value,
}

impl GoldenCase {
    /// Reads a case.
    ///
    /// # Errors
    /// When it is no JSON, has a field that is not known, or says neither or both of what may come of it.
    pub fn parse(bytes: &[u8]) -> Result<Self, GoldenError> {
        let json = Json::parse(bytes, LIMITS).map_err(|error| GoldenError::NotJson(error.to_string()))?;
        let form: Form =
            serde_json::from_value(json.into_value()).map_err(|error| GoldenError::Form(error.to_string()))?;
        let expected = match (form.output, form.error) {
            (Some(output), None) => Expected::Output(output),
            (None, Some(error)) => Expected::Error(error),
            (None, None) => return Err(GoldenError::ExpectsNothing),
            (Some(_), Some(_)) => return Err(GoldenError::ExpectsBoth),
        };
        Ok(Self { tool: form.tool, input: form.input, expected, host: form.host })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    tool: String,
    input: Value,
    #[serde(default, deserialize_with = "given")]
    output: Option<Value>,
    #[serde(default)]
    error: Option<ExpectedError>,
    #[serde(default)]
    host: Vec<HostAnswer>,
}

/// A value that is there, so that `null` is an answer and its absence is none.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Why a case is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoldenError {
    /// Not JSON, or JSON that readers disagree about.
    #[error("it is no JSON: {0}")]
    NotJson(String),
    /// Not a case.
    #[error("it is no case: {}", visible(.0))]
    Form(String),
    /// Nothing is expected.
    #[error("it expects nothing")]
    ExpectsNothing,
    /// Both are expected.
    #[error("it expects an answer and a failure")]
    ExpectsBoth,
}

impl GoldenError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "write it like `{\"tool\": \"diff\", \"input\": {…}, \"output\": {…}}`, or with `\"error\": {\"code\": \"…\"}` for a failure"
    }
}

/// How large a case may be.
const LIMITS: Limits = Limits { bytes: 1 << 20, depth: 64, values: usize::MAX };

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_case_says_what_is_answered_or_how_it_fails() {
        let answered = br#"{"tool": "diff", "input": {"a": 1}, "output": null}"#;
        assert_eq!(
            GoldenCase::parse(answered).unwrap(),
            GoldenCase {
                tool: "diff".to_owned(),
                input: json!({"a": 1}),
                expected: Expected::Output(Value::Null),
                host: Vec::new()
            }
        );
        let failed = br#"{"tool": "t", "input": 1, "error": {"code": "no"}, "host": [{"function": "clock.now", "answered": {"ok": 5}}]}"#;
        let case = GoldenCase::parse(failed).unwrap();
        assert_eq!(case.expected, Expected::Error(ExpectedError { code: "no".to_owned(), message: None }));
        assert_eq!(
            case.host,
            [HostAnswer { function: "clock.now".to_owned(), asked: None, answered: json!({"ok": 5}) }]
        );
        assert_eq!(GoldenCase::parse(&serde_json::to_vec(&case).unwrap()).unwrap(), case);
    }

    #[test]
    fn a_case_that_proves_nothing_is_refused() {
        let refused = |text: &str| GoldenCase::parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused(r#"{"tool": "t", "input": 1}"#), GoldenError::ExpectsNothing);
        assert_eq!(
            refused(r#"{"tool": "t", "input": 1, "output": 1, "error": {"code": "x"}}"#),
            GoldenError::ExpectsBoth
        );
        assert!(matches!(refused(r#"{"tool": "t", "input": 1, "ouput": 1}"#), GoldenError::Form(_)));
        assert!(matches!(refused(r#"{"tool": "t", "tool": "u", "input": 1, "output": 1}"#), GoldenError::NotJson(_)));
        assert!(matches!(refused("tool"), GoldenError::NotJson(_)));
    }
}
