//! How a call is asked to stop.
//!
//! Guarantees: the first cause counts; whoever asks later changes nothing.

use std::sync::Arc;

use palyra_sandbox::StopCause;
use tokio::sync::watch;

use crate::refusal::CancelCause;

/// A call's ear: whether it is to be withdrawn or stopped, and why.
#[derive(Clone)]
pub(crate) struct Cancel {
    cause: Arc<watch::Sender<Option<CancelCause>>>,
    stop: Arc<watch::Sender<Option<StopCause>>>,
}

impl Default for Cancel {
    fn default() -> Self {
        Self { cause: Arc::new(watch::channel(None).0), stop: Arc::new(watch::channel(None).0) }
    }
}

impl Cancel {
    /// Asks for it. The first cause counts.
    pub(crate) fn ask(&self, cause: &CancelCause) -> bool {
        let stop = match cause {
            CancelCause::CallerGone => StopCause::CallerGone,
            CancelCause::Requested(_) => StopCause::Requested,
            CancelCause::PolicyChanged(_)
            | CancelCause::SkillChanged(_)
            | CancelCause::SkillsLimited
            | CancelCause::Withdrawn(_)
            | CancelCause::CredentialRevoked(_)
            | CancelCause::CredentialGone => StopCause::Revoked,
            CancelCause::Restarted | CancelCause::Stopping => StopCause::Shutdown,
        };
        let first = self.cause.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(cause.clone());
            }
            first
        });
        if first {
            self.stop.send_replace(Some(stop));
        }
        first
    }

    /// Waits until somebody asks for it.
    pub(crate) async fn asked(&self) -> CancelCause {
        let mut cause = self.cause.subscribe();
        match cause.wait_for(Option::is_some).await.map(|cause| cause.clone()) {
            Ok(Some(cause)) => cause,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Whether somebody has asked for it.
    pub(crate) fn already(&self) -> Option<CancelCause> {
        self.cause.borrow().clone()
    }

    pub(crate) fn stopper(&self) -> watch::Receiver<Option<StopCause>> {
        self.stop.subscribe()
    }
}

/// Asks a call to stop when it is dropped, because its caller is gone.
pub(crate) struct CancelOnDrop {
    /// Taken away once the call is over.
    pub(crate) cancel: Option<Cancel>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel {
            cancel.ask(&CancelCause::CallerGone);
        }
    }
}
