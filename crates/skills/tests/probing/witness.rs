//! A host that hears everything: each question to it is remembered, and each has an answer of its own.

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use palyra_skills::host::{FileEntry, FileKind, HostRefusal, HttpRequest, HttpResponse, LogLevel, SkillHost};

/// Remembers what it was asked.
#[derive(Default)]
pub struct Witness(Mutex<Vec<String>>);

impl Witness {
    /// Everything that it was asked, in order.
    pub fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn hears(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn answers<'a, T: Send + 'a>(&self, what: impl Into<String>, answer: T) -> BoxFuture<'a, Result<T, HostRefusal>> {
        self.hears(what);
        Box::pin(async move { Ok(answer) })
    }
}

impl SkillHost for Witness {
    fn now(&self) -> u64 {
        self.hears("now");
        1_700_000_000_123
    }

    fn monotonic(&self) -> u64 {
        self.hears("monotonic");
        42_000
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostRefusal> {
        self.hears(format!("random {}", buffer.len()));
        buffer.fill(7);
        Ok(())
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.hears(format!("log {level} {message}"));
    }

    fn fetch<'a>(&'a self, request: HttpRequest) -> BoxFuture<'a, Result<HttpResponse, HostRefusal>> {
        let HttpRequest { method, url, .. } = request;
        let what = format!("fetch {method} {url}");
        let body = b"fetched".to_vec();
        self.answers(what, HttpResponse { status: 200, url, headers: Vec::new(), body, truncated: false })
    }

    fn kv_get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, HostRefusal>> {
        self.answers(format!("get {key}"), Some(b"kept".to_vec()))
    }

    fn kv_set<'a>(&'a self, key: &'a str, value: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.answers(format!("set {key} {}", String::from_utf8_lossy(&value)), ())
    }

    fn kv_delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, HostRefusal>> {
        self.answers(format!("delete {key}"), true)
    }

    fn kv_keys<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, HostRefusal>> {
        self.answers(format!("keys {prefix}"), vec!["one".to_owned(), "two".to_owned()])
    }

    fn secret(&self, name: &str) -> Result<String, HostRefusal> {
        self.hears(format!("secret {name}"));
        Ok("placeholder".to_owned())
    }

    fn file_read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, HostRefusal>> {
        self.answers(format!("read {path}"), b"content".to_vec())
    }

    fn file_write<'a>(&'a self, path: &'a str, content: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.answers(format!("write {path} {}", String::from_utf8_lossy(&content)), ())
    }

    fn file_list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<FileEntry>, HostRefusal>> {
        self.answers(format!("list {path}"), vec![entry()])
    }

    fn file_stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<FileEntry, HostRefusal>> {
        self.answers(format!("stat {path}"), entry())
    }

    fn file_delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.answers(format!("remove {path}"), ())
    }
}

fn entry() -> FileEntry {
    FileEntry { name: "a".to_owned(), kind: FileKind::File, size: 7 }
}
