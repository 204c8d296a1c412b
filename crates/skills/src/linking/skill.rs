//! What the world `palyra:skill@1.0.0` imports.
//!
//! Guarantees: a function of a capability that was not granted ends the call. A secret, a directory or a way of using it that was not
//! granted is refused here, before the host is asked.
//! Does not: judge where a request goes. The host does, since it follows redirects too.

use std::sync::Arc;

use palyra_package::FileAccess;
use serde_json::{Value, json};
use wasmtime::{
    StoreContextMut,
    component::{ComponentType, Lift, Linker, Lower},
};

use crate::{
    host::{FileEntry, FileKind, HostRefusal, HttpRequest, HttpResponse, LogLevel, SkillHost},
    ledger::end,
    outcome::SkillFailure,
    recording,
    state::CallState,
};

type Store<'a> = StoreContextMut<'a, CallState>;

/// Defines all of it.
pub(super) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.instance("palyra:skill/log@1.0.0")?.func_wrap_async(
        "write",
        |mut store: Store<'_>, (level, message): (Level, String)| {
            Box::new(async move {
                let state = store.data_mut();
                state.pause().await;
                state.enter("log.write", "log", state.grants.log)?;
                let _handed = state.hold_to(message.len())?;
                let level = LogLevel::from(level);
                if let (Some(kept), Some(host)) = (state.ledger.log(level, &message), state.listener()) {
                    host.log(level, &kept);
                }
                Ok(())
            })
        },
    )?;
    let mut clock = linker.instance("palyra:skill/clock@1.0.0")?;
    clock.func_wrap("now", |mut store: Store<'_>, (): ()| Ok((now(store.data_mut(), "clock.now")?,)))?;
    clock.func_wrap("monotonic", |mut store: Store<'_>, (): ()| {
        Ok((monotonic(store.data_mut(), "clock.monotonic")?,))
    })?;
    linker.instance("palyra:skill/random@1.0.0")?.func_wrap_async(
        "bytes",
        |mut store: Store<'_>, (length,): (u32,)| {
            Box::new(async move {
                if length > RANDOM_BYTES {
                    return Err(end(SkillFailure::HandedTooMuch { limit: u64::from(RANDOM_BYTES) }));
                }
                store.data_mut().pause().await;
                Ok((random(store.data_mut(), "random.bytes", u64::from(length))?,))
            })
        },
    )?;
    http(linker)?;
    kv(linker)?;
    secrets(linker)?;
    files(linker)
}

/// Milliseconds since 1970.
pub(super) fn now(state: &mut CallState, function: &'static str) -> wasmtime::Result<u64> {
    state.enter(function, "clock", state.grants.clock)?;
    Ok(state.ask_now(function, || Value::Null, |host| Ok(host.now()))??)
}

/// Nanoseconds since some moment before the call.
pub(super) fn monotonic(state: &mut CallState, function: &'static str) -> wasmtime::Result<u64> {
    state.enter(function, "clock", state.grants.clock)?;
    Ok(state.ask_now(function, || Value::Null, |host| Ok(host.monotonic()))??)
}

/// Bytes that cannot be guessed.
pub(super) fn random(state: &mut CallState, function: &'static str, length: u64) -> wasmtime::Result<Vec<u8>> {
    state.enter(function, "random", state.grants.random)?;
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    let _handed = state.hold_to(bytes)?;
    let live = |host: &dyn SkillHost| {
        let mut buffer = vec![0; bytes];
        // In pieces, because systems give large amounts in pieces only.
        for piece in buffer.chunks_mut(usize::try_from(RANDOM_BYTES).unwrap_or(usize::MAX)) {
            host.random(piece)?;
        }
        Ok(buffer)
    };
    let random: Vec<u8> = state.ask_now(function, || json!({ "length": length }), live)??;
    if random.len() == bytes {
        Ok(random)
    } else {
        Err(end(SkillFailure::Diverged { detail: format!("`{function}`, and as many bytes were not recorded") }))
    }
}

fn http(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut http = linker.instance("palyra:skill/http@1.0.0")?;
    http.func_wrap_async("fetch", |mut store: Store<'_>, (request,): (Request,)| {
        Box::new(async move {
            let state = store.data_mut();
            state.enter("http.fetch", "http", !state.grants.http.is_empty())?;
            let request = HttpRequest::from(request);
            if let Err(refusal) = brief_request(&request) {
                return Ok((Err(refusal),));
            }
            let headers = request.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES);
            let head = request.method.len() + request.url.len() + headers.sum::<usize>();
            let body = request.body.as_ref().map_or(0, Vec::len);
            let _handed = state.hold_to(head + body)?;
            let asked = state.spelt(head + recording::spelt_bytes(body), || recording::request(&request));
            let answer = state
                .ask("http.fetch", asked, |host| async move { host.fetch(request).await })
                .await?
                .map(Response::from)
                .map_err(Refusal::from);
            Ok((answer,))
        })
    })
}

