//! Performs fetches: the executing half of `http.fetch`.
//!
//! Guarantees: every hop goes through the call's own door, is counted and is journalled before the call is attested; it
//! ends when the call is stopped or its time is up. Waiting for a person does not count as its time.
//! Does not: check a permit. It is for this crate, which does.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use palyra_sandbox::{
    Reason,
    egress::{
        ConnectionOutcome, ConnectionRecord, Doorkeeper, Glance, Interceptor, Ruling,
        fetch::{FetchError, FetchLimits, Late, Scheme},
    },
};
use palyra_types::HostName;
use tokio::sync::watch;

use crate::{
    attest::{Ending, NetworkUse},
    door::CallDoor,
    execute::{Executed, Executor, asked_to_stop, stopped},
    output::Output,
    permit::CallFacts,
    tool::FetchWork,
    tools::http_fetch::{request, tell, tell_error, with_placeholders},
};

/// Fetches what the work says.
pub(crate) async fn perform(facts: &CallFacts, work: FetchWork, wall_ms: u64, executor: &Executor) -> Executed {
    let reserved = &facts.reserved;
    let limits = FetchLimits {
        body_bytes: work.max_bytes.min(reserved.output_bytes),
        total: Duration::from_millis(wall_ms.min(reserved.wall_ms)),
        ..FetchLimits::default()
    };
    // Nothing leads from an encrypted connection to one in the open, so what began encrypted is so in every hop.
    let is_encrypted = work.url.scheme() == Scheme::Https;
    let secrets = executor.secrets.as_ref().ok().and_then(Option::as_ref);
    let interceptor = secrets.map(|secrets| secrets.as_ref() as &dyn Interceptor);
    let work = match secrets.map(|secrets| with_placeholders(&work, secrets.placeholders())) {
        Some(Some(work)) => work,
        Some(None) => return Executed::unknown(Ending::NotStarted, "a placeholder cannot stand there"),
        None => work,
    };
    let request = request(work, limits);
    let door = Tallied { door: &executor.door, used: Mutex::new(NONE) };
    let mut stop = executor.stop.clone();
    let ended = tokio::select! {
        biased;
        cause = asked_to_stop(&mut stop) => Err(cause),
        fetched = executor.fetcher.fetch(&door, request, interceptor) => Ok(fetched),
    };
    executor.door.close().await;
    let is_short = reserved.wall_ms < wall_ms;
    let mut reasons = Vec::new();
    let (ending, detail, output) = match ended {
        Err(cause) => (Ending::Cancelled, Some(stopped(cause).to_owned()), Output::Nothing),
        Ok(Err(FetchError::Timeout { late: Late::Answer, .. })) if is_short => {
            (Ending::BudgetSpent, None, Output::Nothing)
        }
        Ok(Err(error @ FetchError::Timeout { late: Late::Answer, .. })) => {
            (Ending::TimedOut, Some(format!("{error}; its limit is {wall_ms} ms")), Output::Nothing)
        }
        Ok(Err(error)) => {
            let told = (Ending::Completed, Some(error.to_string()), Output::Value { value: tell_error(&error) });
            if let FetchError::Refused(target) = error {
                reasons.push(Reason::from(*target));
            }
            told
        }
        Ok(Ok(mut response)) => {
            // Before its digest is told.
            if let Some(secrets) = secrets {
                secrets.redact(&mut response.body, response.truncated);
            }
            (Ending::Completed, None, Output::Value { value: tell(response) })
        }
    };
    let network = *door.used();
    let layers = [Some("egress_strict"), is_encrypted.then_some("tls_verified")];
    Executed {
        executor: FETCH_EXECUTOR,
        layers: layers.into_iter().flatten().map(str::to_owned).collect(),
        reasons,
        network: Some(network),
        detail,
        output,
        ..Executed::unknown(ending, "")
    }
}

/// The door of a call, with what goes through it counted.
struct Tallied<'a> {
    door: &'a CallDoor,
    used: Mutex<NetworkUse>,
}

impl Tallied<'_> {
    fn used(&self) -> MutexGuard<'_, NetworkUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doorkeeper for Tallied<'_> {
    fn glance(&self, host: &HostName) -> Glance {
        self.door.glance(host)
    }

    fn decide<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, Ruling> {
        self.door.decide(host, port)
    }

    fn still(&self, host: &HostName, port: u16) -> bool {
        self.door.still(host, port)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.door.changes()
    }

    fn note(&self, record: ConnectionRecord) {
        let mut used = self.used();
        used.connections += u64::from(record.address.is_some());
        used.refused += u64::from(matches!(record.outcome, ConnectionOutcome::Refused(_)));
        used.sent = used.sent.saturating_add(record.sent);
        used.received = used.received.saturating_add(record.received);
        drop(used);
        self.door.note(record);
    }
}

const NONE: NetworkUse = NetworkUse { connections: 0, refused: 0, sent: 0, received: 0 };

const FETCH_EXECUTOR: &str = "daemon_http_fetch";
