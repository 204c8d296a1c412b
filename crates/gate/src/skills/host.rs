//! What the machine does for one call of a skill: the gate's side of [`SkillHost`].
//!
//! Guarantees: a request goes to a granted host and through the call's own door, so policy, lists and people decide about it as about any other;
//! a secret is a placeholder here; a path is decided about before it is touched; what the skill keeps is its own.
//! Does not: check grants for what needs no place or name. The engine does, before it asks.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use palyra_package::{Grants, KvQuota, SkillLimits};
use palyra_sandbox::{
    OutputStream,
    egress::{
        ConnectionOutcome, ConnectionRecord, Doorkeeper, EgressRefusal, EgressRefusalKind, Glance, Interceptor, Ruling,
        fetch::{FetchError, FetchHeaders, FetchLimits, FetchMethod, FetchUrl, Fetcher},
    },
};
use palyra_skills::{
    host::{FileEntry, HostRefusal, HttpRequest, HttpResponse, LogLevel, SkillHost},
    kv::{KvError, KvScope, KvStore},
};
use palyra_types::{Clock, Entropy, HostName, visible::visible};
use tokio::{
    sync::{broadcast, watch},
    task::spawn_blocking,
};

use super::files::SkillFiles;
use crate::{
    arming::CallSecrets,
    attest::NetworkUse,
    door::CallDoor,
    execute::LiveOutput,
    permit::CallFacts,
    tool::{FetchWork, HostPort},
    tools::http_fetch::request,
};

/// What the machine does for one call of a skill.
pub(super) struct CallHost {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) begun: Instant,
    pub(super) door: SkillDoor,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) secrets: Option<Arc<CallSecrets>>,
    pub(super) kv: Arc<KvStore>,
    /// Nothing where the call is in no workspace.
    pub(super) scope: Option<KvScope>,
    pub(super) files: SkillFiles,
    pub(super) grants: Arc<Grants>,
    pub(super) limits: SkillLimits,
    pub(super) live: LiveLog,
}

/// Tells lines of the log while the skill runs.
pub(super) struct LiveLog {
    facts: Arc<CallFacts>,
    sender: broadcast::Sender<LiveOutput>,
    at: Mutex<u64>,
}

impl LiveLog {
    pub(super) fn new(facts: Arc<CallFacts>, sender: broadcast::Sender<LiveOutput>) -> Self {
        Self { facts, sender, at: Mutex::new(0) }
    }

    fn tell(&self, line: &str) {
        let bytes: Arc<[u8]> = format!("{line}\n").into_bytes().into();
        let mut at = lock(&self.at);
        let offset = *at;
        *at = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let proposal = &self.facts.proposal;
        let (session, run, call) = (proposal.session, proposal.run, proposal.call);
        // Nobody may be listening.
        let _ = self.sender.send(LiveOutput { session, run, call, stream: OutputStream::Stderr, offset, bytes });
    }
}

impl SkillHost for CallHost {
    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().unix_millis()).unwrap_or_default()
    }

    fn monotonic(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), HostRefusal> {
        self.entropy.fill(buffer).map_err(|error| HostRefusal::Failed(error.to_string()))
    }

    fn log(&self, level: LogLevel, message: &str) {
        let mut line = format!("{level}: {}", visible(message));
        if let Some(secrets) = &self.secrets {
            secrets.redact_text(&mut line);
        }
        self.live.tell(&line);
    }

    fn fetch(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HostRefusal>> {
        Box::pin(self.exchange(request))
    }

    fn kv_get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, HostRefusal>> {
        let key = key.to_owned();
        self.keep(move |store, scope, _| store.get(scope, &key))
    }

    fn kv_set<'a>(&'a self, key: &'a str, value: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        let key = key.to_owned();
        self.keep(move |store, scope, quota| store.set(scope, quota, &key, &value))
    }

    fn kv_delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, HostRefusal>> {
        let key = key.to_owned();
        self.keep(move |store, scope, _| store.delete(scope, &key))
    }

    fn kv_keys<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, HostRefusal>> {
        let prefix = prefix.to_owned();
        self.keep(move |store, scope, _| store.keys(scope, &prefix))
    }

    fn secret(&self, name: &str) -> Result<String, HostRefusal> {
        let known = self.secrets.as_ref().and_then(|secrets| {
            let placeholders = secrets.placeholders();
            placeholders.iter().find(|(known, _)| known == name).map(|(_, placeholder)| placeholder.to_string())
        });
        known.ok_or_else(|| HostRefusal::Absent(format!("no secret is granted under the name `{}`", visible(name))))
    }

    fn file_read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, HostRefusal>> {
        let (files, path, most) = (self.files.clone(), path.to_owned(), self.limits.host_bytes);
        blocking(move || files.read(&path, most))
    }

    fn file_write<'a>(&'a self, path: &'a str, content: Vec<u8>) -> BoxFuture<'a, Result<(), HostRefusal>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.write(&path, content))
    }

    fn file_list<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<FileEntry>, HostRefusal>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.list(&path))
    }

    fn file_stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<FileEntry, HostRefusal>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.stat(&path))
    }

    fn file_delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), HostRefusal>> {
        let (files, path) = (self.files.clone(), path.to_owned());
        blocking(move || files.delete(&path))
    }

    fn waited_ms(&self) -> u64 {
        self.door.waited_ms()
    }
}

