//! Sessions of the older protocol: what a client said when it began, and which of its requests are under way.
//!
//! Guarantees: a session is found by the credential that opened it and by no other; it ends when that credential does, when its client ends
//! it, or when nobody used it for a while; each credential has a bounded number.
//! Does not: let anybody in. A session that is named is no credential.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use palyra_types::{Entropy, entropy::NoEntropy, id::RunId};
use rmcp::model::ProtocolVersion;
use serde_json::Value;
use tokio::sync::{Notify, broadcast, watch};

use super::wire::Abilities;
use crate::{
    app::App,
    caller::{Caller, Shown},
    failure::Failure,
    runs::Standing,
};

/// The sessions there are.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

/// A session.
pub struct Session {
    /// What it is known by.
    pub id: String,
    /// The credential that opened it.
    pub shown: Shown,
    /// The version that was agreed on.
    pub version: ProtocolVersion,
    /// What its client can do.
    pub abilities: Abilities,
    /// What its client is told besides answers.
    pub notices: broadcast::Sender<Value>,
    /// Counts its streams: a new one takes the place of the last.
    pub streams: watch::Sender<u64>,
    run: tokio::sync::Mutex<Option<Standing>>,
    used: Mutex<Instant>,
    under_way: Mutex<HashMap<String, Arc<Notify>>>,
    over: watch::Sender<bool>,
}

impl Sessions {
    /// Opens one.
    ///
    /// # Errors
    /// When the credential has as many as it may, all of them in use.
    pub fn open(
        &self,
        app: &App,
        caller: &Caller,
        (version, abilities): (ProtocolVersion, Abilities),
    ) -> Result<Arc<Session>, Failure> {
        let id = fresh_id(app.entropy.as_ref()).map_err(|error| Failure::internal(error.to_string()))?;
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sessions.values().filter(|one| one.shown == caller.shown);
        if own.clone().count() >= MOST_OF_ONE {
            // Clients that went away without a word leave sessions behind; those still in use are left alone.
            let idle = own.filter(|one| !one.is_busy()).min_by_key(|one| one.used()).map(|one| one.id.clone());
            let Some(session) = idle.and_then(|id| sessions.remove(&id)) else {
                let message = format!("this credential has {MOST_OF_ONE} sessions in use, which is the limit");
                return Err(Failure::new("too_many_requests", message, "end some of them first"));
            };
            session.end();
        }
        let session = Arc::new(Session {
            id: id.clone(),
            shown: caller.shown.clone(),
            version,
            abilities,
            notices: broadcast::channel(NOTICES).0,
            streams: watch::channel(0).0,
            run: tokio::sync::Mutex::default(),
            used: Mutex::new(Instant::now()),
            under_way: Mutex::default(),
            over: watch::channel(false).0,
        });
        sessions.insert(id, Arc::clone(&session));
        Ok(session)
    }

    /// A session of this credential.
    // SECURITY: an id that was overheard, or guessed, is of no use to anybody else, who does not even learn that there is such a session.
    #[must_use]
    pub fn find(&self, id: &str, shown: &Shown) -> Option<Arc<Session>> {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.get(id).filter(|session| session.shown == *shown)?;
        session.touch();
        Some(Arc::clone(session))
    }

    /// Ends one.
    pub fn end(&self, session: &Session) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id);
        session.end();
    }

    /// Ends those whose credential does not count any more, and those that nobody has used for a while.
    pub fn sweep(&self, app: &App) {
        let idle = Duration::from_secs(app.config_now().mcp_gateway.idle_seconds.get().into());
        self.retain(|session| session.shown.counts(app) && (session.is_busy() || session.used().elapsed() < idle));
    }

    /// Ends all of them.
    pub fn end_all(&self) {
        self.retain(|_| false);
    }

    fn retain(&self, keep: impl Fn(&Session) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, session| {
            let kept = keep(session);
            if !kept {
                session.end();
            }
            kept
        });
    }
}

impl Session {
    /// The run of its calls, opened with the first, and with the next when it is over.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn run(&self, app: &App, caller: &Caller) -> Result<RunId, Failure> {
        let mut run = self.run.lock().await;
        let standing = match run.filter(|standing| standing.left(&app.gate).is_some()) {
            Some(standing) => standing,
            None => app.own_runs.follow(*run, &caller.principal, &app.gate).await?,
        };
        *run = Some(standing);
        Ok(standing.run)
    }

    /// How long it is until its calls have another run, if they have one.
    pub async fn left(&self, app: &App) -> Option<Duration> {
        (*self.run.lock().await)?.left(&app.gate)
    }

    /// Remembers that a request is under way, until what is returned is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, id: &Value) -> UnderWay {
        let (id, cancelled) = (id.to_string(), Arc::new(Notify::new()));
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.insert(id.clone(), Arc::clone(&cancelled));
        UnderWay { session: Arc::clone(self), id, cancelled }
    }

    /// Its client does not want an answer to this request any more.
    pub fn cancel(&self, id: &Value) {
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cancelled) = under_way.get(&id.to_string()) {
            cancelled.notify_one();
        }
    }

    /// Waits until it is over.
    pub async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn end(&self) {
        self.over.send_replace(true);
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is under way in it, or listened to.
    fn is_busy(&self) -> bool {
        let asks = !self.under_way.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        asks || self.notices.receiver_count() > 0
    }
}

/// A request that is under way.
pub struct UnderWay {
    session: Arc<Session>,
    id: String,
    cancelled: Arc<Notify>,
}

impl UnderWay {
    /// Waits until its client wants no answer any more.
    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Waits until its session is over.
    pub async fn ended(&self) {
        self.session.ended().await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut under_way = self.session.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever gives two requests one id has only the last of them cancelled.
        if under_way.get(&self.id).is_some_and(|known| Arc::ptr_eq(known, &self.cancelled)) {
            under_way.remove(&self.id);
        }
        drop(under_way);
        self.session.touch();
    }
}

/// Something that nobody guesses, in letters and digits.
///
/// # Errors
/// When there is no randomness.
pub fn fresh_id(entropy: &dyn Entropy) -> Result<String, NoEntropy> {
    let mut random = [0; 32];
    entropy.fill(&mut random)?;
    Ok(palyra_types::Sha256Digest::of(&random).to_string())
}

/// How many sessions one credential may have.
const MOST_OF_ONE: usize = 64;

/// How many notices a client may fall behind.
const NOTICES: usize = 64;
