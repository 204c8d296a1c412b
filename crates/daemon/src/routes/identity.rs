//! `/api/v1/identity`: who the daemon takes a caller for.

use palyra_api::{ErrorBody, health::Identity};

use crate::{caller::Caller, reply::Reply};

/// Who the daemon takes you for.
#[utoipa::path(get, path = "/api/v1/identity", tag = "daemon", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Identity), (status = "4XX", body = ErrorBody)))]
pub(super) async fn identity(caller: Caller) -> Reply<Identity> {
    Reply(Identity {
        principal: caller.principal.to_string(),
        roles: caller.principal.roles().iter().map(ToString::to_string).collect(),
        credential: caller.shown.as_str().to_owned(),
        device: caller.device().cloned(),
        token: caller.token().cloned(),
        scopes: caller.scopes.as_ref().map(|scopes| scopes.iter().map(ToString::to_string).collect()),
        workspaces: caller.member_of.as_ref().map(|names| names.iter().cloned().collect()),
        until: caller.until,
    })
}
