//! Messages as bytes: a length of four bytes, big end first, and that much JSON.
//!
//! Guarantees: a frame has 1 to 8192 bytes; one that says it is longer is refused before any of it is awaited; what waits to be read is
//! bounded; after the first bad frame there are no more.

use super::message::Message;

/// A message as one frame.
///
/// # Errors
/// When it is longer than a frame may be.
pub fn encode(message: &Message) -> Result<Vec<u8>, FrameError> {
    let json = serde_json::to_vec(message).map_err(|_| FrameError::Malformed)?;
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    if length > LONGEST {
        return Err(FrameError::TooLong { length });
    }
    let mut frame = Vec::with_capacity(HEAD + json.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&json);
    Ok(frame)
}

/// What has come in and not been read yet.
#[derive(Debug, Default)]
pub struct Frames {
    waiting: Vec<u8>,
    failed: Option<FrameError>,
}

impl Frames {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they come.
    ///
    /// # Errors
    /// When the next frame says that it is too long, or more waits than anybody has reason to send.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if self.waiting.len().saturating_add(bytes.len()) > MOST_WAITING {
            return Err(self.fail(FrameError::TooMuch));
        }
        self.waiting.extend_from_slice(bytes);
        self.next_length().map(|_| ())
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// When the next frame is too long, empty, or no message.
    pub fn pop(&mut self) -> Result<Option<Message>, FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let Some(length) = self.next_length()? else { return Ok(None) };
        let Some(json) = self.waiting.get(HEAD..HEAD + length) else { return Ok(None) };
        let Ok(message) = serde_json::from_slice(json) else { return Err(self.fail(FrameError::Malformed)) };
        self.waiting.drain(..HEAD + length);
        Ok(Some(message))
    }

    /// Whether everything that has come was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn next_length(&mut self) -> Result<Option<usize>, FrameError> {
        let Some(head) = self.waiting.first_chunk::<HEAD>() else { return Ok(None) };
        match u32::from_be_bytes(*head) {
            0 => Err(self.fail(FrameError::Empty)),
            length if length > LONGEST => Err(self.fail(FrameError::TooLong { length })),
            length => Ok(Some(usize::try_from(length).unwrap_or(usize::MAX))),
        }
    }

    /// INVARIANT: once the place where frames begin is lost, it is not found again.
    fn fail(&mut self, error: FrameError) -> FrameError {
        self.waiting = Vec::new();
        self.failed = Some(error);
        error
    }
}

/// Why bytes are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than a frame may be.
    #[error("a message has {length} bytes; the limit is {LONGEST}")]
    TooLong {
        /// How long it says it is.
        length: u32,
    },
    /// Of no bytes.
    #[error("a message is empty")]
    Empty,
    /// Not a message.
    #[error("a message cannot be read")]
    Malformed,
    /// More than anybody has reason to send.
    #[error("too many messages are waiting to be read")]
    TooMuch,
}

impl FrameError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        "check that the other side is a daemon or a device of the same version"
    }
}

/// Longest message, in bytes of JSON.
pub const LONGEST: u32 = 8_192;

const HEAD: usize = 4;

/// Neither side ever has reason to send more than two messages without an answer.
const MOST_WAITING: usize = 4 * (HEAD + 8_192);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pairing::message::RefusalCode;

    fn said() -> Vec<Message> {
        vec![
            Message::Kept {},
            Message::Proof { mac: vec![7; 32] },
            Message::refused(RefusalCode::Busy, "wait"),
            Message::Done {},
        ]
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_the_bytes_are_cut() {
        let bytes: Vec<u8> = said().iter().flat_map(|message| encode(message).unwrap()).collect();
        for size in 1..=bytes.len() {
            let (mut frames, mut heard) = (Frames::new(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.push(piece).unwrap();
                while let Some(message) = frames.pop().unwrap() {
                    heard.push(message);
                }
            }
            assert_eq!(heard, said(), "pieces of {size}");
            assert!(frames.is_empty());
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_comes() {
        for (head, error) in [
            (8_193_u32, FrameError::TooLong { length: 8_193 }),
            (u32::MAX, FrameError::TooLong { length: u32::MAX }),
            (0, FrameError::Empty),
        ] {
            let mut frames = Frames::new();
            assert_eq!(frames.push(&head.to_be_bytes()), Err(error));
            assert_eq!(frames.push(&encode(&Message::Kept {}).unwrap()), Err(error), "it stays refused");
            assert_eq!(frames.pop(), Err(error));
        }
        let long = Message::refused(RefusalCode::Internal, "x".repeat(9_000));
        assert!(matches!(encode(&long), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn what_is_no_message_is_refused_and_so_is_everything_after_it() {
        let mut frames = Frames::new();
        frames.push(&[0, 0, 0, 2, b'{', b'}']).unwrap();
        frames.push(&encode(&Message::Kept {}).unwrap()).unwrap();
        assert_eq!(frames.pop(), Err(FrameError::Malformed));
        assert_eq!(frames.pop(), Err(FrameError::Malformed));
    }

    #[test]
    fn whoever_sends_without_being_read_is_stopped() {
        let mut frames = Frames::new();
        let frame = encode(&Message::refused(RefusalCode::Internal, "x".repeat(8_000))).unwrap();
        let refused = (0..8).map(|_| frames.push(&frame)).find_map(Result::err);
        assert_eq!(refused, Some(FrameError::TooMuch));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..64),
                proptest::collection::vec(any::<u8>(), 0..64).prop_map(|mut piece| {
                    let mut framed = vec![0, 0, 0, u8::try_from(piece.len()).unwrap()];
                    framed.append(&mut piece);
                    framed
                }),
            ], 0..16)) {
            let mut frames = Frames::new();
            for piece in pieces {
                let _ = frames.push(&piece);
                while let Ok(Some(_)) = frames.pop() {}
            }
        }
    }
}