impl CallHost {
    async fn exchange(&self, asked: HttpRequest) -> Result<HttpResponse, HostRefusal> {
        let work = fetch_work(asked, &self.limits)?;
        let limits = FetchLimits {
            body_bytes: work.max_bytes,
            total: Duration::from_secs(u64::from(work.timeout_seconds)),
            ..FetchLimits::default()
        };
        let interceptor = self.secrets.as_deref().map(|secrets| secrets as &dyn Interceptor);
        let fetched = self.fetcher.fetch(&self.door, request(work, limits), interceptor).await;
        let mut response = fetched.map_err(|error| match &error {
            // SECURITY: a skill knows its secrets by names of its own. What they are called in the vault is not for it.
            FetchError::Refused(refusal) if refusal.refusal.kind == EgressRefusalKind::SecretMisplaced => {
                HostRefusal::Denied("a placeholder stands where its secret may not go".to_owned())
            }
            FetchError::Refused(refusal) if refusal.refusal.kind == EgressRefusalKind::SecretUnavailable => {
                HostRefusal::Denied("a secret cannot be sent".to_owned())
            }
            FetchError::Refused(refused) if IN_THE_CONFIGURATION.contains(&refused.refusal.kind) => {
                HostRefusal::Denied(format!("{error}; {}", refused.refusal.kind.advice()))
            }
            FetchError::Refused(_) | FetchError::Revoked(_) => HostRefusal::Denied(error.to_string()),
            _ => HostRefusal::Failed(error.to_string()),
        })?;
        let mut url = response.url.to_string();
        // Also of hosts that no secret is bound to: a bound one may have told them.
        if let Some(secrets) = &self.secrets {
            secrets.redact(&mut response.body, response.truncated);
            response.headers.iter_mut().for_each(|(_, value)| secrets.redact(value, false));
            secrets.redact_text(&mut url);
        }
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        Ok(HttpResponse {
            status: response.status,
            url,
            headers: response.headers.into_iter().map(|(name, value)| (name, text(value))).collect(),
            body: response.body,
            truncated: response.truncated,
        })
    }

    /// Does something with what the skill keeps, on a thread that may wait for the disk.
    fn keep<T: Send + 'static>(
        &self,
        act: impl FnOnce(&KvStore, &KvScope, KvQuota) -> Result<T, KvError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, HostRefusal>> {
        let store = Arc::clone(&self.kv);
        let denied = |why: &str| -> BoxFuture<'static, Result<T, HostRefusal>> {
            let refusal = HostRefusal::Denied(why.to_owned());
            Box::pin(async { Err(refusal) })
        };
        let Some(quota) = self.grants.kv else { return denied("`kv` is not granted") };
        let Some(scope) = self.scope.clone() else {
            return denied("the call is in no workspace to keep something for");
        };
        blocking(move || act(&store, &scope, quota).map_err(refused))
    }
}

fn refused(error: KvError) -> HostRefusal {
    let message = error.to_string();
    match error {
        KvError::Key(_) => HostRefusal::Invalid(message),
        KvError::TooManyBytes { .. } | KvError::TooManyEntries { .. } | KvError::TooManyKeys { .. } => {
            HostRefusal::TooLarge(message)
        }
        _ => HostRefusal::Failed(message),
    }
}

