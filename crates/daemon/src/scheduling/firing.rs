//! One firing: from being due, through the gate, to what came of it.
//!
//! Guarantees: whoever created the schedule is looked up first, as they count now; if they do not, nothing is proposed, the refusal is on record
//! and the schedule is paused. The firing is on record before its call is proposed. The call has the id of the firing, so it cannot be
//! proposed twice, and a daemon that comes later finds what became of it.

use std::sync::Arc;

use palyra_gate::{Accepted, Completed, Ending, Petitioner, Refusal, ToolProposal, Within};
use palyra_journal::{
    RecordKind, Subject,
    state::{Charge, Waiting},
};
use palyra_schedule::{Firing, JobId, Outcome};
use palyra_types::{
    JsonObject, Timestamp, ToolName,
    id::{CallId, RunId},
    json::Limits,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    owner::{Held, Lapsed},
    schedule::SchedulingError,
};
use crate::{app::App, failure::Failure, proposing, story};

/// Proposes what is due, and waits until that is over.
pub async fn fire(app: Arc<App>, firing: Firing) {
    let came = match propose(&app, &firing).await {
        Ok(accepted) => match accepted.outcome.await {
            Ok(outcome) => {
                app.figures.ended(story::outcome_word(&outcome));
                came_of(outcome)
            }
            Err(_) => None,
        },
        Err(unfired) => unfired.outcome(&app, &firing).await,
    };
    conclude(&app, &firing, came).await;
}

/// Brings a firing to its end that an earlier daemon did not finish.
pub async fn settle(app: Arc<App>, firing: Firing) {
    let came = match call_of(&firing) {
        Ok(call) => match story::of(app.store.as_ref(), call).await {
            Ok(Some(_)) => match proposing::again(&app, call, true).await {
                Ok(call) => Some(ended(&call.receipt.map(|receipt| receipt.attestation).unwrap_or_default())),
                Err(failure) if failure.detail.code == "stopping" => None,
                Err(Failure { detail, .. }) => Some(Outcome::Failed(format!("{}: {}", detail.code, detail.message))),
            },
            Ok(None) => {
                let unfired = Unfired::Interrupted;
                unfired.outcome(&app, &firing).await
            }
            Err(error) => Some(Outcome::Failed(error.to_string())),
        },
        Err(refusal) => Some(Outcome::Failed(refusal.to_string())),
    };
    conclude(&app, &firing, came).await;
}

/// Proposes the call of a firing, as whoever created its schedule.
async fn propose(app: &App, firing: &Firing) -> Result<Accepted, Unfired> {
    let what = &firing.job.what;
    let held = Held::read(&what.owner)?;
    let by = held.stands(&firing.job, (&app.access.snapshot(), &app.certifier), app.clock.now())?;
    let args = JsonObject::try_from_value(Value::Object(what.args.clone()), Limits::default())
        .map_err(|error| Refusal::Internal(error.to_string()))?;
    let call = call_of(firing)?;
    let wall_ms = u64::from(what.timeout_seconds).saturating_mul(1_000);
    let limits = Charge { calls: u64::MAX, wall_ms, output_bytes: u64::MAX };
    let run = app.gate.open_run(what.session, &by.principal, Some(limits)).await?;
    let told = Fired::of(firing, &by, (call, run));
    let subject = Subject { session: Some(what.session), run: Some(run), ..Subject::default() };
    app.gate.record_keeping(RecordKind::CronFired, subject, &told).await?;
    let Petitioner { principal, channel, device, token, member_of } = by;
    let proposal = ToolProposal {
        call,
        run,
        session: what.session,
        principal,
        on_behalf_of: None,
        channel,
        device,
        token,
        member_of,
        workspace: what.workspace.clone(),
        tool: what.tool.clone(),
        args,
        waiting: Waiting::Accepted,
        key: None,
        within: Some(Within { call: held.call, summary: format!("the schedule `{}`", what.name) }),
        elsewhere: None,
    };
    Ok(app.gate.submit(proposal).await?)
}

/// Keeps what came of a firing. Nothing, if it goes on: the next daemon will see.
async fn conclude(app: &App, firing: &Firing, came: Option<Outcome>) {
    let Some(outcome) = came else { return };
    if let Err(error) = concluded(app, firing, outcome).await {
        tracing::error!(%error, schedule = %firing.job.id, "what came of a scheduled call could not be kept");
    }
}

async fn concluded(app: &App, firing: &Firing, outcome: Outcome) -> Result<(), SchedulingError> {
    app.schedule.finished(firing, outcome).await?;
    // It may have been deleted meanwhile.
    let Ok(job) = app.schedule.known(firing.job.id).await else { return Ok(()) };
    if job.enabled && job.failures >= MOST_FAILURES {
        let why = format!("paused after {MOST_FAILURES} failures in a row");
        app.schedule.pause(&job, Subject::default(), (DAEMON, &why)).await?;
    }
    Ok(())
}

