//! Calls that wait for a person longer than their client does.
//!
//! Guarantees: whoever asks again for the same goes on with the same call, so nobody is asked twice: with the handle that they were given,
//! which works once, or with the same tool and arguments, unless it has been over for a while: then whoever says the same again wants it done
//! again. It is the same only for the same credential and the same session, and for one request at a time. A handle is random and says
//! nothing; what it stands for is kept here.
//! Does not: end calls. One that nobody comes back for waits for its answer like any call that was accepted, and runs if it is yes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palyra_types::{
    Entropy, Sha256Digest, Timestamp, ToolName, WorkspaceName, entropy::NoEntropy, id::CallId, json::digest_of,
};
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::sessions::fresh_id;
use crate::{caller::Shown, failure::Failure, story::Ran};

/// The calls that wait without their client.
#[derive(Default)]
pub struct PendingCalls(Mutex<HashMap<CallId, Arc<PendingCall>>>);

/// What came of a call, once it is over.
pub type Outcome = watch::Receiver<Option<Result<Arc<Ran>, Failure>>>;

/// A call that is under way.
pub struct PendingCall {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// What comes of it.
    pub outcome: Outcome,
    whose: Whose,
    what: Sha256Digest,
    begun: Instant,
    /// When it was over, if it was kept by then.
    ended: OnceLock<Instant>,
    handle: Mutex<Option<Sha256Digest>>,
    task: OnceLock<(Sha256Digest, Timestamp)>,
    attended: AtomicBool,
}

/// Who may go on with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whose {
    /// By which credential.
    pub shown: Shown,
    /// In which session, if there are any.
    pub session: Option<String>,
}

impl PendingCall {
    /// A call that was begun.
    #[must_use]
    pub fn new(call: CallId, (tool, what): (ToolName, Sha256Digest), whose: Whose, outcome: Outcome) -> Self {
        let (handle, task, attended) = (Mutex::default(), OnceLock::new(), AtomicBool::new(true));
        Self { call, tool, outcome, whose, what, begun: Instant::now(), ended: OnceLock::new(), handle, task, attended }
    }

    /// Lets the next request go on with it.
    pub fn leave(&self) {
        self.attended.store(false, Ordering::SeqCst);
    }

    /// When it became a task, if it did.
    #[must_use]
    pub fn task_since(&self) -> Option<Timestamp> {
        self.task.get().map(|(_, since)| *since)
    }

    /// Whether somebody who says the same as was said for this call means it.
    fn is_meant(&self, now: Instant) -> bool {
        self.ended.get().is_none_or(|ended| now.saturating_duration_since(*ended) < JOINED)
    }

    /// Remembers when it is over.
    async fn note_end(self: Arc<Self>) {
        let mut outcome = self.outcome.clone();
        let _ = outcome.wait_for(Option::is_some).await;
        let _ = self.ended.set(Instant::now());
    }

    fn attend(&self) -> bool {
        !self.attended.swap(true, Ordering::SeqCst)
    }
}

/// The digest of a tool, its arguments and where it is to work: what makes a call the same call again.
#[must_use]
pub fn what(tool: &ToolName, args: &Map<String, Value>, workspace: Option<&WorkspaceName>) -> Option<Sha256Digest> {
    digest_of(&(tool, args, workspace)).ok()
}

impl PendingCalls {
    /// Keeps a call for whoever comes back, and gives out a handle.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn keep(&self, call: &Arc<PendingCall>, entropy: &dyn Entropy) -> Result<String, NoEntropy> {
        let handle = fresh_id(entropy)?;
        *call.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(Sha256Digest::of(handle.as_bytes()));
        self.insert(call);
        call.leave();
        Ok(handle)
    }

    /// Keeps a call as a task, and gives out the id of that. Only by this is it known from then on.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn keep_as_task(
        &self,
        call: &Arc<PendingCall>,
        entropy: &dyn Entropy,
        now: Timestamp,
    ) -> Result<String, NoEntropy> {
        let id = fresh_id(entropy)?;
        let _ = call.task.set((Sha256Digest::of(id.as_bytes()), now));
        self.insert(call);
        Ok(id)
    }

    /// The task of this id, if it is this credential's.
    #[must_use]
    pub fn by_task(&self, id: &str, shown: &Shown) -> Option<Arc<PendingCall>> {
        let digest = Sha256Digest::of(id.as_bytes());
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &PendingCall| one.task.get().is_some_and(|(known, _)| *known == digest);
        calls.values().find(|one| one.whose.shown == *shown && is_it(one)).cloned()
    }

    fn insert(&self, call: &Arc<PendingCall>) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = calls.values().filter(|one| one.whose.shown == call.whose.shown);
        if own.clone().count() >= MOST_OF_ONE
            && let Some(oldest) = own.min_by_key(|one| one.begun).map(|one| one.call)
        {
            // It goes on; asking for it again is a new call.
            calls.remove(&oldest);
        }
        if calls.insert(call.call, Arc::clone(call)).is_none() {
            tokio::spawn(Arc::clone(call).note_end());
        }
    }

    /// The call that a handle stands for, if all else is the same. The handle is used up.
    // SECURITY: a handle that was overheard is of no use with another credential, another tool or other arguments, and none twice.
    #[must_use]
    pub fn by_handle(&self, handle: &str, whose: &Whose, what: Sha256Digest) -> Option<Arc<PendingCall>> {
        let digest = Sha256Digest::of(handle.as_bytes());
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let call = calls.values().find(|one| {
            one.whose == *whose && one.what == what && {
                let mut known = one.handle.lock().unwrap_or_else(PoisonError::into_inner);
                let is_it = *known == Some(digest);
                if is_it {
                    *known = None;
                }
                is_it
            }
        })?;
        call.attend().then(|| Arc::clone(call))
    }

    /// The call that somebody asks for again, in the same words.
    #[must_use]
    pub fn same(&self, whose: &Whose, what: Sha256Digest) -> Option<Arc<PendingCall>> {
        self.same_at(Instant::now(), whose, what)
    }

    fn same_at(&self, now: Instant, whose: &Whose, what: Sha256Digest) -> Option<Arc<PendingCall>> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |one: &PendingCall| one.whose == *whose && one.what == what && one.task.get().is_none();
        let is_it = |one: &PendingCall| is_same(one) && one.is_meant(now);
        let call = calls.values().find(|one| is_it(one) && one.attend())?;
        Some(Arc::clone(call))
    }

    /// Forgets a call: its client knows what came of it.
    pub fn forget(&self, call: CallId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&call);
    }

    /// Forgets what nobody came back for.
    pub fn sweep(&self) {
        let is_old = |one: &PendingCall| one.begun.elapsed() > KEPT && one.outcome.borrow().is_some();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, one| !is_old(one));
    }
}

