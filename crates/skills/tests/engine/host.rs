//! A host that keeps everything in memory and remembers what it was asked.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use palyra_skills::host::{FileEntry, FileKind, HostRefusal, HttpRequest, HttpResponse, LogLevel, SkillHost};

/// In memory. Its clock moves with each look, and its randomness with each call, so that no two calls are answered alike.
#[derive(Default)]
pub struct MemoryHost {
    pub asked: Mutex<Vec<String>>,
    pub kept: Mutex<BTreeMap<String, Vec<u8>>>,
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    pub said: Mutex<Vec<(LogLevel, String)>>,
    pub looks: AtomicU64,
    /// How long `fetch` takes, and whether that is a person's time.
    pub slowness: Duration,
    pub waited: AtomicU64,
}

impl MemoryHost {
    fn asks(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn look(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::SeqCst) + 1
    }
}

impl SkillHost for MemoryHost {
    fn now(&self) -> u64 {
        self.asks("now");
        1_700_000_000_000 + self.look()
    }

    fn monotonic(&self) -> u64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        u64::try_from(START.get_or_init(std::time::Instant::now).elapsed().as_nanos()).unwrap() + 1
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostRefusal> {
        self.asks(format!("random {}", buffer.len()));
        buffer.fill(u8::try_from(self.look() % 256).unwrap());
        Ok(())
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.said.lock().unwrap().push((level, message.to_owned()));
    }

    fn fetch<'a>(&'a self, request: HttpRequest) -> BoxFuture<'a, Result<HttpResponse, HostRefusal>> {
        Box::pin(async move {
            self.asks(format!("{} {}", request.method, request.url));
            tokio::time::sleep(self.slowness).await;
            if request.url.contains("forbidden") {
                return Err(HostRefusal::Denied("policy says no".to_owned()));
            }
            Ok(HttpResponse {
                status: 200,
                url: request.url,
                headers: request.headers,
                body: request.body.unwrap_or_default(),
                truncated: false,
            })
        })
    }

    fn kv_get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, HostRefusal>> {
        self.asks(format!("get {key}"));
        assert_ne!(key, "panic", "a host that fails");
        Box::pin(async move { Ok(self.kept.lock().unwrap().get(key).cloned()) })
    }

    fn kv_set<'a>(&'a self, key: &'a str, value: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.asks(format!("set {key}"));
        Box::pin(async move {
            if value.len() > 100 {
                return Err(HostRefusal::TooLarge("the quota is 100 bytes".to_owned()));
            }
            self.kept.lock().unwrap().insert(key.to_owned(), value);
            Ok(())
        })
    }

    fn kv_delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, HostRefusal>> {
        self.asks(format!("delete {key}"));
        Box::pin(async move { Ok(self.kept.lock().unwrap().remove(key).is_some()) })
    }

    fn kv_keys<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, HostRefusal>> {
        self.asks(format!("keys {prefix}"));
        Box::pin(async move {
            Ok(self.kept.lock().unwrap().keys().filter(|key| key.starts_with(prefix)).cloned().collect())
        })
    }

    fn secret(&self, name: &str) -> Result<String, HostRefusal> {
        self.asks(format!("secret {name}"));
        Ok(format!("placeholder-{name}-{}", self.look()))
    }

    fn file_read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, HostRefusal>> {
        self.asks(format!("read {path}"));
        Box::pin(async move {
            self.files.lock().unwrap().get(path).cloned().ok_or_else(|| HostRefusal::Absent("no such file".to_owned()))
        })
    }

    fn file_write<'a>(&'a self, path: &'a str, content: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.asks(format!("write {path}"));
        Box::pin(async move {
            self.files.lock().unwrap().insert(path.to_owned(), content);
            Ok(())
        })
    }

    fn file_list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<FileEntry>, HostRefusal>> {
        self.asks(format!("list {path}"));
        Box::pin(async move {
            let files = self.files.lock().unwrap();
            Ok(files.iter().filter_map(|(name, content)| Some(entry(name.strip_prefix(path)?, content))).collect())
        })
    }

    fn file_stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<FileEntry, HostRefusal>> {
        self.asks(format!("stat {path}"));
        Box::pin(async move {
            let files = self.files.lock().unwrap();
            files.get(path).map(|content| entry(path, content)).ok_or_else(|| HostRefusal::Absent("nothing".to_owned()))
        })
    }

    fn file_delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), HostRefusal>> {
        self.asks(format!("remove {path}"));
        Box::pin(async move {
            self.files.lock().unwrap().remove(path);
            Ok(())
        })
    }

    fn waited_ms(&self) -> u64 {
        self.waited.load(Ordering::SeqCst)
    }
}

fn entry(path: &str, content: &[u8]) -> FileEntry {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    FileEntry { name, kind: FileKind::File, size: u64::try_from(content.len()).unwrap() }
}
