//! The skill `{{id}}`: counts the words, lines and characters of a text, and tells the time.

use serde::{Deserialize, Serialize};

// What the host offers and calls. Imports that are not used are not part of the program, and need no capability.
wit_bindgen::generate!({ path: "wit", world: "skill" });

// Each interface of `wit/skill.wit` is a module beside this one: log, random, kv, http, secrets, files. What is called has to stand under
// `[capabilities]` in skill.toml, which has the line for each, and whoever installs the skill has to grant it: `--grant clock`. A call that
// was not granted ends there, with `not_granted`.
use palyra::skill::clock;

struct Skill;

impl Guest for Skill {
    fn run(tool: String, input: String) -> Result<String, Failure> {
        match tool.as_str() {
            "count" => answer(&count(&read::<Input>(&input)?.text)),
            "time" => answer(&Time { unix_ms: clock::now() }),
            _ => Err(failure("no-such-tool", format!("there is no tool `{tool}`"))),
        }
    }
}

export!(Skill);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Count {
    words: usize,
    lines: usize,
    characters: usize,
}

#[derive(Serialize)]
struct Time {
    unix_ms: u64,
}

fn count(text: &str) -> Count {
    Count { words: text.split_whitespace().count(), lines: text.lines().count(), characters: text.chars().count() }
}

fn read<'a, T: Deserialize<'a>>(input: &'a str) -> Result<T, Failure> {
    serde_json::from_str(input).map_err(|err| failure("bad-input", err.to_string()))
}

fn answer(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(answer).map_err(|err| failure("bad-answer", err.to_string()))
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_stands_between_spaces() {
        assert_eq!(count("Tea, \t or\ncoffee?"), Count { words: 3, lines: 2, characters: 17 });
        assert_eq!(count(""), Count { words: 0, lines: 0, characters: 0 });
    }
}
