//! What an event tells, for those who follow one call.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palyra_api::{
    ErrorBody, ErrorDetail, Event,
    call::Call,
    event::{CALL_OVER, OutputPiece, TOOL_OUTPUT},
};

use crate::error::ClientError;

/// What an event tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// The call printed something.
    Output {
        /// To which stream.
        which: Which,
        /// Where in that stream it begins.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// The call is over, and ran.
    Over(Box<Call>),
    /// The call is over, and was refused.
    Refused(Box<ErrorDetail>),
    /// Something else, which has a record.
    Happened(Box<Event>),
}

/// A stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Told {
    /// Reads an event.
    ///
    /// # Errors
    /// When its data is not what its type says.
    pub fn read(event: Event) -> Result<Self, ClientError> {
        let protocol = |error: &dyn std::fmt::Display| ClientError::Protocol(error.to_string());
        match event.kind.as_str() {
            TOOL_OUTPUT => {
                let piece: OutputPiece = serde_json::from_value(event.data).map_err(|error| protocol(&error))?;
                let which = match piece.stream.as_str() {
                    "stdout" => Which::Stdout,
                    "stderr" => Which::Stderr,
                    _ => return Err(protocol(&"output of an unknown stream")),
                };
                let bytes = BASE64_STANDARD.decode(&piece.base64).map_err(|error| protocol(&error))?;
                Ok(Self::Output { which, offset: piece.offset, bytes })
            }
            CALL_OVER if event.data.get("error").is_some() => {
                let body: ErrorBody = serde_json::from_value(event.data).map_err(|error| protocol(&error))?;
                Ok(Self::Refused(Box::new(body.error)))
            }
            CALL_OVER => {
                let call = serde_json::from_value(event.data).map_err(|error| protocol(&error))?;
                Ok(Self::Over(Box::new(call)))
            }
            _ => Ok(Self::Happened(Box::new(event))),
        }
    }
}

#[cfg(test)]
mod tests {
    use palyra_types::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, data: Value) -> Event {
        let time = Timestamp::from_unix_millis(0);
        Event { v: 1, seq: None, time, kind: kind.into(), run_id: None, call_id: None, data }
    }

    #[test]
    fn output_comes_as_bytes() {
        let told = Told::read(event("tool.output", json!({ "stream": "stderr", "offset": 3, "base64": "AP8=" })));
        assert_eq!(told, Ok(Told::Output { which: Which::Stderr, offset: 3, bytes: vec![0, 255] }));
        for data in [json!({}), json!({ "stream": "x", "offset": 0, "base64": "" }), json!(null)] {
            assert!(Told::read(event("tool.output", data)).is_err());
        }
    }

    #[test]
    fn the_end_of_a_call_is_a_call_or_a_refusal() {
        let told = Told::read(event("call.over", json!({ "error": { "code": "denied_by_policy", "message": "no" } })));
        assert!(matches!(told, Ok(Told::Refused(detail)) if detail.code == "denied_by_policy"));
        assert!(Told::read(event("call.over", json!({}))).is_err());
        assert!(matches!(Told::read(event("tool.proposed", json!({}))), Ok(Told::Happened(_))));
    }
}
