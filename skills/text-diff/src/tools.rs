//! The tools `diff` and `patch` as the host calls them: JSON in, JSON out.

use serde::Deserialize;

use crate::{
    apply::{self, Misfit},
    compare::{Shown, compare},
    hunk::{self, BadDiff, Way},
};

/// Runs a tool.
///
/// # Errors
/// When there is no such tool, or its input has no meaning.
pub fn run(tool: &str, input: &str) -> Result<String, Refused> {
    match tool {
        "diff" => answer(&diff(&read(input)?)?),
        "patch" => answer(&patch(&read(input)?)?),
        _ => Err(Refused::NoSuchTool),
    }
}

/// Why a tool did not do what it was asked to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such tool.
    #[error("there is no such tool; there are `diff` and `patch`")]
    NoSuchTool,
    /// The input is not what the schema says.
    #[error("the input does not fit: {0}")]
    BadInput(String),
    /// One of the lines in a list is several.
    #[error("line {0} of a list holds a line feed; give the text as one string")]
    BadLine(usize),
    /// What a text is called would break the diff.
    #[error("what a text is called is one line")]
    BadName,
    /// The diff is none.
    #[error(transparent)]
    BadDiff(#[from] BadDiff),
    /// The diff does not fit the text.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

impl Refused {
    /// The word that programs tell it apart by.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchTool => "no-such-tool",
            Self::BadInput(_) => "bad-input",
            Self::BadLine(_) => "bad-line",
            Self::BadName => "bad-name",
            Self::BadDiff(BadDiff::SeveralTexts { .. }) => "several-texts",
            Self::BadDiff(_) => "bad-diff",
            Self::Misfit(Misfit::AlreadyThere { .. }) => "already-there",
            Self::Misfit(_) => "hunk-failed",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    before: Text,
    after: Text,
    context: Option<usize>,
    before_name: Option<String>,
    after_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    text: Text,
    diff: String,
    #[serde(default)]
    reverse: bool,
    reach: Option<usize>,
}

/// A text, or the lines of one, each of which a line feed ends.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Whole(String),
    Lines(Vec<String>),
}

impl Text {
    fn joined(&self) -> Result<String, Refused> {
        let lines = match self {
            Self::Whole(text) => return Ok(text.clone()),
            Self::Lines(lines) => lines,
        };
        if let Some(at) = lines.iter().position(|line| line.contains('\n')) {
            return Err(Refused::BadLine(at + 1));
        }
        Ok(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect())
    }
}

fn diff(input: &Diff) -> Result<impl serde::Serialize + use<>, Refused> {
    let name = |name: &Option<String>, otherwise: &str| {
        let name = name.clone().unwrap_or_else(|| otherwise.to_owned());
        if name.contains(['\n', '\r', '\t']) { Err(Refused::BadName) } else { Ok(name) }
    };
    let (before, after) = (name(&input.before_name, "before")?, name(&input.after_name, "after")?);
    let shown = Shown { before: &before, after: &after, context: input.context.unwrap_or(CONTEXT) };
    Ok(compare(&input.before.joined()?, &input.after.joined()?, shown))
}

fn patch(input: &Patch) -> Result<impl serde::Serialize + use<>, Refused> {
    let way = if input.reverse { Way::Back } else { Way::Forward };
    let hunks = hunk::read(&input.diff, way)?;
    Ok(apply::apply(&input.text.joined()?, &hunks, input.reach.unwrap_or(REACH))?)
}

fn read<'de, T: Deserialize<'de>>(input: &'de str) -> Result<T, Refused> {
    serde_json::from_str(input).map_err(|err| Refused::BadInput(err.to_string()))
}

fn answer(answer: &impl serde::Serialize) -> Result<String, Refused> {
    serde_json::to_string(answer).map_err(|err| Refused::BadInput(err.to_string()))
}

const CONTEXT: usize = 3;
const REACH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_lines_are_texts_whose_lines_are_all_ended() {
        let listed = run("diff", r#"{"before": ["a", "b"], "after": ["a"], "context": 0}"#);
        let whole = run("diff", r#"{"before": "a\nb\n", "after": "a\n", "context": 0}"#);
        assert_eq!(listed, whole);
        assert!(listed.unwrap().contains(r#""removed":1"#));
    }

    #[test]
    fn each_refusal_has_its_code() {
        let cases = [
            ("merge", "{}", "no-such-tool"),
            ("diff", "{}", "bad-input"),
            ("diff", r#"{"before": "", "after": "", "more": 1}"#, "bad-input"),
            ("diff", r#"{"before": ["a\nb"], "after": ""}"#, "bad-line"),
            ("diff", r#"{"before": "", "after": "", "after_name": "a\n@@ -1 +1 @@"}"#, "bad-name"),
            ("patch", r#"{"text": "", "diff": "nothing"}"#, "bad-diff"),
            ("patch", r#"{"text": "a\n", "diff": "@@ -1 +1 @@\n-a\n+b\n--- x\n"}"#, "several-texts"),
            ("patch", r#"{"text": "b\n", "diff": "@@ -1 +1 @@\n-a\n+b\n"}"#, "already-there"),
            ("patch", r#"{"text": "c\n", "diff": "@@ -1 +1 @@\n-a\n+b\n"}"#, "hunk-failed"),
        ];
        for (tool, input, code) in cases {
            assert_eq!(run(tool, input).map_err(|refused| refused.code()), Err(code), "{tool} {input}");
        }
    }
}