fn kv(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    fn enter(state: &CallState, function: &'static str) -> wasmtime::Result<()> {
        state.enter(function, "kv", state.grants.kv.is_some())
    }
    let mut kv = linker.instance("palyra:skill/kv@1.0.0")?;
    kv.func_wrap_async("get", |mut store: Store<'_>, (key,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            enter(state, "kv.get")?;
            if let Err(refusal) = brief("a key", &key, LONGEST_KEY) {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(key.len(), || json!({ "key": key }));
            let answer = state.ask("kv.get", asked, |host| async move { host.kv_get(&key).await }).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })?;
    kv.func_wrap_async("set", |mut store: Store<'_>, (key, value): (String, Vec<u8>)| {
        Box::new(async move {
            let state = store.data_mut();
            enter(state, "kv.set")?;
            if let Err(refusal) = brief("a key", &key, LONGEST_KEY) {
                return Ok((Err(refusal),));
            }
            let _handed = state.hold_to(key.len() + value.len())?;
            let asked = state.spelt(
                recording::spelt_bytes(value.len()),
                || json!({ "key": key, "value": recording::bytes(&value) }),
            );
            let live = |host: Arc<dyn SkillHost>| async move { host.kv_set(&key, value).await };
            let answer = state.ask("kv.set", asked, live).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })?;
    kv.func_wrap_async("delete", |mut store: Store<'_>, (key,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            enter(state, "kv.delete")?;
            if let Err(refusal) = brief("a key", &key, LONGEST_KEY) {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(key.len(), || json!({ "key": key }));
            let answer = state.ask("kv.delete", asked, |host| async move { host.kv_delete(&key).await }).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })?;
    kv.func_wrap_async("keys", |mut store: Store<'_>, (prefix,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            enter(state, "kv.keys")?;
            if let Err(refusal) = brief("a key", &prefix, LONGEST_KEY) {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(prefix.len(), || json!({ "prefix": prefix }));
            let answer = state.ask("kv.keys", asked, |host| async move { host.kv_keys(&prefix).await }).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })
}

fn secrets(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut secrets = linker.instance("palyra:skill/secrets@1.0.0")?;
    secrets.func_wrap_async("handle", |mut store: Store<'_>, (name,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            state.pause().await;
            state.enter("secrets.handle", "secrets", !state.grants.secrets.is_empty())?;
            if !state.grants.secrets.contains_key(&name) {
                return Ok((Err(Refusal::Denied("this secret was not granted".to_owned())),));
            }
            let answer = state.ask_now("secrets.handle", || json!({ "name": name }), |host| host.secret(&name))?;
            Ok((answer.map_err(Refusal::from),))
        })
    })
}

fn files(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut files = linker.instance("palyra:skill/files@1.0.0")?;
    files.func_wrap_async("read", |mut store: Store<'_>, (path,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            if let Err(refusal) = enter_file(state, "files.read", &path, FileAccess::Read).await? {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(path.len(), || json!({ "path": path }));
            let answer = state.ask("files.read", asked, |host| async move { host.file_read(&path).await }).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })?;
    files.func_wrap_async("write", |mut store: Store<'_>, (path, content): (String, Vec<u8>)| {
        Box::new(async move {
            let state = store.data_mut();
            if let Err(refusal) = enter_file(state, "files.write", &path, FileAccess::Write).await? {
                return Ok((Err(refusal),));
            }
            let _handed = state.hold_to(path.len() + content.len())?;
            let asked = state.spelt(
                recording::spelt_bytes(content.len()),
                || json!({ "path": path, "content": recording::bytes(&content) }),
            );
            let live = |host: Arc<dyn SkillHost>| async move { host.file_write(&path, content).await };
            let answer = state.ask("files.write", asked, live).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })?;
    files.func_wrap_async("list", |mut store: Store<'_>, (path,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            if let Err(refusal) = enter_file(state, "files.list", &path, FileAccess::Read).await? {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(path.len(), || json!({ "path": path }));
            let answer = state
                .ask("files.list", asked, |host| async move { host.file_list(&path).await })
                .await?
                .map(|entries| entries.into_iter().map(Entry::from).collect::<Vec<_>>())
                .map_err(Refusal::from);
            Ok((answer,))
        })
    })?;
    files.func_wrap_async("stat", |mut store: Store<'_>, (path,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            if let Err(refusal) = enter_file(state, "files.stat", &path, FileAccess::Read).await? {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(path.len(), || json!({ "path": path }));
            let answer = state.ask("files.stat", asked, |host| async move { host.file_stat(&path).await }).await?;
            Ok((answer.map(Entry::from).map_err(Refusal::from),))
        })
    })?;
    files.func_wrap_async("delete", |mut store: Store<'_>, (path,): (String,)| {
        Box::new(async move {
            let state = store.data_mut();
            if let Err(refusal) = enter_file(state, "files.delete", &path, FileAccess::Write).await? {
                return Ok((Err(refusal),));
            }
            let asked = state.spelt(path.len(), || json!({ "path": path }));
            let answer = state.ask("files.delete", asked, |host| async move { host.file_delete(&path).await }).await?;
            Ok((answer.map_err(Refusal::from),))
        })
    })
}

