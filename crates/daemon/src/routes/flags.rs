//! `/api/v1/flags`: the parts of the daemon that can be switched on and off.

use std::sync::Arc;

use axum::extract::State;
use palyra_access::{FeatureFlag, State as Registered, Switch};
use palyra_api::{
    ErrorBody,
    member::{Flag, Flags, SetFlag},
};
use palyra_journal::RecordKind;

use crate::{
    app::App,
    caller::Caller,
    extract::{Named, Said},
    failure::Failure,
    governing,
    reply::Reply,
};

/// The parts of the daemon, and whether they are on.
#[utoipa::path(get, path = "/api/v1/flags", tag = "members", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Flags), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Reply<Flags> {
    Reply(told(&app))
}

/// Switches a part of the daemon on or off.
#[utoipa::path(put, path = "/api/v1/flags/{name}", tag = "members", security(("bearer" = []), ("certificate" = [])),
    params(("name" = String, Path)), request_body = SetFlag,
    responses((status = 200, body = Flags), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(feature): Named<FeatureFlag>,
    Said { said: set, .. }: Said<SetFlag>,
) -> Result<Reply<Flags>, Failure> {
    let (actor, to) = (caller.actor(), if set.on { Switch::On } else { Switch::Off });
    let doer = caller.doer();
    let change = move |state: &mut Registered, _| state.set_feature(&actor, feature, to);
    // Whatever is switched off takes something away.
    match to {
        Switch::On => governing::grant(&app, RecordKind::FeatureSet, &doer, change).await.map(|_| ())?,
        Switch::Off => governing::take_away(&app, RecordKind::FeatureSet, &doer, change).await.map(|_| ())?,
    }
    Ok(Reply(told(&app)))
}

fn told(app: &App) -> Flags {
    let snapshot = app.access.snapshot();
    let flags = snapshot.state().features().map(|(feature, switch)| Flag {
        name: feature.to_string(),
        about: feature.about().to_owned(),
        on: switch.is_on(),
        by_default: feature.by_default().is_on(),
    });
    Flags { flags: flags.collect() }
}
