//! `/api/v1/identity`: who the daemon takes a caller for.

use palyra_api::{ErrorBody, health::Identity};

use crate::{caller::Caller, reply::Reply};

/// Who the daemon takes you for.
#[utoipa::path(get, path = "/api/v1/identity", tag = "daemon", security(("bearer" = [])),
    responses((status = 200, body = Identity), (status = "4XX", body = ErrorBody)))]
pub(super) async fn identity(caller: Caller) -> Reply<Identity> {
    Reply(Identity {
        principal: caller.principal.to_string(),
        roles: caller.principal.roles().iter().map(ToString::to_string).collect(),
        credential: caller.credential.to_string(),
    })
}
