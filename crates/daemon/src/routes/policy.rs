//! `/api/v1/policy`: what is in force, reading it again, trying others.

use std::sync::Arc;

use axum::extract::State;
use palyra_api::{
    ErrorBody,
    policy::{PolicyEntry, PolicySet, Replay, ReplayReport},
};
use palyra_gate::config::PresetChoice;
use palyra_policy::Layer;

use crate::{
    app::App,
    caller::Caller,
    extract::{LONGEST_BODY, Said},
    failure::Failure,
    policies,
    reply::Reply,
};

/// The policy set that is in force.
#[utoipa::path(get, path = "/api/v1/policy", tag = "policy", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = PolicySet), (status = "4XX", body = ErrorBody)))]
pub(super) async fn show(State(app): State<Arc<App>>, _: Caller) -> Result<Reply<PolicySet>, Failure> {
    Ok(Reply(told(&app)))
}

/// Reads configuration and policies again. All of it comes into force, or nothing.
#[utoipa::path(post, path = "/api/v1/policy/reload", tag = "policy", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = PolicySet), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn reload(State(app): State<Arc<App>>, caller: Caller) -> Result<Reply<PolicySet>, Failure> {
    let waits = policies::reload(&app, &caller.principal.to_string()).await?;
    let mut told = told(&app);
    told.warnings.extend(waits);
    Ok(Reply(told))
}

/// Tries a candidate on what was decided before, and tells what it would decide otherwise.
#[utoipa::path(post, path = "/api/v1/policy/replay", tag = "policy", security(("bearer" = []), ("certificate" = [])), request_body = Replay,
    responses((status = 200, body = ReplayReport), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    _: Caller,
    Said { said: replay, .. }: Said<Replay, LONGEST_BODY>,
) -> Result<Reply<ReplayReport>, Failure> {
    if !(1..=100_000).contains(&replay.last) {
        return Err(Failure::bad_request("`last` is 1 to 100000"));
    }
    Ok(Reply(policies::replay(&app, replay).await?))
}

fn told(app: &App) -> PolicySet {
    let snapshot = app.gate.engine().snapshot();
    let in_force = app.policies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let policies = snapshot.policies().map(|policy| PolicyEntry {
        id: policy.id.to_string(),
        effect: policy.effect.to_string(),
        layer: match policy.layer {
            Layer::Baseline => "baseline",
            Layer::Operator => "operator",
        }
        .to_owned(),
        location: policy.location.to_string(),
        why: policy.why.clone(),
    });
    PolicySet {
        digest: snapshot.digest(),
        preset: match app.gate.config().policy.preset {
            PresetChoice::Preset(preset) => preset.to_string(),
            PresetChoice::None => "none".to_owned(),
        },
        allow_sensitive_tools: app.gate.evaluation().allow_sensitive_tools,
        since: in_force.since,
        policies: policies.collect(),
        warnings: snapshot.warnings().iter().map(|warning| warning.problem.to_string()).collect(),
        refused: in_force.refused,
    }
}
