//! What a call asked of the host and what it was told, so that it can be run again and come to the same answer.
//!
//! Guarantees: whoever runs a call from its recording touches nothing but the recording, and hears of the first question that differs. A
//! recording that would be larger than its bound is none at all, never a part.

mod written;

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::written::{Written, bytes, request, spelt_bytes};
use crate::{host::HostRefusal, outcome::SkillFailure};

/// The questions of one call and their answers, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// In order.
    pub calls: Vec<RecordedCall>,
}

/// One question and its answer. Both are JSON, so that a recording can be written by hand for a test. Bytes are base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// The function, such as `http.fetch`.
    pub function: String,
    /// What it was asked. `null` stands for anything.
    #[serde(default)]
    pub asked: Value,
    /// What it answered: `{"ok": …}` or `{"error": {"kind": …, "message": …}}`.
    pub answered: Value,
}

/// Writes a recording, up to a number of bytes.
pub(crate) struct Recorder {
    recording: Option<Recording>,
    left: u64,
}

impl Recorder {
    /// A recorder with nothing in it.
    pub(crate) fn new(most_bytes: u64) -> Self {
        Self { recording: Some(Recording::default()), left: most_bytes }
    }

    /// Whether there may be room for so many bytes. Otherwise the whole recording is given up, and nothing needs to be spelt for it any more.
    ///
    /// SECURITY: what is handed over is bounded, and what is made of it to be written down is larger. It is made only where it is kept.
    pub(crate) fn makes_room(&mut self, bytes: usize) -> bool {
        if u64::try_from(bytes).map_or(true, |bytes| bytes > self.left) {
            self.recording = None;
        }
        self.recording.is_some()
    }

    /// Writes down a question and its answer. Without room for it, the whole recording is given up.
    pub(crate) fn note<T: Written>(&mut self, function: &str, asked: Value, answer: &Result<T, HostRefusal>) {
        if !self.makes_room(answer.as_ref().map_or(0, Written::bytes_at_least)) {
            return;
        }
        let Some(recording) = &mut self.recording else { return };
        let answered = match answer {
            Ok(value) => serde_json::json!({ "ok": value.to_value() }),
            Err(refusal) => serde_json::json!({ "error": refusal }),
        };
        let call = RecordedCall { function: function.to_owned(), asked, answered };
        let mut counted = Counted(0);
        let size = serde_json::to_writer(&mut counted, &call).map_or(u64::MAX, |()| counted.0);
        match self.left.checked_sub(size) {
            Some(left) => {
                self.left = left;
                recording.calls.push(call);
            }
            None => self.recording = None,
        }
    }

    /// The recording, if there was room for it.
    pub(crate) fn finish(self) -> Option<Recording> {
        self.recording
    }
}

/// Counts what is written, and keeps nothing of it.
struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers from a recording.
pub(crate) struct Replay {
    calls: std::vec::IntoIter<RecordedCall>,
}

impl Replay {
    /// Answers from the first question on.
    pub(crate) fn new(recording: Recording) -> Self {
        Self { calls: recording.calls.into_iter() }
    }

    /// What was answered then.
    ///
    /// # Errors
    /// When this was not the next question, or its answer is none for it.
    pub(crate) fn answer<T: Written>(
        &mut self,
        function: &str,
        asked: &Value,
    ) -> Result<Result<T, HostRefusal>, SkillFailure> {
        let Some(call) = self.calls.next() else {
            return Err(diverged(format!("`{function}`, and nothing more was recorded")));
        };
        if call.function != function {
            return Err(diverged(format!("`{function}`, and `{}` was recorded", call.function)));
        }
        if !call.asked.is_null() && call.asked != *asked {
            return Err(diverged(format!(
                "`{function}` with {}, and {} was recorded",
                short(asked),
                short(&call.asked)
            )));
        }
        let unreadable = || diverged(format!("`{function}`, and what was recorded is no answer to it"));
        let Value::Object(mut answered) = call.answered else { return Err(unreadable()) };
        match (answered.remove("ok"), answered.remove("error")) {
            (Some(value), None) => T::from_value(value).map(Ok).ok_or_else(unreadable),
            (None, Some(refusal)) => serde_json::from_value(refusal).map(Err).map_err(|_| unreadable()),
            _ => Err(unreadable()),
        }
    }

    /// That everything was asked.
    ///
    /// # Errors
    /// When something was not.
    pub(crate) fn finished(&self) -> Result<(), SkillFailure> {
        match self.calls.as_slice().first() {
            Some(call) => Err(diverged(format!("nothing more, and `{}` was recorded", call.function))),
            None => Ok(()),
        }
    }
}

fn diverged(detail: String) -> SkillFailure {
    SkillFailure::Diverged { detail }
}

fn short(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > SHOWN_BYTES {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES));
        text.push('…');
    }
    text
}

const SHOWN_BYTES: usize = 200;
