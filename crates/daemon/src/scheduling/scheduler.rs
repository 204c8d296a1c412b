//! What wakes when something is due.
//!
//! Guarantees: what is due is noticed within a second or so, also when somebody sets the clock; where nothing is scheduled, nothing wakes. When
//! the daemon is about to stop, nothing fires any more.

use std::{sync::Arc, time::Duration};

use palyra_schedule::Firing;
use palyra_types::Timestamp;

use super::firing;
use crate::app::App;

/// Has fired what is due, until the daemon stops. What an earlier daemon did not finish is brought to its end first, each beside the others.
pub async fn run(app: Arc<App>, unfinished: Vec<Firing>) {
    for firing in unfinished {
        tokio::spawn(firing::settle(Arc::clone(&app), firing));
    }
    let mut stopping = app.stopping.subscribe();
    loop {
        let waking = async {
            match app.schedule.next_wake().await {
                Ok(Some(due)) => until(&app, due).await,
                Ok(None) => app.schedule.changed.notified().await,
                Err(error) => {
                    tracing::error!(%error, "schedules cannot be read; they are tried again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        };
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = waking => {}
        }
        match app.schedule.due().await {
            Ok(firings) => firings.into_iter().for_each(|firing| {
                tokio::spawn(firing::fire(Arc::clone(&app), firing));
            }),
            Err(error) => {
                tracing::error!(%error, "what is due cannot be written down, so it does not fire");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Waits until it is that late, or something may be due earlier.
async fn until(app: &App, due: Timestamp) {
    loop {
        let left = due.unix_millis().saturating_sub(app.clock.now().unix_millis());
        let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else { return };
        tokio::select! {
            () = app.schedule.changed.notified() => return,
            () = tokio::time::sleep(Duration::from_millis(left).min(NAP)) => {}
        }
    }
}

/// How long a nap is before the clock is looked at again: somebody may have set it.
const NAP: Duration = Duration::from_secs(1);

const TRY_AGAIN: Duration = Duration::from_secs(5);
