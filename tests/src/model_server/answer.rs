//! What a script is made of.

use std::time::Duration;

use serde_json::{Value, json};

/// What is answered to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(super) shape: Shape,
    pub(super) headers: Vec<(String, String)>,
    pub(super) pause: Duration,
    pub(super) flaw: Flaw,
    pub(super) ending: Ending,
}

/// A call of a tool, as a model makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The tool's name.
    pub name: String,
    /// The namespace it is in, which only the Responses API has.
    pub namespace: Option<String>,
    /// Its arguments, which need not be JSON.
    pub arguments: String,
}

impl Call {
    /// A call with these arguments.
    #[must_use]
    pub fn new(name: &str, arguments: &Value) -> Self {
        Self::with_text(name, &arguments.to_string())
    }

    /// A call with arguments that need not be JSON.
    #[must_use]
    pub fn with_text(name: &str, arguments: &str) -> Self {
        Self { name: name.to_owned(), namespace: None, arguments: arguments.to_owned() }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

impl Answer {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::told(Told { text: Some(text.to_owned()), ..Told::default() })
    }

    /// A call of a tool.
    #[must_use]
    pub fn tool(name: &str, arguments: &Value) -> Self {
        Self::tools([Call::new(name, arguments)])
    }

    /// Calls of tools, all at once.
    #[must_use]
    pub fn tools(calls: impl IntoIterator<Item = Call>) -> Self {
        Self::told(Told { calls: calls.into_iter().collect(), ..Told::default() })
    }

    /// A call of a tool whose one argument, `text`, has this many letters.
    #[must_use]
    pub fn huge_tool(name: &str, letters: usize) -> Self {
        Self::tool(name, &json!({ "text": "x".repeat(letters) })).in_pieces(64)
    }

    /// Vectors, one for each input.
    #[must_use]
    pub const fn vectors(vectors: Vec<Vec<f32>>) -> Self {
        Self::of(Shape::Vectors(vectors))
    }

    /// An error with the body that clients know.
    #[must_use]
    pub fn error(status: u16, kind: &str, code: &str, message: &str) -> Self {
        let error = json!({ "message": message, "type": kind, "param": null, "code": code });
        Self::of(Shape::Error { status, body: json!({ "error": error }) })
    }

    /// That there were too many requests, and in how many seconds there may be another.
    #[must_use]
    pub fn too_many(seconds: u32) -> Self {
        Self::error(429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached")
            .header("retry-after", &seconds.to_string())
    }

    /// JSON that breaks off in its middle, though all that was announced has come.
    #[must_use]
    pub fn malformed_json() -> Self {
        Self { flaw: Flaw::HalfJson, ..Self::text("never read") }
    }

    /// What calls itself a stream of events and is none, also where nobody asked for a stream.
    #[must_use]
    pub const fn malformed_events() -> Self {
        Self::of(Shape::MalformedEvents)
    }

    /// A text that has bytes in it which are no UTF-8.
    #[must_use]
    pub fn invalid_utf8() -> Self {
        Self { flaw: Flaw::InvalidUtf8, ..Self::text(BROKEN_PLACE).in_pieces(1) }
    }

    /// Nothing, until the other side hangs up.
    #[must_use]
    pub const fn hang() -> Self {
        Self::of(Shape::Silent)
    }

    /// These bytes as they are, without any head, and then it hangs up.
    #[must_use]
    pub fn raw(bytes: &[u8]) -> Self {
        Self::of(Shape::Raw(bytes.to_vec()))
    }

    /// These bytes as they are, and behind them one piece over and over, at the pace of [`Self::slowly`], and then it hangs up.
    #[must_use]
    pub fn drip(beginning: &str, piece: &[u8], times: usize) -> Self {
        Self::of(Shape::Drip { beginning: beginning.as_bytes().to_vec(), piece: piece.to_vec(), times })
    }

    /// Events with this data each, as they are, and `[DONE]`.
    #[must_use]
    pub fn events(data: &[Value]) -> Self {
        let events: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
        Self::drip(EVENTS_HEAD, format!("{events}data: [DONE]\n\n").as_bytes(), 1)
    }

    /// With a text before the calls.
    #[must_use]
    pub fn saying(self, text: &str) -> Self {
        self.retold(|told| told.text = Some(text.to_owned()))
    }

    /// With text and arguments in about this many pieces each, if it is streamed. Otherwise there are three.
    #[must_use]
    pub fn in_pieces(self, pieces: usize) -> Self {
        self.retold(|told| told.pieces = pieces.max(1))
    }

    /// With the pieces of several calls in turns, if it is streamed and a chat. The format allows it, though not every client reads it: the
    /// accumulator of `openai` for Python takes a call for whole as soon as another begins.
    #[must_use]
    pub fn interleaved(self) -> Self {
        self.retold(|told| told.interleaved = true)
    }

    /// With these numbers of tokens, in and out.
    #[must_use]
    pub fn with_usage(self, input: u64, output: u64) -> Self {
        self.retold(|told| told.usage = (input, output))
    }

    /// Over because it came to the limit of tokens.
    #[must_use]
    pub fn cut_short(self) -> Self {
        self.retold(|told| told.cut_short = true)
    }

    /// With an error in place of its end, if it is streamed.
    #[must_use]
    pub fn then_error(self, message: &str) -> Self {
        self.retold(|told| told.fails = Some(message.to_owned()))
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a pause before the head and before every event.
    #[must_use]
    pub const fn slowly(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Half of it, and then nothing until the other side hangs up.
    #[must_use]
    pub const fn then_hang(mut self) -> Self {
        self.ending = Ending::Hang;
        self
    }

    /// Half of it, and then it hangs up.
    #[must_use]
    pub const fn then_disconnect(mut self) -> Self {
        self.ending = Ending::Disconnect;
        self
    }

    fn told(told: Told) -> Self {
        Self::of(Shape::Told(told))
    }

    const fn of(shape: Shape) -> Self {
        Self { shape, headers: Vec::new(), pause: Duration::ZERO, flaw: Flaw::None, ending: Ending::Whole }
    }

    /// Changes what is told. It is a mistake in a test to say of an error how it is told.
    fn retold(mut self, change: impl FnOnce(&mut Told)) -> Self {
        let Shape::Told(told) = &mut self.shape else {
            unreachable!("only a text or calls of tools can be told otherwise")
        };
        change(told);
        self
    }
}

/// The kinds of answers.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Told(Told),
    Vectors(Vec<Vec<f32>>),
    Error { status: u16, body: Value },
    MalformedEvents,
    Silent,
    Raw(Vec<u8>),
    Drip { beginning: Vec<u8>, piece: Vec<u8>, times: usize },
}

/// What a model says.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// Which answer of the server this is; ids are made of it.
    pub(super) number: usize,
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) pieces: usize,
    pub(super) interleaved: bool,
    pub(super) usage: (u64, u64),
    pub(super) cut_short: bool,
    pub(super) fails: Option<String>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            number: 0,
            text: None,
            calls: Vec::new(),
            pieces: 3,
            interleaved: false,
            usage: (11, 7),
            cut_short: false,
            fails: None,
        }
    }
}

impl Told {
    /// A text in about as many pieces as are wanted, none of them empty.
    pub(super) fn split(&self, text: &str) -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        letters.chunks(letters.len().div_ceil(self.pieces).max(1)).map(|piece| piece.iter().collect()).collect()
    }

    /// The id of one of the calls, which no other call of the server has.
    pub(super) fn call_id(&self, index: usize) -> String {
        format!("call_{}_{index}", self.number)
    }
}

/// What is wrong with the bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    HalfJson,
    InvalidUtf8,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    Hang,
    Disconnect,
}

/// The head of an answer whose events come until it hangs up.
pub const EVENTS_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// What is replaced by bytes that are no UTF-8.
pub(super) const BROKEN_PLACE: &str = "(broken)";
