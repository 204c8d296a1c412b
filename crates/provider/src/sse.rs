//! Streams of events (`text/event-stream`), as the HTML standard describes them.
//!
//! Guarantees: the same bytes give the same events however they are cut; an event is told once, when the empty line after it has come;
//! what is longer than the limits, or is not UTF-8, is an error that stays, and the events before it are told; what is written here is
//! read as one event, whatever its data holds.
//! Does not: read from anywhere. Bytes are pushed in. Nor keep ids, by which nobody goes on with the stream of a model.

use std::{str, time::Duration};

use hyper::body::Bytes;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type, if one was given.
    pub event: Option<String>,
    /// Its data, lines joined by line feeds.
    pub data: String,
}

/// How much of a stream is held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseLimits {
    /// The longest line, in bytes.
    pub line: usize,
    /// The largest event, in bytes of its data and its type.
    pub event: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        Self { line: 16 << 20, event: 16 << 20 }
    }
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line that is too long.
    #[error("a line of the stream is longer than {limit} bytes")]
    LongLine {
        /// How long it may be.
        limit: usize,
    },
    /// An event that is too large.
    #[error("an event of the stream is larger than {limit} bytes")]
    LargeEvent {
        /// How large it may be.
        limit: usize,
    },
    /// Bytes that are no text.
    #[error("the stream is not UTF-8")]
    NotText,
}

impl SseError {
    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::LongLine { .. } | Self::LargeEvent { .. } => "ask for less, or without a stream",
            Self::NotText => "check that `base_url` of the `[[provider]]` leads to a server of models",
        }
    }
}

/// Turns bytes into events.
#[derive(Debug)]
pub struct SseDecoder {
    limits: SseLimits,
    /// The line that has no end yet.
    line: Vec<u8>,
    started: bool,
    after_return: bool,
    event: String,
    data: Option<String>,
    retry: Option<Duration>,
    failed: Option<SseError>,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(SseLimits::default())
    }
}

impl SseDecoder {
    /// At the beginning of a stream.
    #[must_use]
    pub const fn new(limits: SseLimits) -> Self {
        Self {
            limits,
            line: Vec::new(),
            started: false,
            after_return: false,
            event: String::new(),
            data: None,
            retry: None,
            failed: None,
        }
    }

    /// Takes a piece, and adds the events that it completes.
    ///
    /// # Errors
    /// When the stream cannot be read on. The events before that are added all the same.
    pub fn push(&mut self, piece: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let outcome = self.read(piece, events);
        self.failed = outcome.err();
        outcome
    }

    /// How long the sender wants readers to wait before they come again.
    #[must_use]
    pub const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Whether something has come that is no whole event yet. A stream that ends so was cut off.
    #[must_use]
    pub const fn is_midway(&self) -> bool {
        !self.line.is_empty() || self.data.is_some()
    }

    fn read(&mut self, mut piece: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        while let Some((&first, rest)) = piece.split_first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                piece = rest;
                continue;
            }
            let Some(end) = piece.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
                self.check_line(piece)?;
                self.line.extend_from_slice(piece);
                break;
            };
            let (line, rest) = piece.split_at(end);
            self.check_line(line)?;
            self.after_return = rest.first() == Some(&b'\r');
            piece = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.end_line(line, events)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole, events)?;
                // Its room is used again.
                whole.clear();
                self.line = whole;
            }
        }
        Ok(())
    }

    const fn check_line(&self, more: &[u8]) -> Result<(), SseError> {
        let limit = self.limits.line;
        if self.line.len().saturating_add(more.len()) > limit { Err(SseError::LongLine { limit }) } else { Ok(()) }
    }

    fn end_line(&mut self, line: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let line = str::from_utf8(line).map_err(|_| SseError::NotText)?;
        let line = if self.started { line } else { line.strip_prefix('\u{feff}').unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            self.end_event(events);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.check_event(value.len().saturating_add(1))?;
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
            }
            "event" => {
                self.event.clear();
                self.check_event(value.len())?;
                self.event.push_str(value);
            }
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // Comments, whose field is empty, ids, and what later versions may add.
            // SECURITY: an id counts for every event behind it, so a long one would be held as often as there are events.
            _ => {}
        }
        Ok(())
    }

    fn check_event(&self, more: usize) -> Result<(), SseError> {
        let limit = self.limits.event;
        let held = self.data.as_ref().map_or(0, String::len).saturating_add(self.event.len());
        if held.saturating_add(more) > limit { Err(SseError::LargeEvent { limit }) } else { Ok(()) }
    }

    fn end_event(&mut self, events: &mut Vec<SseEvent>) {
        let event = std::mem::take(&mut self.event);
        // Without data there is no event, says the standard.
        if let Some(data) = self.data.take() {
            let event = (!event.is_empty()).then_some(event);
            events.push(SseEvent { event, data });
        }
    }
}

