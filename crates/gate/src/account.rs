//! What the journal is told about something that runs, while it runs.
//!
//! Guarantees: what is told is without the values of secrets that it uses; what a program can make happen as often as it likes is told the first
//! times only; once [`Account::close`] has returned, all that was told is on record. Does not: hold up whoever tells.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use palyra_journal::{RecordKind, Subject};
use palyra_types::ObjectId;
use palyra_vault::Redactor;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{gate::Inner, output::each_text};

/// Tells the journal about one call, or about one server.
pub(crate) struct Account {
    inner: Arc<Inner>,
    subject: Subject,
    /// The server, for what belongs to no call.
    server: Option<ObjectId>,
    /// Records that are being written. They end with this.
    work: Mutex<JoinSet<()>>,
    /// How often something was told that a program can repeat.
    told: AtomicU64,
    /// Takes values of secrets out of what is told.
    redactor: OnceLock<Redactor>,
}

impl Account {
    /// Of a call.
    pub(crate) fn of_call(inner: Arc<Inner>, subject: Subject) -> Self {
        Self::new(inner, subject, None)
    }

    /// Of a server that runs.
    pub(crate) fn of_server(inner: Arc<Inner>, server: ObjectId) -> Self {
        Self::new(inner, Subject::default(), Some(server))
    }

    fn new(inner: Arc<Inner>, subject: Subject, server: Option<ObjectId>) -> Self {
        let (told, redactor) = (AtomicU64::new(0), OnceLock::new());
        Self { inner, subject, server, work: Mutex::default(), told, redactor }
    }

    /// Has values of secrets taken out of what is told: a program may name a host that has one in its name.
    pub(crate) fn redact_by(&self, redactor: Redactor) {
        let _ = self.redactor.set(redactor);
    }

    /// Tells something.
    pub(crate) fn tell(&self, kind: RecordKind, body: &impl serde::Serialize) {
        let Ok(mut body) = serde_json::to_value(body) else { return };
        if let (Some(server), Value::Object(told)) = (&self.server, &mut body) {
            told.insert("server".to_owned(), Value::from(server.as_str()));
        }
        if let Some(redactor) = self.redactor.get() {
            each_text(&mut body, &|text| redactor.redact_text(text));
        }
        let Ok(record) = self.inner.record(kind, self.subject, &body) else { return };
        let inner = Arc::clone(&self.inner);
        let mut work = self.work();
        // What runs for weeks tells much.
        while work.try_join_next().is_some() {}
        work.spawn(async move {
            // A journal in trouble has the attestation to worry about.
            let _ = inner.commit(vec![record], Vec::new()).await;
        });
    }

    /// The same, for what a program can make happen as often as it likes: the first times.
    pub(crate) fn tell_some(&self, kind: RecordKind, body: &impl serde::Serialize) {
        if self.told.fetch_add(1, Ordering::Relaxed) < MOST_TOLD {
            self.tell(kind, body);
        }
    }

    /// Waits until everything is on record. To be called when nothing more is told.
    pub(crate) async fn close(&self) {
        let mut work = std::mem::take(&mut *self.work());
        while work.join_next().await.is_some() {}
    }

    fn work(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often something is journalled to have done what it may not.
const MOST_TOLD: u64 = 256;
