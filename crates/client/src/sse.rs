//! Reads `text/event-stream`, as the HTML standard describes it, from pieces that are cut anywhere.
//!
//! Guarantees: a message is told once, whole, when its empty line has come; one larger than the limit is an error, not a memory problem.

use std::time::Duration;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type; empty if none was given.
    pub(crate) event: String,
    /// Its data, lines joined by line feeds.
    pub(crate) data: String,
}

/// What has come of a stream, as far as it is not a whole message yet.
pub(crate) struct Parser {
    limit: usize,
    started: bool,
    after_return: bool,
    line: Vec<u8>,
    event: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    /// Nothing yet. Messages may have this many bytes.
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            limit,
            started: false,
            after_return: false,
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Takes a piece, and gives the messages that it completes, each with the last id when it was complete.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<Vec<(Message, Option<String>)>, TooLarge> {
        let mut messages = Vec::new();
        while let Some((&first, rest)) = piece.split_first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                piece = rest;
                continue;
            }
            let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.keep(piece)?;
                break;
            };
            let (line, rest) = piece.split_at(end);
            self.keep(line)?;
            self.after_return = rest.first() == Some(&b'\r');
            piece = rest.get(1..).unwrap_or_default();
            messages.extend(self.end_line());
        }
        Ok(messages)
    }

    /// How long the sender wants readers to wait before they come again.
    pub(crate) const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let held = self.line.len() + self.data.len() + self.event.len();
        if held.saturating_add(bytes.len()) > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<(Message, Option<String>)> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = if self.started { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.started = true;
        if line.is_empty() {
            return self.end_message();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // Comments, whose field is empty, and what later versions may add.
            _ => {}
        }
        None
    }

    fn end_message(&mut self) -> Option<(Message, Option<String>)> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let message = Message { event: std::mem::take(&mut self.event), data: std::mem::take(&mut self.data) };
        std::mem::take(&mut self.has_data).then(|| (message, self.last_id.clone()))
    }
}

/// A message that is larger than what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of the stream is larger than {limit} bytes")]
pub(crate) struct TooLarge {
    limit: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: &str, data: &str) -> Message {
        Message { event: event.into(), data: data.into() }
    }

    fn read(text: &str) -> Vec<Message> {
        let messages = Parser::new(1024).push(text.as_bytes()).unwrap();
        messages.into_iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn a_stream_cut_anywhere_says_the_same() {
        let text = "\u{feff}: hello\r\nevent: a\r\nid: 7\r\ndata: one\r\ndata: twö\r\n\r\ndata: x\n\nid: 9\rdata:y\r\r";
        let whole = vec![
            (message("a", "one\ntwö"), Some("7".to_owned())),
            (message("", "x"), Some("7".to_owned())),
            (message("", "y"), Some("9".to_owned())),
        ];
        assert_eq!(Parser::new(1024).push(text.as_bytes()).unwrap(), whole);
        for size in 1..text.len() {
            let mut parser = Parser::new(1024);
            let pieces = text.as_bytes().chunks(size);
            let told: Vec<_> = pieces.flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(told, whole, "pieces of {size}");
            assert_eq!(parser.last_id.as_deref(), Some("9"));
        }
    }

    #[test]
    fn only_a_complete_message_is_told() {
        assert_eq!(read("data: x"), []);
        assert_eq!(read("data: x\n"), []);
        assert_eq!(read("data: x\n\n"), [message("", "x")]);
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        assert_eq!(read("data\n\n"), [message("", "")]);
        assert_eq!(read("data:  two spaces\n\n"), [message("", " two spaces")]);
        assert_eq!(read("data: a: b\n\n"), [message("", "a: b")]);
        assert_eq!(read("unknown: x\nDATA: y\n\n"), []);
        assert_eq!(read(": comment\n:\n\n"), []);
        assert_eq!(read("event: lost\n\ndata: x\n\n"), [message("", "x")]);
    }

    #[test]
    fn an_id_counts_once_its_message_is_complete_and_stays() {
        let mut parser = Parser::new(1024);
        parser.push(b"id: 1\n").unwrap();
        assert_eq!(parser.last_id.as_deref(), None);
        parser.push(b"\nid: 2\0\ndata: x\n\n").unwrap();
        assert_eq!(parser.last_id.as_deref(), Some("1"));
        parser.push(b"id\n\n").unwrap();
        assert_eq!(parser.last_id.as_deref(), Some(""));
    }

    #[test]
    fn retry_is_a_number_of_milliseconds() {
        let mut parser = Parser::new(1024);
        parser.push(b"retry: 2500\nretry: soon\n").unwrap();
        assert_eq!(parser.retry(), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn a_message_may_be_as_large_as_the_limit_and_no_larger() {
        let fits = format!("data: {}\n\n", "x".repeat(94));
        let mut parser = Parser::new(100);
        for _ in 0..3 {
            assert_eq!(parser.push(fits.as_bytes()).unwrap().len(), 1);
        }
        let larger = format!("data: {}\n\n", "x".repeat(95));
        assert_eq!(Parser::new(100).push(larger.as_bytes()), Err(TooLarge { limit: 100 }));
        let many_lines = "data: 0123456789\n".repeat(10);
        assert_eq!(Parser::new(100).push(many_lines.as_bytes()), Err(TooLarge { limit: 100 }));
    }
}