/// Writes an event. Each line of the data gets a line of its own, so nothing in it ends the event; of a type only the first line counts.
#[must_use]
pub fn event_bytes(event: Option<&str>, data: &str) -> Bytes {
    let event =
        event.map(|event| event.split(['\r', '\n']).next().unwrap_or_default()).filter(|event| !event.is_empty());
    let mut written = String::with_capacity(data.len() + event.map_or(0, str::len) + 24);
    if let Some(event) = event {
        written.push_str("event: ");
        written.push_str(event);
        written.push('\n');
    }
    let mut rest = Some(data);
    while let Some(text) = rest {
        let (line, after) = match text.split_once(['\r', '\n']) {
            // A carriage return and a line feed are one end of a line.
            Some((line, after)) if text.get(line.len()..).is_some_and(|end| end.starts_with("\r\n")) => {
                (line, Some(after.strip_prefix('\n').unwrap_or(after)))
            }
            Some((line, after)) => (line, Some(after)),
            None => (text, None),
        };
        written.push_str("data: ");
        written.push_str(line);
        written.push('\n');
        rest = after;
    }
    written.push('\n');
    written.into()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    fn event(event: Option<&str>, data: &str) -> SseEvent {
        SseEvent { event: event.map(str::to_owned), data: data.to_owned() }
    }

    /// Everything that a decoder says about a stream, given in these pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: SseLimits) -> (Vec<SseEvent>, Option<SseError>) {
        let (mut decoder, mut events) = (SseDecoder::new(limits), Vec::new());
        let error = pieces.into_iter().find_map(|piece| decoder.push(piece, &mut events).err());
        (events, error)
    }

    fn whole(text: &str) -> Vec<SseEvent> {
        let (events, error) = read([text.as_bytes()], SseLimits::default());
        assert_eq!(error, None);
        events
    }

    #[test]
    fn lines_end_in_any_of_three_ways() {
        let three = [event(None, "a"), event(None, "b\nc"), event(None, "d")];
        assert_eq!(whole("data: a\n\ndata: b\ndata: c\n\ndata: d\n\n"), three);
        assert_eq!(whole("data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\ndata: d\r\n\r\n"), three);
        assert_eq!(whole("data: a\r\rdata: b\rdata: c\r\rdata: d\r\r"), three);
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        assert_eq!(whole("\u{feff}: hello\nevent: a\nid: 7\ndata: x\n\n"), [event(Some("a"), "x")]);
        assert_eq!(whole("data:x\n\n"), whole("data: x\n\n"));
        assert_eq!(whole("data:  x\n\n"), [event(None, " x")]);
        assert_eq!(whole("data\n\ndata:\ndata:\n\n"), [event(None, ""), event(None, "\n")]);
        assert_eq!(whole("id: 1\n\ndata: x\n\nid\ndata: y\n\n"), [event(None, "x"), event(None, "y")]);
        assert_eq!(whole("event: lost\n\ndata: x\n\n"), [event(None, "x")]);
        assert_eq!(whole("other: y\n:\ndata: x\n\n"), [event(None, "x")]);
        assert_eq!(whole("data: unfinished\n"), []);
    }

    #[test]
    fn a_wait_is_remembered_and_nonsense_about_it_is_not() {
        let mut decoder = SseDecoder::default();
        decoder.push(b"retry: 1500\nretry: soon\nretry:\n", &mut Vec::new()).unwrap();
        assert_eq!(decoder.retry(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn a_stream_that_ends_midway_is_noticed() {
        let mut decoder = SseDecoder::default();
        for (piece, midway) in [("", false), ("da", true), ("ta: x\n", true), ("\n", false), (": comment\n", false)] {
            decoder.push(piece.as_bytes(), &mut Vec::new()).unwrap();
            assert_eq!(decoder.is_midway(), midway, "{piece}");
        }
    }

    #[test]
    fn what_is_too_long_is_an_error_that_stays() {
        let limits = SseLimits { line: 10, event: 12 };
        assert_eq!(read([&b"data: 1234\n\n"[..]], limits), (vec![event(None, "1234")], None));
        let (events, error) = read([&b"data: x\n\ndata: 12345"[..]], limits);
        assert_eq!((events, error), (vec![event(None, "x")], Some(SseError::LongLine { limit: 10 })));
        let (_, error) = read([&b"data: 1234\ndata: 1234\ndata: 1234\n"[..]], limits);
        assert_eq!(error, Some(SseError::LargeEvent { limit: 12 }));
        // Lines without text have a size, too, or they would be free.
        let (_, error) = read(std::iter::repeat_n(&b"data\n"[..], 20), limits);
        assert_eq!(error, Some(SseError::LargeEvent { limit: 12 }));
        let mut decoder = SseDecoder::new(limits);
        let mut events = Vec::new();
        assert!(decoder.push(b"data: 12345\n", &mut events).is_err());
        assert_eq!(decoder.push(b"\ndata: x\n\n", &mut events), Err(SseError::LongLine { limit: 10 }));
        assert_eq!(events, []);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let (events, error) = read([&b"data: x\n\ndata: \xff\n\n"[..]], SseLimits::default());
        assert_eq!((events, error), (vec![event(None, "x")], Some(SseError::NotText)));
        let split = "data: ü\n\n".as_bytes().chunks(1);
        assert_eq!(read(split, SseLimits::default()), (vec![event(None, "ü")], None));
    }

    #[test]
    fn an_event_is_written_as_it_is_read() {
        assert_eq!(event_bytes(None, "{}"), "data: {}\n\n");
        assert_eq!(event_bytes(Some("done\ndata: forged"), ""), "event: done\ndata: \n\n");
        assert_eq!(event_bytes(Some(""), "a\r\nb\rc\n\nd"), "data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n");
    }

    proptest! {
        #[test]
        fn a_stream_cut_anywhere_says_the_same(
            parts in vec(
                prop_oneof![
                    Just("data: "), Just("data"), Just("event: a"), Just("id: 7"), Just(":"), Just("\n"), Just("\r"), Just("\r\n"),
                    Just("\u{feff}"), Just("ü"), Just("x"), Just("\n\n"), Just("retry: 5"), Just("long text of many bytes"),
                ],
                0..40,
            ),
            noise in proptest::option::weighted(0.2, (any::<Index>(), any::<u8>())),
            cuts in vec(any::<Index>(), 0..12),
        ) {
            let mut bytes = parts.concat().into_bytes();
            if let (Some((at, byte)), false) = (noise, bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let limits = SseLimits { line: 40, event: 60 };
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(read(pieces, limits), read([&bytes[..]], limits));
            prop_assert_eq!(read(bytes.chunks(1), limits), read([&bytes[..]], limits));
        }

        #[test]
        fn what_is_written_is_read_as_one_event(data in "(\\PC|\r|\n|\0|:| |\u{feff}){0,60}", name in "[a-z.\r\n: ]{0,12}") {
            let events = whole(str::from_utf8(&event_bytes(Some(&name), &data)).unwrap());
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(&events[0].data, &data.replace("\r\n", "\n").replace('\r', "\n"));
        }
    }
}
