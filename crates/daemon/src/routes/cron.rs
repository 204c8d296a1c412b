//! `/api/v1/cron`: calls that are scheduled, for people who look after them.
//!
//! Guarantees: everybody sees their own, and whoever may read the journal all of them; whoever stops, resumes or deletes one governs, and is asked
//! nothing, because a person does it. It is on record.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    cron::{Schedule, Schedules},
};
use palyra_journal::Subject;
use palyra_schedule::{Job, JobId};

use crate::{
    app::App,
    caller::Caller,
    extract::Named,
    failure::Failure,
    oversight::{holds_everywhere, may_read_journal},
    reply::Reply,
    scheduling::schedule,
};

/// The schedules: one's own, or all of them.
#[utoipa::path(get, path = "/api/v1/cron", tag = "cron", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Schedules), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<Schedules>, Failure> {
    let sees_all = may_read_journal(&app, &caller).is_ok();
    let jobs = app.schedule.list((!sees_all).then(|| caller.principal.to_string())).await?;
    Ok(Reply(Schedules { schedules: jobs.iter().map(schedule::told).collect() }))
}

/// Lets a schedule fire no more until it is resumed, whoever's it is.
#[utoipa::path(post, path = "/api/v1/cron/{id}/pause", tag = "cron", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Schedule), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Result<Reply<Schedule>, Failure> {
    let job = within_reach(&caller, app.schedule.known(id).await?)?;
    let by = caller.principal.to_string();
    Ok(Reply(schedule::told(&app.schedule.pause(&job, Subject::default(), (&by, "paused")).await?)))
}

/// Lets a schedule fire again that is paused.
#[utoipa::path(post, path = "/api/v1/cron/{id}/resume", tag = "cron", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Schedule), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Result<Reply<Schedule>, Failure> {
    let job = within_reach(&caller, app.schedule.known(id).await?)?;
    let by = caller.principal.to_string();
    Ok(Reply(schedule::told(&app.schedule.resume(&job, Subject::default(), &by).await?)))
}

/// Deletes a schedule. A call of it that is under way goes on.
#[utoipa::path(delete, path = "/api/v1/cron/{id}", tag = "cron", security(("bearer" = []), ("certificate" = [])),
    params(("id" = palyra_api::schema::Ulid, Path)),
    responses((status = 200, body = Schedule), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Result<Reply<Schedule>, Failure> {
    let job = within_reach(&caller, app.schedule.known(id).await?)?;
    app.schedule.delete(&job, Subject::default(), &caller.principal.to_string()).await?;
    Ok(Reply(schedule::told(&job)))
}

/// A schedule that works in a workspace is also for those who are bound to that; others are for those who are bound to none.
fn within_reach(caller: &Caller, job: Job) -> Result<Job, Failure> {
    match (&job.what.workspace, &caller.member_of) {
        (Some(name), Some(bound)) if bound.contains(name) => Ok(job),
        _ => holds_everywhere(caller).map(|()| job),
    }
}
