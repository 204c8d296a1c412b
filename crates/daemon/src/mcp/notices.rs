//! What clients are told without having asked: that the tools are not the same any more, and that a question was answered.
//!
//! Guarantees: a client hears of a change if it changes what this very client is told, soon and once for all that changed together; a stream ends
//! with its session, its credential or the daemon.

use std::{sync::Arc, time::Duration};

use axum::{body::Bytes, response::Response};
use palyra_types::Sha256Digest;
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc, watch};

use super::{listing, message, message::Request, sessions::Session, wire::Wire};
use crate::{
    app::App,
    caller::Caller,
    compat::telling::{data, events},
};

/// The stream of a session. The last that was opened counts.
pub fn listen(app: &Arc<App>, caller: &Caller, session: &Arc<Session>) -> Response {
    let (sender, response) = events();
    let (mut told, mut newer) = (session.notices.subscribe(), session.streams.subscribe());
    session.streams.send_modify(|count| *count += 1);
    newer.mark_unchanged();
    let (mut tools, session) = (Tools::of(app, caller), Arc::clone(session));
    tokio::spawn(async move {
        let telling = async {
            loop {
                let message = tokio::select! {
                    changed = tools.changed() => match changed {
                        true => Some(message::notification(CHANGED, json!({}))),
                        false => return,
                    },
                    notice = told.recv() => match notice {
                        Ok(notice) => Some(notice),
                        Err(broadcast::error::RecvError::Lagged(_)) => None,
                        Err(broadcast::error::RecvError::Closed) => return,
                    },
                };
                if let Some(message) = message
                    && sender.send(data(&message)).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = telling => {}
            () = breathe(&sender) => {}
            () = session.ended() => {}
            _ = newer.changed() => {}
        }
    });
    response
}

/// The stream that a client of 2026-07-28 subscribes to.
pub fn subscribe(app: &Arc<App>, caller: &Caller, (request, wire): (Request, Wire)) -> Response {
    let (sender, response) = events();
    let wants = request.params.get("notifications").and_then(|wanted| wanted.get("toolsListChanged"));
    let wants = wants.and_then(Value::as_bool) == Some(true);
    let (mut tools, mut stopping) = (Tools::of(app, caller), app.stopping.subscribe());
    tokio::spawn(async move {
        let tagged = |mut params: Value| {
            if let Some(params) = params.as_object_mut() {
                params.insert("_meta".to_owned(), json!({ SUBSCRIPTION: request.id }));
            }
            params
        };
        let granted = if wants { json!({ "toolsListChanged": true }) } else { json!({}) };
        let first = message::notification(ACKNOWLEDGED, tagged(json!({ "notifications": granted })));
        if sender.send(data(&first)).await.is_err() {
            return;
        }
        let telling = async {
            while wants && tools.changed().await {
                if sender.send(data(&message::notification(CHANGED, tagged(json!({}))))).await.is_err() {
                    return;
                }
            }
            if !wants {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = telling => {}
            () = breathe(&sender) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        let last = Map::from_iter([("_meta".to_owned(), json!({ SUBSCRIPTION: request.id }))]);
        let _ = sender.send(data(&message::result(&request.id, wire.finished(last)))).await;
    });
    response
}

/// Tells when what a caller is told about tools has changed.
struct Tools {
    app: Arc<App>,
    caller: Caller,
    changes: watch::Receiver<u64>,
    known: Option<Sha256Digest>,
}

impl Tools {
    fn of(app: &Arc<App>, caller: &Caller) -> Self {
        // Subscribed before it is looked, so that nothing falls between the two.
        let changes = app.gate.changes();
        let known = listing::digest(app, caller);
        Self { app: Arc::clone(app), caller: caller.clone(), changes, known }
    }

    /// Waits for a change. False if there will be none any more, because the caller is not let in any more.
    async fn changed(&mut self) -> bool {
        loop {
            if self.changes.changed().await.is_err() {
                return false;
            }
            tokio::time::sleep(SETTLE).await;
            self.changes.mark_unchanged();
            let Some(caller) = self.caller.now(&self.app) else { return false };
            let known = listing::digest(&self.app, &caller);
            self.caller = caller;
            if known != self.known {
                self.known = known;
                return true;
            }
        }
    }
}

/// Says every now and then that a stream lives. Ends with its reader.
async fn breathe(sender: &mpsc::Sender<Bytes>) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(BREATH) => {}
        }
        if let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(Bytes::from_static(b": still here\n\n")) {
            return;
        }
    }
}

const CHANGED: &str = "notifications/tools/list_changed";

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// How long changes that come together have to do so.
const SETTLE: Duration = Duration::from_millis(50);

const BREATH: Duration = Duration::from_secs(15);