/// What is to be fetched, in the form that `http.fetch` has for it.
fn fetch_work(asked: HttpRequest, limits: &SkillLimits) -> Result<FetchWork, HostRefusal> {
    let invalid = |error: &dyn std::fmt::Display| HostRefusal::Invalid(error.to_string());
    let HttpRequest { method, url, headers, body, max_bytes, timeout_ms, follow_redirects } = asked;
    let method = FetchMethod::parse(&method).map_err(|error| invalid(&error))?;
    let url = FetchUrl::parse(&url).map_err(|error| invalid(&error))?;
    if body.is_some() && !method.takes_body() {
        return Err(HostRefusal::Invalid(format!("a {method} request has no body")));
    }
    let timeout_ms = timeout_ms.unwrap_or(USUAL_MS).clamp(1, LONGEST_MS);
    Ok(FetchWork {
        method,
        host: url.host().clone(),
        port: url.port(),
        url,
        headers: FetchHeaders::parse(headers).map_err(|error| invalid(&error))?,
        body_sha256: None,
        body,
        max_bytes: max_bytes.unwrap_or(USUAL_BYTES).min(limits.host_bytes),
        timeout_seconds: timeout_ms.div_ceil(1_000),
        follow_redirects,
        secrets: Vec::new(),
    })
}

/// The door of a call, for a skill: nothing but granted hosts, counted, and with the time that people take told apart.
pub(super) struct SkillDoor {
    door: Arc<CallDoor>,
    hosts: Vec<HostPort>,
    used: Mutex<NetworkUse>,
    waited: Mutex<Waited>,
}

/// How long people took.
#[derive(Default)]
struct Waited {
    /// For what they have answered.
    before: Duration,
    /// Since when somebody is being asked.
    since: Option<Instant>,
}

/// Somebody is being asked as long as this is there.
struct Asking<'a>(&'a SkillDoor);

impl<'a> Asking<'a> {
    fn begin(door: &'a SkillDoor) -> Self {
        lock(&door.waited).since = Some(Instant::now());
        Self(door)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut waited = lock(&self.0.waited);
        let since = waited.since.take();
        waited.before += since.map_or(Duration::ZERO, |since| since.elapsed());
    }
}

impl SkillDoor {
    pub(super) fn new(door: Arc<CallDoor>, hosts: Vec<HostPort>) -> Self {
        let none = NetworkUse { connections: 0, refused: 0, sent: 0, received: 0 };
        Self { door, hosts, used: Mutex::new(none), waited: Mutex::default() }
    }

    /// How long people took, whoever is being asked now included.
    fn waited_ms(&self) -> u64 {
        let waited = lock(&self.waited);
        let now = waited.since.map_or(Duration::ZERO, |since| since.elapsed());
        u64::try_from((waited.before + now).as_millis()).unwrap_or(u64::MAX)
    }

    /// What went through it.
    pub(super) fn used(&self) -> NetworkUse {
        *lock(&self.used)
    }

    fn is_granted(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|one| one.host == *host && one.port == port)
    }
}

impl Doorkeeper for SkillDoor {
    fn glance(&self, host: &HostName) -> Glance {
        match self.hosts.iter().any(|one| one.host == *host) {
            true => self.door.glance(host),
            false => Glance::Refused(not_granted(host)),
        }
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        Box::pin(async move {
            if !self.is_granted(host, port) {
                return Ruling::Deny(not_granted(host));
            }
            // A skill asks one thing after the other.
            let _asking = Asking::begin(self);
            self.door.decide(host, port).await
        })
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        self.is_granted(host, port) && self.door.still(host, port)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.door.changes()
    }

    fn note(&self, record: ConnectionRecord) {
        let mut used = lock(&self.used);
        used.connections += u64::from(record.address.is_some());
        used.refused += u64::from(matches!(record.outcome, ConnectionOutcome::Refused(_)));
        used.sent = used.sent.saturating_add(record.sent);
        used.received = used.received.saturating_add(record.received);
        drop(used);
        self.door.note(record);
    }
}

fn not_granted(host: &HostName) -> EgressRefusal {
    let why = format!(
        "`{host}` is not granted to the skill with this port; `palyra skills grant` grants it if the skill asks for it"
    );
    EgressRefusal::new(EgressRefusalKind::NotListed, why)
}

fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, HostRefusal> + Send + 'static,
) -> BoxFuture<'static, Result<T, HostRefusal>> {
    Box::pin(async move {
        let done = spawn_blocking(act).await;
        done.unwrap_or_else(|_| Err(HostRefusal::Failed("the host failed".to_owned())))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the configuration says about a host, so that whoever reads the refusal can change it there.
const IN_THE_CONFIGURATION: [EgressRefusalKind; 3] =
    [EgressRefusalKind::NoTls, EgressRefusalKind::PrivateAddress, EgressRefusalKind::PortNotListed];

/// How many bytes of an answer are read, unless the skill says so.
const USUAL_BYTES: u64 = 1 << 20;

/// How long a request may take, unless the skill says so, and at the most.
const USUAL_MS: u32 = 30_000;
const LONGEST_MS: u32 = 120_000;
