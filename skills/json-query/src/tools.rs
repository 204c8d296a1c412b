//! The tool `query` as the host calls it: JSON in, JSON out.

use std::collections::BTreeMap;

use jaq_json::{Val, read::parse_single};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    question::{Next, Question, Unanswered},
    written::{self, LEVELS, MOST, Unwritable},
};

/// Runs a tool.
///
/// # Errors
/// When there is no such tool, its input has no meaning, or the query fails.
pub fn run(tool: &str, input: &str) -> Result<String, Refused> {
    match tool {
        "query" => query(&serde_json::from_str(input).map_err(|err| Refused::BadInput(err.to_string()))?),
        _ => Err(Refused::NoSuchTool),
    }
}

/// Why a tool did not do what it was asked to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such tool.
    #[error("there is no such tool; there is `query`")]
    NoSuchTool,
    /// The input is not what the schema says.
    #[error("the input does not fit: {0}")]
    BadInput(String),
    /// A variable is called something that a query cannot say.
    #[error("the name of a variable is letters, digits and `_`, and does not begin with a digit")]
    BadVariable,
    /// The data is nested too deeply.
    #[error("the data is nested more than {LEVELS} levels deep")]
    TooDeep,
    /// The query is none, or it failed.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// A result cannot be told.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
}

impl Refused {
    /// The word that programs tell it apart by.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchTool => "no-such-tool",
            Self::BadInput(_) => "bad-input",
            Self::BadVariable => "bad-variable",
            Self::Unanswered(Unanswered::Failed(_)) => "query-failed",
            Self::Unanswered(_) => "bad-query",
            Self::TooDeep | Self::Unwritable(Unwritable::TooDeep) => "too-deep",
            Self::Unwritable(Unwritable::TooLarge) => "too-large",
            Self::Unwritable(Unwritable::Key | Unwritable::Bytes) => "not-json",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    query: String,
    #[serde(borrow, default)]
    variables: BTreeMap<String, &'a RawValue>,
    limit: Option<usize>,
}

fn query(input: &Query<'_>) -> Result<String, Refused> {
    let variables = input.variables.iter().map(|(name, value)| Ok((variable(name)?, value_of(value)?)));
    let question = Question { text: &input.query, variables: variables.collect::<Result<_, Refused>>()? };
    let limit = input.limit.unwrap_or(LIMIT);
    let mut answer = String::from(r#"{"results":["#);
    let mut count = 0;
    let mut truncated = false;
    question.put(value_of(input.data)?, |result| {
        if count == limit {
            truncated = true;
            return Ok(Next::Enough);
        }
        let whole = answer.len();
        if count > 0 {
            answer.push(',');
        }
        match written::write(result, &mut answer, MOST) {
            Ok(()) => {}
            Err(Unwritable::TooLarge) if count > 0 => {
                answer.truncate(whole);
                truncated = true;
                return Ok(Next::Enough);
            }
            Err(why) => return Err(Refused::Unwritable(why)),
        }
        count += 1;
        Ok(Next::More)
    })?;
    answer.push_str(if truncated { r#"],"truncated":true}"# } else { r#"],"truncated":false}"# });
    Ok(answer)
}

fn variable(name: &str) -> Result<String, Refused> {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !is_word || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(Refused::BadVariable);
    }
    Ok(format!("${name}"))
}

/// The language has a reader of its own, which keeps numbers of any size. It calls itself for each level, so they are counted first.
fn value_of(raw: &RawValue) -> Result<Val, Refused> {
    let (mut level, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in raw.get().bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => level += 1,
            b']' | b'}' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
        if level > LEVELS {
            return Err(Refused::TooDeep);
        }
    }
    parse_single(raw.get().as_bytes()).map_err(|err| Refused::BadInput(err.to_string()))
}

const LIMIT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(input: &str) -> Result<String, (&'static str, String)> {
        run("query", input).map_err(|refused| (refused.code(), refused.to_string()))
    }

    #[test]
    fn results_are_listed_in_order() {
        assert_eq!(
            ask(r#"{"data": {"a": [1, 2]}, "query": ".a[], .b"}"#),
            Ok(r#"{"results":[1,2,null],"truncated":false}"#.to_owned())
        );
    }

    #[test]
    fn more_results_than_were_asked_for_are_left_off() {
        assert_eq!(
            ask(r#"{"data": null, "query": "repeat(1)", "limit": 2}"#),
            Ok(r#"{"results":[1,1],"truncated":true}"#.to_owned())
        );
        assert_eq!(
            ask(r#"{"data": [1, 1], "query": ".[]", "limit": 2}"#),
            Ok(r#"{"results":[1,1],"truncated":false}"#.to_owned())
        );
    }

    #[test]
    fn more_bytes_than_there_is_room_for_are_left_off() {
        let answer = ask(r#"{"data": "0123456789", "query": "[., ([limit(60000; repeat(.))] | join(\"\"))] | .[]"}"#);
        assert_eq!(answer.as_deref(), Ok(r#"{"results":["0123456789"],"truncated":true}"#));
        let refused = ask(r#"{"data": "0123456789", "query": "[limit(60000; repeat(.))]"}"#).unwrap_err();
        assert_eq!(refused.0, "too-large");
    }

    #[test]
    fn variables_are_data() {
        assert_eq!(
            ask(r#"{"data": [1, 2], "query": ".[] | select(. == $wanted.n)", "variables": {"wanted": {"n": 2}}}"#),
            Ok(r#"{"results":[2],"truncated":false}"#.to_owned())
        );
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(
            ask(r#"{"data": [123456789012345678901234567890, 1.10], "query": ".[]"}"#),
            Ok(r#"{"results":[123456789012345678901234567890,1.10],"truncated":false}"#.to_owned())
        );
    }

    #[test]
    fn each_refusal_has_its_code() {
        let deep = format!(r#"{{"data": {}{}, "query": "."}}"#, "[".repeat(101), "]".repeat(101));
        let cases = [
            (r#"{"query": "."}"#, "bad-input"),
            (r#"{"data": 1, "query": ".", "more": 1}"#, "bad-input"),
            (r#"{"data": 1, "query": ".["}"#, "bad-query"),
            (r#"{"data": 1, "query": "nope"}"#, "bad-query"),
            (r#"{"data": 1, "query": ".a"}"#, "query-failed"),
            (r#"{"data": 1, "query": ".", "variables": {"a b": 1}}"#, "bad-variable"),
            (r#"{"data": 1, "query": "{(1, 2 | tojson | tobytes): 1}"}"#, "not-json"),
            (r#"{"data": 1, "query": "reduce range(200) as $i (1; [.])"}"#, "too-deep"),
            (&deep, "too-deep"),
        ];
        for (input, code) in cases {
            assert_eq!(ask(input).map_err(|(code, _)| code), Err(code), "{input}");
        }
        assert_eq!(run("other", "{}"), Err(Refused::NoSuchTool));
    }
}
