//! What a skill can ask of the machine, as one trait: the seam between the engine and the gate.
//!
//! Guarantees: the engine asks a [`SkillHost`] only for what the call's grants hold, counts every question, and can write down each answer.
//! Does not: implement any of it.

use futures_util::future::BoxFuture;
use palyra_types::word::words;
use serde::{Deserialize, Serialize};

/// What the machine does for one call of a skill.
///
/// What gives a future runs on the runtime of whoever made the call. What answers at once runs on the thread of the skill and on a small
/// stack, so it has to be short and shallow.
pub trait SkillHost: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> u64;

    /// Nanoseconds since some moment before the call.
    fn monotonic(&self) -> u64;

    /// Fills with randomness that cannot be guessed.
    ///
    /// # Errors
    /// When there is none to be had.
    fn random(&self, buffer: &mut [u8]) -> Result<(), HostRefusal>;

    /// A line for the log of the call.
    fn log(&self, level: LogLevel, message: &str);

    /// Makes a request. Time that people take to answer is told to `paused`, and does not count as the call's.
    fn fetch<'a>(&'a self, request: HttpRequest) -> BoxFuture<'a, Result<HttpResponse, HostRefusal>>;

    /// What is kept under a key.
    fn kv_get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, HostRefusal>>;

    /// Keeps something under a key.
    fn kv_set<'a>(&'a self, key: &'a str, value: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>>;

    /// Forgets a key. Says whether there was something.
    fn kv_delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, HostRefusal>>;

    /// The keys that begin so, in order.
    fn kv_keys<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, HostRefusal>>;

    /// What stands for a secret in this call.
    ///
    /// # Errors
    /// When there is no such secret, or it is not to be had.
    fn secret(&self, name: &str) -> Result<String, HostRefusal>;

    /// The content of a file. Paths begin with the name of a granted directory.
    fn file_read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, HostRefusal>>;

    /// Makes or replaces a file.
    fn file_write<'a>(&'a self, path: &'a str, content: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>>;

    /// What is in a directory.
    fn file_list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<FileEntry>, HostRefusal>>;

    /// What is at a path.
    fn file_stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<FileEntry, HostRefusal>>;

    /// Removes a file.
    fn file_delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), HostRefusal>>;

    /// How long people have taken to answer questions of this call, in milliseconds. The engine leaves that out of the wall clock.
    fn waited_ms(&self) -> u64 {
        0
    }
}

words! {
    /// How important a line of the log is.
    pub enum LogLevel ("level") {
        /// For whoever works on the skill.
        Debug = "debug",
        /// What happens.
        Info = "info",
        /// Something is odd.
        Warn = "warn",
        /// Something went wrong.
        Error = "error",
    }
}

/// A request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// How, such as `GET`.
    pub method: String,
    /// What.
    pub url: String,
    /// What is sent along.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<Vec<u8>>,
    /// The most bytes of the answer to read.
    pub max_bytes: Option<u64>,
    /// How long it may take.
    pub timeout_ms: Option<u32>,
    /// Whether it goes on where it is redirected to.
    pub follow_redirects: bool,
}

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body, as far as it was read.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
}

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// How long it is.
    pub size: u64,
}

words! {
    /// What is at a path.
    pub enum FileKind ("kind of file") {
        /// A file.
        File = "file",
        /// A directory.
        Directory = "directory",
        /// Something else.
        Other = "other",
    }
}

/// Why the host did not do what a skill asked for. The skill is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "message", rename_all = "snake_case")]
pub enum HostRefusal {
    /// It was not granted, or policy says no.
    #[error("{0}")]
    Denied(String),
    /// There is no such thing.
    #[error("{0}")]
    Absent(String),
    /// It is too large, or too many.
    #[error("{0}")]
    TooLarge(String),
    /// It has no meaning.
    #[error("{0}")]
    Invalid(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
}
