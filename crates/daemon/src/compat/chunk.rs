//! What is read of the JSON that providers send, and of no more of it.
//!
//! Guarantees: no tree is made of what a provider sends. What nobody asked for is checked to be JSON and takes no room, so an answer takes
//! about as much as its own length, whatever it is made of.
//! Does not: judge whether a chunk makes sense. [`turn`](super::turn) does.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    lenient::{Count, List, Object, Text, Trouble},
    turn::{MOST_CALLS, Usage},
};

/// One chunk of a chat completion, as far as a turn is made of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// That the provider failed in the middle of its answer.
    pub error: Trouble,
    /// What the turn took.
    pub usage: Object<Figures>,
    /// What is said. One choice was asked for.
    pub choices: List<Object<Choice>, 1>,
}

impl Chunk {
    /// Reads a chunk. One that is no object lacks everything.
    ///
    /// # Errors
    /// When it is no JSON, or says something twice.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<Object<Self>>(text).map(|chunk| chunk.0.unwrap_or_default())
    }
}

/// What a chunk adds to the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// Why the model stopped, if it did.
    pub finish_reason: Text,
    /// What it adds.
    pub delta: Object<Delta>,
    /// All of it, where a provider does not send it in pieces.
    pub message: Object<Delta>,
}

/// A piece of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// Text.
    pub content: Text,
    /// Why the model refuses.
    pub refusal: Text,
    /// Pieces of calls.
    pub tool_calls: List<Object<CallPiece>, MOST_CALLS>,
}

/// A piece of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CallPiece {
    /// Which call of the turn it is a piece of.
    pub index: Count,
    /// The provider's id of the call.
    pub id: Text,
    /// What is called.
    pub function: Object<FunctionPiece>,
}

/// A piece of what is called.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FunctionPiece {
    /// Its name.
    pub name: Text,
    /// Its arguments.
    pub arguments: Text,
}

/// What is read of an event, or of a whole answer, that is passed on as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Noted {
    /// What kind of event it is.
    #[serde(rename = "type")]
    pub kind: Text,
    /// That the provider failed.
    pub error: Trouble,
    usage: Object<Figures>,
    response: Object<Response>,
}

/// A response, of which an event tells.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    usage: Object<Figures>,
}

impl Noted {
    /// Reads it, or none if it is no JSON.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match serde_json::from_str::<Object<Self>>(text) {
            Ok(noted) => Some(noted.0.unwrap_or_default()),
            // What says something twice is passed on like anything else, and nothing is made of it.
            Err(_) => serde_json::from_str::<&RawValue>(text).is_ok().then(Self::default),
        }
    }

    /// What it took, if it says so.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let within = || self.response.0.as_ref()?.usage.0.as_ref();
        self.usage.0.as_ref().or_else(within).map(Figures::usage)
    }
}

/// What was taken, in tokens, by the names of chats and of responses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Figures {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
}

impl Figures {
    /// What they come to. Figures that make no sense are none.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let first = |chat: Count, response: Count| chat.known().or_else(|| response.known()).unwrap_or_default();
        Usage {
            input: first(self.prompt_tokens, self.input_tokens),
            output: first(self.completion_tokens, self.output_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_is_noted_whatever_else_it_says() {
        let noted = |text: &str| {
            let noted = Noted::read(text).unwrap();
            let usage = noted.usage().map(|usage| (usage.input, usage.output));
            (noted.kind.or_empty(), usage, noted.error)
        };
        let chat =
            r#"{"id":"x","object":"list","usage":{"prompt_tokens":7,"completion_tokens":3,"more":[0,0]},"error":null}"#;
        assert_eq!(noted(chat), (String::new(), Some((7, 3)), Trouble::None));
        let response = r#"{"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":3}}}"#;
        assert_eq!(noted(response), ("response.completed".to_owned(), Some((7, 3)), Trouble::None));
        let failed = r#"{"error":{"message":"over capacity"},"usage":null}"#;
        assert_eq!(noted(failed), (String::new(), None, Trouble::Told(Some("over capacity".to_owned()))));
        for nothing in ["[]", "7", "\"x\"", "null", r#"{"usage":{},"usage":{}}"#, r#"{"type":["x"],"response":7}"#] {
            assert_eq!(noted(nothing), (String::new(), None, Trouble::None), "{nothing}");
        }
        for broken in ["", "{", "{\"a\":}", "[0,0", "{\"usage\":{}} x", "\u{feff}{}"] {
            assert!(Noted::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn what_is_as_deep_as_can_be_is_read_like_anything_else() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Noted::read(&format!("{{\"usage\":{deep},\"x\":{deep}}}")).is_some());
        let chunk = Chunk::read(&format!("{{\"choices\":[{{\"delta\":{deep}}},{deep}],\"x\":{deep}}}")).unwrap();
        assert!(chunk.choices.0.is_some_and(|choices| choices.goes_on));
    }
}
