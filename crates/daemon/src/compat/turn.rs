//! One turn of a model, put together from the chunks of a chat completion.
//!
//! Guarantees: pure, and bounded: however a provider cuts its chunks, the same turn comes of them; whatever is no chunk is an error that says
//! so. Arguments that are longer than a call may have are cut and marked, so that nothing is run of them.

use palyra_types::visible::visible;

use super::{
    chunk::{CallPiece, Chunk},
    lenient::{Count, Trouble},
};

/// What a model said in one turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// The text.
    pub text: String,
    /// Why it refuses, if it does.
    pub refusal: String,
    /// The calls that it wants.
    pub calls: Vec<WantedCall>,
    /// Why it stopped, in the words of the provider.
    pub finish: Option<String>,
    /// What it took.
    pub usage: Usage,
}

/// A call that a model wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedCall {
    /// The provider's id of it.
    pub id: String,
    /// The function.
    pub function: String,
    /// Its arguments, as text that should be JSON.
    pub arguments: String,
    /// Whether the arguments are longer than a call may have.
    pub is_too_long: bool,
}

/// What a turn took, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// What the model read.
    pub input: u64,
    /// What it said.
    pub output: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// This and another.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { input: self.input.saturating_add(other.input), output: self.output.saturating_add(other.output) }
    }
}

impl Turn {
    /// Takes in one chunk, and says what text came with it.
    ///
    /// # Errors
    /// When it is no chunk of a chat completion.
    pub fn push(&mut self, chunk: Chunk) -> Result<String, TurnError> {
        if let Trouble::Told(message) = chunk.error {
            let message = message.as_deref().unwrap_or("no reason was given");
            return Err(TurnError::Told(message.chars().take(LONGEST_REASON).collect()));
        }
        if let Some(figures) = chunk.usage.0 {
            self.usage = figures.usage();
        }
        let choices = chunk.choices.0.ok_or(TurnError::NoChunk("`choices`"))?;
        // One choice was asked for; the last chunk, which tells the usage, has none.
        let Some(choice) = choices.first.into_iter().next().and_then(|choice| choice.0) else {
            return Ok(String::new());
        };
        if let Some(finish) = choice.finish_reason.0 {
            self.finish = Some(finish);
        }
        let Some(delta) = choice.delta.0.or(choice.message.0) else { return Ok(String::new()) };
        if let Some(calls) = delta.tool_calls.0 {
            if calls.goes_on {
                return Err(TurnError::TooManyCalls);
            }
            calls.first.into_iter().filter_map(|call| call.0).try_for_each(|call| self.take_call(call))?;
        }
        let (text, refusal) = (delta.content.or_empty(), delta.refusal.or_empty());
        let said = [&self.text, &self.refusal, &text, &refusal].map(String::len);
        if said.into_iter().fold(0, usize::saturating_add) > LONGEST_TEXT {
            return Err(TurnError::TooLong);
        }
        self.refusal.push_str(&refusal);
        self.text.push_str(&text);
        Ok(text)
    }

    /// That the turn says anything, which is asked at its end.
    ///
    /// # Errors
    /// When there is nothing in it.
    pub const fn said_something(&self) -> Result<(), TurnError> {
        let is_empty = self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty();
        if is_empty && self.finish.is_none() { Err(TurnError::Silent) } else { Ok(()) }
    }

    fn take_call(&mut self, piece: CallPiece) -> Result<(), TurnError> {
        let index = match piece.index {
            Count::Of(index) => usize::try_from(index).map_err(|_| TurnError::TooManyCalls)?,
            // A whole message has no index, and each of its calls is the next one.
            Count::Absent => self.calls.len(),
            Count::Odd => return Err(TurnError::NoChunk("`index`")),
        };
        if index > self.calls.len() || index >= MOST_CALLS {
            return Err(TurnError::TooManyCalls);
        }
        if index == self.calls.len() {
            self.calls.push(WantedCall::default());
        }
        let Some(call) = self.calls.get_mut(index) else { return Err(TurnError::TooManyCalls) };
        if let Some(id) = piece.id.0 {
            call.id = id;
        }
        let Some(function) = piece.function.0 else { return Ok(()) };
        call.function.push_str(&function.name.or_empty());
        let arguments = function.arguments.or_empty();
        if call.arguments.len().saturating_add(arguments.len()) > LONGEST_ARGUMENTS {
            call.is_too_long = true;
        }
        if !call.is_too_long {
            call.arguments.push_str(&arguments);
        }
        if call.id.len() > LONGEST_NAME || call.function.len() > LONGEST_NAME {
            return Err(TurnError::NoChunk("an id or a name of sensible length"));
        }
        Ok(())
    }
}

/// Why a turn makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// The provider tells an error in the middle of its answer.
    #[error("the provider broke off: {}", visible(.0))]
    Told(String),
    /// It is no chunk of a chat completion.
    #[error("the provider sent something that is no chunk of a chat completion: it lacks {0}")]
    NoChunk(&'static str),
    /// More text than anybody reads.
    #[error("the provider sent more than {LONGEST_TEXT} bytes of text in one turn")]
    TooLong,
    /// More calls than anybody looks at.
    #[error("the provider sent more than {MOST_CALLS} calls in one turn, or left some out")]
    TooManyCalls,
    /// Neither text nor calls, nor why there are none.
    #[error("the provider said nothing")]
    Silent,
}