/// SECURITY: a name is copied, spelt and told in errors, each time several times over, and nobody counts that. So what is too long for one is refused
/// before anything is made of it.
fn brief(what: &str, name: &str, most: usize) -> Result<(), Refusal> {
    match name.len() > most {
        true => Err(Refusal::Invalid(format!("{what} has {most} bytes at the most"))),
        false => Ok(()),
    }
}

fn brief_request(request: &HttpRequest) -> Result<(), Refusal> {
    brief("a method", &request.method, LONGEST_METHOD)?;
    brief("a URL", &request.url, LONGEST_URL)?;
    match request.headers.len() > MOST_HEADERS {
        true => Err(Refusal::Invalid(format!("a request has {MOST_HEADERS} headers at the most"))),
        false => Ok(()),
    }
}

/// Whether a path begins with a directory that was granted for this.
async fn enter_file(
    state: &mut CallState,
    function: &'static str,
    path: &str,
    needed: FileAccess,
) -> wasmtime::Result<Result<(), Refusal>> {
    state.pause().await;
    state.enter(function, "files", !state.grants.files.is_empty())?;
    if let Err(refusal) = brief("a path", path, LONGEST_PATH) {
        return Ok(Err(refusal));
    }
    let directory = path.split('/').next().unwrap_or_default();
    Ok(match state.grants.files.get(directory) {
        None => Err(Refusal::Denied("this directory was not granted".to_owned())),
        Some(grant) if grant.access < needed => Err(Refusal::Denied("this directory may only be read".to_owned())),
        Some(_) => Ok(()),
    })
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[expect(dead_code, reason = "only the derived code makes them, from what a skill hands over")]
#[component(enum)]
#[repr(u8)]
enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    #[component(name = "max-bytes")]
    max_bytes: Option<u64>,
    #[component(name = "timeout-ms")]
    timeout_ms: Option<u32>,
    #[component(name = "follow-redirects")]
    follow_redirects: bool,
}

impl From<Request> for HttpRequest {
    fn from(request: Request) -> Self {
        let Request { method, url, headers, body, max_bytes, timeout_ms, follow_redirects } = request;
        Self { method, url, headers, body, max_bytes, timeout_ms, follow_redirects }
    }
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Response {
    status: u16,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    truncated: bool,
}

impl From<HttpResponse> for Response {
    fn from(response: HttpResponse) -> Self {
        let HttpResponse { status, url, headers, body, truncated } = response;
        Self { status, url, headers, body, truncated }
    }
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Entry {
    name: String,
    kind: Kind,
    size: u64,
}

#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum Kind {
    #[component(name = "file")]
    File,
    #[component(name = "directory")]
    Directory,
    #[component(name = "other")]
    Other,
}

impl From<FileEntry> for Entry {
    fn from(FileEntry { name, kind, size }: FileEntry) -> Self {
        let kind = match kind {
            FileKind::File => Kind::File,
            FileKind::Directory => Kind::Directory,
            FileKind::Other => Kind::Other,
        };
        Self { name, kind, size }
    }
}

#[derive(ComponentType, Lower)]
#[component(variant)]
enum Refusal {
    #[component(name = "denied")]
    Denied(String),
    #[component(name = "absent")]
    Absent(String),
    #[component(name = "too-large")]
    TooLarge(String),
    #[component(name = "invalid")]
    Invalid(String),
    #[component(name = "failed")]
    Failed(String),
}

impl From<HostRefusal> for Refusal {
    fn from(refusal: HostRefusal) -> Self {
        match refusal {
            HostRefusal::Denied(why) => Self::Denied(why),
            HostRefusal::Absent(why) => Self::Absent(why),
            HostRefusal::TooLarge(why) => Self::TooLarge(why),
            HostRefusal::Invalid(why) => Self::Invalid(why),
            HostRefusal::Failed(why) => Self::Failed(why),
        }
    }
}

/// The most bytes that `random.bytes` gives at once.
const RANDOM_BYTES: u32 = 65_536;
/// The most bytes of what a skill keeps something under.
const LONGEST_KEY: usize = 512;
/// The most bytes of a path, as Linux has it.
const LONGEST_PATH: usize = 4_096;
/// The most bytes of a method.
const LONGEST_METHOD: usize = 32;
/// The most bytes of a URL.
const LONGEST_URL: usize = 64 << 10;
/// The most headers of a request.
const MOST_HEADERS: usize = 256;
/// What a header takes beside its text.
const HEADER_BYTES: usize = 64;
