//! What came out of a call, byte for byte as far as it is kept.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_journal::mask::masked_bytes;
use palyra_sandbox::{Captured, Ended, Outcome};
use palyra_types::Sha256Digest;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::arming::CallSecrets;

/// What came out of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Output {
    /// Of a process.
    Process {
        /// Its exit code, if it ended by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The signal that ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Its standard output.
        stdout: Bytes,
        /// Its standard error.
        stderr: Bytes,
    },
    /// Of a tool that answers with JSON.
    Value {
        /// The answer.
        value: Value,
    },
    /// Nothing.
    Nothing,
}

/// Bytes, as far as they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    /// What is kept.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub total: u64,
}

impl Output {
    pub(crate) fn of_process(outcome: Outcome) -> Self {
        let (exit_code, signal) = match outcome.ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signalled(signal) => (None, Some(signal)),
            Ended::WallClock | Ended::Deadline | Ended::ProcessLimit | Ended::Cancelled(_) | Ended::SupervisorLost => {
                (None, None)
            }
        };
        Self::Process { exit_code, signal, stdout: outcome.stdout.into(), stderr: outcome.stderr.into() }
    }

    /// The same, with no more kept than this many bytes of both streams together, standard output first.
    pub(crate) fn within(mut self, most: u64) -> Self {
        if let Self::Process { stdout, stderr, .. } = &mut self {
            stdout.keep(most);
            stderr.keep(most.saturating_sub(stdout.kept()));
        }
        self
    }

    /// Takes the values of secrets out.
    pub(crate) fn redact(&mut self, secrets: &CallSecrets) {
        match self {
            Self::Process { stdout, stderr, .. } => {
                for stream in [stdout, stderr] {
                    let is_cut = stream.is_truncated();
                    secrets.redact(&mut stream.bytes, is_cut);
                }
            }
            Self::Value { value } => each_text(value, &|text| secrets.redact_text(text)),
            Self::Nothing => {}
        }
    }

    /// The digest of all of it, or nothing for nothing.
    #[must_use]
    pub fn digest(&self) -> Option<Sha256Digest> {
        match self {
            Self::Process { exit_code, signal, stdout, stderr } => {
                let number =
                    |number: &Option<i32>| number.map_or_else(Vec::new, |number| number.to_be_bytes().to_vec());
                Some(Sha256Digest::of_fields([
                    b"process".as_slice(),
                    &number(exit_code),
                    &number(signal),
                    &stdout.bytes,
                    &stdout.total.to_be_bytes(),
                    &stderr.bytes,
                    &stderr.total.to_be_bytes(),
                ]))
            }
            Self::Value { value } => Some(Sha256Digest::of_fields([b"value".as_slice(), value.to_string().as_bytes()])),
            Self::Nothing => None,
        }
    }

    /// How much there was, for the budget.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Process { stdout, stderr, .. } => stdout.kept().saturating_add(stderr.kept()),
            Self::Value { value } => u64::try_from(value.to_string().len()).unwrap_or(u64::MAX),
            Self::Nothing => 0,
        }
    }

    /// The exit code, if it is of a process that has one.
    #[must_use]
    pub const fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Process { exit_code, .. } => *exit_code,
            Self::Value { .. } | Self::Nothing => None,
        }
    }

    /// The signal that ended it, if it is of a process that one ended.
    #[must_use]
    pub const fn signal(&self) -> Option<i32> {
        match self {
            Self::Process { signal, .. } => *signal,
            Self::Value { .. } | Self::Nothing => None,
        }
    }
}

/// Shows each text in a value to somebody who may change it.
pub(crate) fn each_text(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => members.iter_mut().for_each(|(_, member)| each_text(member, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What comes out of a call as it is kept. Tokens in text are masked with the record that holds it; those in base 64, which hides them
/// from that, are masked here.
pub(crate) struct Kept<'a>(pub(crate) &'a Output);

impl Serialize for Kept<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hidden = match self.0 {
            Output::Process { stdout, stderr, .. } => !(stdout.is_text() && stderr.is_text()),
            Output::Value { value } => {
                value.get(BASE64).is_some() || value.get("encoding").is_some_and(|encoding| encoding == BASE64)
            }
            Output::Nothing => false,
        };
        if !hidden {
            return self.0.serialize(serializer);
        }
        let mut told = serde_json::to_value(self.0).map_err(serde::ser::Error::custom)?;
        for (place, data) in [("stdout", "data"), ("stderr", "data"), ("value", "content"), ("value", BASE64)] {
            let is_hidden = |part: &Value| data == BASE64 || part["encoding"] == BASE64;
            let part = told.get_mut(place).filter(|part| part.get(data).is_some() && is_hidden(part));
            let Some(part) = part else { continue };
            let bytes = part[data].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
            part[data] = bytes.map(|bytes| BASE64_STANDARD.encode(masked_bytes(&bytes))).into();
        }
        told.serialize(serializer)
    }
}

impl Bytes {
    fn is_text(&self) -> bool {
        std::str::from_utf8(&self.bytes).is_ok()
    }

    fn keep(&mut self, most: u64) {
        self.bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }

    fn kept(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    /// Whether there was more than is kept.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.kept() < self.total
    }
}

impl From<Captured> for Bytes {
    fn from(captured: Captured) -> Self {
        Self { total: captured.total, bytes: captured.bytes }
    }
}

impl Serialize for Bytes {
    /// Text where it is text, else base 64, and it says which.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => {
                map.serialize_entry("encoding", "utf-8")?;
                map.serialize_entry("data", text)?;
            }
            Err(_) => {
                map.serialize_entry("encoding", BASE64)?;
                map.serialize_entry("data", &BASE64_STANDARD.encode(&self.bytes))?;
            }
        }
        map.serialize_entry("total", &self.total)?;
        map.serialize_entry("truncated", &self.is_truncated())?;
        map.end()
    }
}

/// How bytes are told that are no text.
const BASE64: &str = "base64";
