//! Why JSON was refused: what, where in the text, and where in the value.

use std::fmt;

use super::OBJECT_WEIGHT;
use crate::visible::visible;

/// Why JSON was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}{}", self.place())]
pub struct JsonError {
    /// What is wrong.
    pub fault: JsonFault,
    /// Where in the text, if there was one.
    pub position: Option<Position>,
    /// The way to the value that is wrong, innermost step first.
    steps: Vec<Step>,
}

impl JsonError {
    /// The way to the value that is wrong, such as `$.args[3]`.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = "$".to_owned();
        for step in self.steps.iter().rev() {
            path.push_str(&step.to_string());
        }
        path
    }

    /// What to do about it.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self.fault {
            JsonFault::TooLong { .. } | JsonFault::TooMany { .. } => {
                "send less at once; large content belongs in a file"
            }
            JsonFault::NotUtf8 | JsonFault::ByteOrderMark => "send UTF-8 without a byte order mark",
            JsonFault::Expected { .. } | JsonFault::UnexpectedEnd | JsonFault::TrailingData => {
                "send exactly one JSON value"
            }
            JsonFault::RawControlCharacter(_) | JsonFault::BadEscape => "escape the character as \\u and four digits",
            JsonFault::LoneSurrogate(_) => "escape characters beyond U+FFFF as a pair of surrogates, high before low",
            JsonFault::DuplicateKey(_) => "give each key once",
            JsonFault::TooDeep { .. } => "nest less deeply",
            JsonFault::IntegerOutOfRange(_) | JsonFault::NumberOverflow(_) => "send numbers of this size as text",
            JsonFault::NotAnObject => "send an object: `{…}`",
            JsonFault::Unserializable(_) => "use text keys and finite numbers",
        }
    }

    pub(super) fn at(fault: JsonFault, position: Position) -> Self {
        Self { fault, position: Some(position), steps: Vec::new() }
    }

    /// The same error, seen from one level further out.
    pub(super) fn within(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn place(&self) -> String {
        let path = if self.steps.is_empty() { String::new() } else { format!(" at `{}`", self.path()) };
        match self.position {
            Some(Position { line, column }) => format!("{path} (line {line}, column {column})"),
            None => path,
        }
    }
}

impl From<JsonFault> for JsonError {
    fn from(fault: JsonFault) -> Self {
        Self { fault, position: None, steps: Vec::new() }
    }
}

/// A place in a text, counted from one; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// What is wrong with the JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// More bytes than allowed.
    #[error("the JSON is {length} bytes long; the limit is {limit}")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("the JSON is not valid UTF-8")]
    NotUtf8,
    /// It starts with U+FEFF.
    #[error("the JSON starts with a byte order mark")]
    ByteOrderMark,
    /// Something else stands here.
    #[error("expected {what}, found `{}`", visible(&.found.to_string()))]
    Expected {
        /// What the grammar wants here.
        what: &'static str,
        /// What stands here.
        found: char,
    },
    /// The text ends inside a value.
    #[error("the JSON ends too early")]
    UnexpectedEnd,
    /// More follows after the value.
    #[error("something follows after the JSON value")]
    TrailingData,
    /// A control character that is not escaped.
    #[error("a string holds the control character `{}` unescaped", visible(&.0.to_string()))]
    RawControlCharacter(char),
    /// A backslash followed by nonsense.
    #[error("a string holds an escape that is none")]
    BadEscape,
    /// Half of a surrogate pair.
    #[error("a string holds the lone surrogate `\\u{0:04x}`")]
    LoneSurrogate(u16),
    /// A key that stands twice in one object.
    #[error("the key `{}` stands twice", shown(.0))]
    DuplicateKey(String),
    /// Too many levels.
    #[error("the JSON is nested more than {limit} levels deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// More values than allowed.
    #[error("the JSON holds more than {limit} values, of which an object counts as {OBJECT_WEIGHT}")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// An integer that not every reader takes exactly.
    #[error("the number `{}` is not between -9007199254740991 and 9007199254740991", shown(.0))]
    IntegerOutOfRange(String),
    /// A number beyond what a double can say.
    #[error("the number `{}` is too large", shown(.0))]
    NumberOverflow(String),
    /// An object was wanted.
    #[error("the JSON is not an object")]
    NotAnObject,
    /// A value in memory that has no JSON form.
    #[error("the value has no JSON form: {}", visible(.0))]
    Unserializable(String),
}

/// One step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(key) if is_plain(key) => write!(f, ".{key}"),
            Self::Key(key) => write!(f, "[\"{}\"]", shown(key)),
        }
    }
}

fn is_plain(key: &str) -> bool {
    (1..=SHOWN).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The beginning of a text from outside, made visible.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => visible(text),
        Some((end, _)) => format!("{}…", visible(text.get(..end).unwrap_or_default())),
    }
}

/// How many characters of a key or number an error repeats.
const SHOWN: usize = 64;