/// The id of the call that a firing proposes: its own.
fn call_of(firing: &Firing) -> Result<CallId, Refusal> {
    CallId::parse(&firing.id.to_string()).map_err(|error| Refusal::Internal(error.to_string()))
}

/// What came of a call. Nothing, if the next daemon goes on with it.
fn came_of(outcome: Result<Completed, Refusal>) -> Option<Outcome> {
    match outcome {
        Ok(completed) => Some(ended(&serde_json::to_value(&completed.receipt.attestation).unwrap_or_default())),
        Err(Refusal::Stopping { .. }) => None,
        Err(refusal) => Some(Outcome::Failed(format!("{}: {refusal}", refusal.code()))),
    }
}

/// What an attestation says about how a call ended.
fn ended(attestation: &Value) -> Outcome {
    let text = |key: &str| attestation.get(key).and_then(Value::as_str);
    let exit = attestation.get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0);
    let ending = text("ending").unwrap_or_default();
    match (ending == Ending::Completed.as_str(), exit, text("detail")) {
        (true, None, None) => Outcome::Succeeded(ending.to_owned()),
        (true, Some(code), _) => Outcome::Failed(format!("it ended with exit code {code}")),
        (_, _, Some(detail)) => Outcome::Failed(format!("{ending}: {detail}")),
        (_, _, None) => Outcome::Failed(ending.to_owned()),
    }
}

/// Why a firing proposed nothing.
#[derive(Debug, thiserror::Error)]
enum Unfired {
    /// Nobody stands behind it any more.
    #[error(transparent)]
    Lapsed(#[from] Lapsed),
    /// The gate refused it.
    #[error("{}: {}", .0.code(), .0)]
    Refused(Refusal),
    /// The daemon was killed before.
    #[error("the daemon ended before the call was proposed")]
    Interrupted,
}

impl From<Refusal> for Unfired {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Unfired {
    /// Puts it on record, pauses the schedule if it would be the same the next time, and says what is kept.
    async fn outcome(self, app: &App, firing: &Firing) -> Option<Outcome> {
        let why = self.to_string();
        let lapsed = match &self {
            Self::Refused(Refusal::Stopping { .. }) => return None,
            // What policy or a person says about a call is in the call's own records.
            Self::Refused(Refusal::Internal(_) | Refusal::Journal(_)) | Self::Interrupted => false,
            Self::Refused(_) => return Some(Outcome::Failed(why)),
            Self::Lapsed(_) => true,
        };
        let job = &firing.job;
        if lapsed && let Err(error) = app.schedule.pause(job, Subject::default(), (DAEMON, &why)).await {
            tracing::error!(%error, schedule = %job.id, "a schedule that acts for nobody could not be paused");
        }
        let told = Unproposed {
            schedule: &job.what.name,
            id: job.id,
            owner: &job.what.owner.principal,
            due: firing.due,
            why: &why,
        };
        let subject = Subject { session: Some(job.what.session), ..Subject::default() };
        if let Err(error) = app.schedule.record(RecordKind::CronRefused, subject, &told).await {
            tracing::error!(%error, schedule = %job.id, "a scheduled call that was not proposed could not be recorded");
        }
        Some(Outcome::Failed(why))
    }
}

/// A firing, as it is on record before its call is proposed.
#[derive(Serialize)]
struct Fired<'a> {
    schedule: &'a str,
    id: JobId,
    owner: &'a str,
    tool: &'a ToolName,
    due: Timestamp,
    missed_times: u64,
    call: CallId,
    run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

impl<'a> Fired<'a> {
    fn of(firing: &'a Firing, by: &Petitioner, (call, run): (CallId, RunId)) -> Self {
        let job = &firing.job;
        Self {
            schedule: &job.what.name,
            id: job.id,
            owner: &job.what.owner.principal,
            tool: &job.what.tool,
            due: firing.due,
            missed_times: job.missed_times,
            call,
            run,
            token: by.token.as_ref().map(ToString::to_string),
            device: by.device.as_ref().map(ToString::to_string),
        }
    }
}

/// A firing that proposed nothing, as it is on record.
#[derive(Serialize)]
struct Unproposed<'a> {
    schedule: &'a str,
    id: JobId,
    owner: &'a str,
    due: Timestamp,
    why: &'a str,
}

/// Who pauses what nobody asked to be paused.
const DAEMON: &str = "the daemon";

/// How often a schedule may fail in a row before it is paused.
const MOST_FAILURES: u64 = 10;