/// How many calls of one credential are kept for it to come back.
const MOST_OF_ONE: usize = 256;

/// How long a call that is over is what its words mean.
const JOINED: Duration = Duration::from_secs(120);

/// How long, at least.
pub const KEPT: Duration = Duration::from_secs(1_800);

#[cfg(test)]
mod tests {
    use palyra_types::{TokenId, entropy::SeededEntropy};

    use super::*;

    fn whose(token: &str, session: Option<&str>) -> Whose {
        Whose { shown: Shown::Token(TokenId::parse(token).unwrap()), session: session.map(str::to_owned) }
    }

    fn waiting(whose: Whose, what: Sha256Digest) -> Arc<PendingCall> {
        let (call, tool) =
            (CallId::from_parts(Timestamp::from_unix_millis(0), 7), ToolName::parse("process.run").unwrap());
        Arc::new(PendingCall::new(call, (tool, what), whose, watch::channel(None).1))
    }

    #[tokio::test]
    async fn a_handle_works_once_for_whom_and_what_it_was_given() {
        let (calls, entropy, what) = (PendingCalls::default(), SeededEntropy::new(1), Sha256Digest::of(b"echo"));
        let mine = whose("tok-a", None);
        let call = waiting(mine.clone(), what);
        let handle = calls.keep(&call, &entropy).unwrap();
        assert!(calls.by_handle(&handle, &whose("tok-b", None), what).is_none());
        assert!(calls.by_handle(&handle, &whose("tok-a", Some("s")), what).is_none());
        assert!(calls.by_handle(&handle, &mine, Sha256Digest::of(b"rm")).is_none());
        assert!(calls.by_handle(handle.get(1..).unwrap(), &mine, what).is_none());
        assert!(calls.by_handle(&handle, &mine, what).is_some());
        assert!(calls.by_handle(&handle, &mine, what).is_none());
        let next = calls.keep(&call, &entropy).unwrap();
        assert!(next != handle && calls.by_handle(&next, &mine, what).is_some());
    }

    #[tokio::test]
    async fn the_same_words_soon_after_a_call_is_over_are_told_what_came_of_it_and_later_they_are_another_call() {
        let (calls, entropy, what) = (PendingCalls::default(), SeededEntropy::new(1), Sha256Digest::of(b"echo"));
        let (mine, (over, outcome)) = (whose("tok-a", None), watch::channel(None));
        let tool = ToolName::parse("process.run").unwrap();
        let call = CallId::from_parts(Timestamp::from_unix_millis(0), 7);
        let call = Arc::new(PendingCall::new(call, (tool, what), mine.clone(), outcome));
        let handle = calls.keep(&call, &entropy).unwrap();
        let at = |now: Instant| {
            let found = calls.same_at(now, &mine, what);
            found.iter().for_each(|one| one.leave());
            found.is_some()
        };
        assert!(at(Instant::now() + 10 * JOINED), "one that waits is meant for as long as it does");
        over.send_replace(Some(Err(Failure::internal("x"))));
        while call.ended.get().is_none() {
            tokio::task::yield_now().await;
        }
        let ended = *call.ended.get().unwrap();
        assert!(at(ended) && at(ended + JOINED - Duration::from_millis(1)));
        assert!(!at(ended + JOINED));
        assert!(calls.by_handle(&handle, &mine, what).is_some(), "a handle leads to it for longer");
    }

    #[tokio::test]
    async fn the_same_words_go_on_with_the_same_call_one_request_at_a_time() {
        let (calls, entropy, what) = (PendingCalls::default(), SeededEntropy::new(1), Sha256Digest::of(b"echo"));
        let mine = whose("tok-a", Some("s"));
        let call = waiting(mine.clone(), what);
        calls.keep(&call, &entropy).unwrap();
        assert!(calls.same(&whose("tok-a", Some("t")), what).is_none());
        assert!(calls.same(&mine, what).is_some());
        assert!(calls.same(&mine, what).is_none());
        call.leave();
        assert!(calls.same(&mine, what).is_some());
        calls.forget(call.call);
        call.leave();
        assert!(calls.same(&mine, what).is_none());
    }
}