/// The longest arguments of one call, as the native API has it.
pub const LONGEST_ARGUMENTS: usize = 1 << 20;

const LONGEST_TEXT: usize = 8 << 20;

const LONGEST_NAME: usize = 256;

const LONGEST_REASON: usize = 1_000;

/// How many calls one turn may want.
pub const MOST_CALLS: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn turn(chunks: &[Value]) -> Result<Turn, TurnError> {
        let mut turn = Turn::default();
        chunks.iter().try_for_each(|chunk| turn.push(Chunk::read(&chunk.to_string()).unwrap()).map(drop))?;
        Ok(turn)
    }

    fn delta(delta: &Value) -> Value {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
    }

    #[test]
    fn calls_are_put_together_by_their_index() {
        let piece = |index: u64, more: Value| {
            let mut call = more;
            call["index"] = json!(index);
            delta(&json!({ "tool_calls": [call] }))
        };
        let whole = turn(&[
            delta(&json!({ "role": "assistant", "content": "Let me " })),
            delta(&json!({ "content": "see." })),
            piece(0, json!({ "id": "a", "type": "function", "function": { "name": "fs_read", "arguments": "" } })),
            piece(0, json!({ "function": { "arguments": "{\"pa" } })),
            piece(1, json!({ "id": "b", "function": { "name": "fs_list", "arguments": "{}" } })),
            piece(0, json!({ "function": { "arguments": "th\":\"x\"}" } })),
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }),
            json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }),
        ])
        .unwrap();
        let call = |id: &str, function: &str, arguments: &str| WantedCall {
            id: id.to_owned(),
            function: function.to_owned(),
            arguments: arguments.to_owned(),
            is_too_long: false,
        };
        let expected = Turn {
            text: "Let me see.".to_owned(),
            refusal: String::new(),
            calls: vec![call("a", "fs_read", r#"{"path":"x"}"#), call("b", "fs_list", "{}")],
            finish: Some("tool_calls".to_owned()),
            usage: Usage { input: 7, output: 3 },
        };
        assert_eq!(whole, expected);
    }

    #[test]
    fn arguments_beyond_what_a_call_may_have_are_marked_and_not_kept() {
        let piece =
            json!({ "tool_calls": [{ "index": 0, "function": { "name": "x", "arguments": "a".repeat(1 << 19) } }] });
        let turn = turn(&[delta(&piece), delta(&piece), delta(&piece)]).unwrap();
        let [call] = turn.calls.as_slice() else { panic!("{:?}", turn.calls.len()) };
        assert!(call.is_too_long);
        assert_eq!(call.arguments.len(), 1 << 20);
    }

    #[test]
    fn what_is_said_in_refusals_is_bounded_like_any_text() {
        let piece = |member: &str| delta(&json!({ member: "a".repeat(3 << 20) }));
        let (content, refusal) = (piece("content"), piece("refusal"));
        assert!(turn(&[refusal.clone(), content.clone()]).is_ok());
        for chunks in [[&refusal, &refusal, &refusal], [&refusal, &content, &refusal], [&content, &content, &content]] {
            assert_eq!(turn(&chunks.map(Value::clone)).unwrap_err(), TurnError::TooLong);
        }
    }

    #[test]
    fn a_message_that_comes_whole_is_a_turn_like_any_other() {
        let call = |id: &str| json!({ "id": id, "function": { "name": "fs_list", "arguments": "{}" } });
        let message = json!({ "content": ["odd"], "refusal": 7, "tool_calls": [call("a"), call("b")] });
        let whole =
            turn(&[json!({ "choices": [{ "delta": null, "message": message, "finish_reason": [] }] })]).unwrap();
        let ids: Vec<&str> = whole.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!((ids, whole.text.as_str(), whole.finish.as_deref()), (vec!["a", "b"], "", None));
    }

    #[test]
    fn a_turn_without_a_word_is_none() {
        assert_eq!(turn(&[delta(&json!({ "role": "assistant" }))]).unwrap().said_something(), Err(TurnError::Silent));
        assert_eq!(turn(&[delta(&json!({ "refusal": "no" }))]).unwrap().said_something(), Ok(()));
    }

    #[test]
    fn what_is_no_chunk_is_told_as_such() {
        let told = |chunk: Value| turn(&[chunk]).unwrap_err().to_string();
        assert_eq!(
            told(json!({ "error": { "message": "over capacity\u{202e}" } })),
            "the provider broke off: over capacity<U+202E>"
        );
        assert!(told(json!({ "hello": 1 })).ends_with("it lacks `choices`"));
        assert!(told(json!([])).ends_with("it lacks `choices`"));
        let call = |index: Value| delta(&json!({ "tool_calls": [{ "index": index, "function": {} }] }));
        assert!(told(call(json!("0"))).ends_with("it lacks `index`"));
        assert!(told(call(json!(null))).ends_with("it lacks `index`"));
        assert_eq!(turn(&[call(json!(7))]).unwrap_err(), TurnError::TooManyCalls);
        let many: Vec<Value> = (0..65).map(|_| json!({ "index": 0, "function": {} })).collect();
        assert_eq!(turn(&[delta(&json!({ "tool_calls": many }))]).unwrap_err(), TurnError::TooManyCalls);
    }
}
