//! `/api/v1/members`, `/api/v1/invitations` and `/api/v1/roles`: who works here, and what they may do.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use palyra_access::{DeviceState, MemberRecord, Membership, NewInvitation as Wanted, State as Registered, role};
use palyra_api::{
    ErrorBody,
    device::Revoked,
    member::{ChangeMember, Invitation, Member, Members, NewInvitation, RolePermissions, Roles},
};
use palyra_journal::RecordKind;
use palyra_types::{Action, ObjectId, ObjectKind, PrincipalId, Timestamp, WorkspaceName, WorkspaceRole};

use crate::{
    app::App,
    caller::Caller,
    extract::{Named, Said},
    failure::Failure,
    governing,
    oversight::{count, thing, workspaces as workspaces_known},
    reply,
    reply::Reply,
};

/// The members, and who is invited.
#[utoipa::path(get, path = "/api/v1/members", tag = "members", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Members), (status = "4XX", body = ErrorBody)))]
pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Reply<Members> {
    Reply(told(&app))
}

/// Gives a member another role or other workspaces.
#[utoipa::path(put, path = "/api/v1/members/{user}", tag = "members", security(("bearer" = []), ("certificate" = [])),
    params(("user" = palyra_api::schema::Name, Path)), request_body = ChangeMember,
    responses((status = 200, body = Members), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(user): Named<PrincipalId>,
    Said { said: change, .. }: Said<ChangeMember>,
) -> Result<Reply<Members>, Failure> {
    let workspaces = match (change.workspaces, change.all_workspaces) {
        (Some(_), true) => return Err(Failure::bad_request("name some workspaces, or all of them, not both")),
        (Some(names), false) => Some(Membership::Only(workspaces_known(&app, names)?)),
        (None, true) => Some(Membership::All),
        (None, false) => None,
    };
    if change.role.is_none() && workspaces.is_none() {
        return Err(Failure::bad_request("say which role or which workspaces they are to have"));
    }
    may_manage(&app, &caller, &user, change.role)?;
    let member = app.access.snapshot().state().member(&user).cloned();
    if let Some(to) = change.role {
        let (actor, user, doer) = (caller.actor(), user.clone(), caller.doer());
        let lowers = member.as_ref().is_some_and(|member| role::is_within(to, member.role));
        let change = move |state: &mut Registered, _| state.set_role(&actor, &user, to);
        // Whoever is to have less has it at once, whether that can be put on record or not.
        match lowers {
            true => drop(governing::take_away(&app, RecordKind::MemberChanged, &doer, change).await?),
            false => drop(governing::grant(&app, RecordKind::MemberChanged, &doer, change).await?),
        }
    }
    if let Some(to) = workspaces {
        let (actor, doer) = (caller.actor(), caller.doer());
        let narrows = member.as_ref().is_some_and(|member| to.is_within(&member.workspaces));
        let change = move |state: &mut Registered, _| state.set_workspaces(&actor, &user, to);
        match narrows {
            true => drop(governing::take_away(&app, RecordKind::MemberChanged, &doer, change).await?),
            false => drop(governing::grant(&app, RecordKind::MemberChanged, &doer, change).await?),
        }
    }
    Ok(Reply(told(&app)))
}

/// Removes a member, with all their devices and tokens, at once.
#[utoipa::path(delete, path = "/api/v1/members/{user}", tag = "members",
    security(("bearer" = []), ("certificate" = [])), params(("user" = palyra_api::schema::Name, Path)),
    responses((status = 200, body = Revoked), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(user): Named<PrincipalId>,
) -> Result<Reply<Revoked>, Failure> {
    may_manage(&app, &caller, &user, None)?;
    let actor = caller.actor();
    let doer = caller.doer();
    let taken = governing::take_away(&app, RecordKind::MemberRemoved, &doer, move |state, at| {
        state.remove_member(&actor, &user, at)
    });
    let (removed, calls) = taken.await?;
    Ok(Reply(Revoked { devices: removed.devices, tokens: removed.tokens, calls: count(calls) }))
}

/// Invites somebody. They are a member once a device was paired for them.
#[utoipa::path(post, path = "/api/v1/invitations", tag = "members", security(("bearer" = []), ("certificate" = [])),
    request_body = NewInvitation,
    responses((status = 201, body = Invitation), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn invite(
    State(app): State<Arc<App>>,
    caller: Caller,
    Said { said: new, .. }: Said<NewInvitation>,
) -> Result<Response, Failure> {
    may_manage(&app, &caller, &new.user, Some(new.role))?;
    let id = app.access.fresh_invitation_id().map_err(|error| Failure::internal(error.to_string()))?;
    let wanted = Wanted {
        id: id.clone(),
        user: new.user,
        role: new.role,
        workspaces: match new.workspaces {
            None => Membership::All,
            Some(names) => Membership::Only(workspaces_known(&app, names)?),
        },
        lifetime: new.lifetime_seconds.map_or(INVITED_FOR, Duration::from_secs),
    };
    let actor = caller.actor();
    governing::grant(&app, RecordKind::MemberInvited, &caller.doer(), move |state, at| {
        state.invite(&actor, wanted, at)
    })
    .await?;
    let invited = told(&app).invitations.into_iter().find(|invitation| invitation.id == id.as_str());
    let invited = invited.ok_or_else(|| Failure::internal("the invitation is gone already"))?;
    Ok(reply::json(StatusCode::CREATED, &invited))
}

/// Takes an invitation back.
#[utoipa::path(delete, path = "/api/v1/invitations/{id}", tag = "members",
    security(("bearer" = []), ("certificate" = [])), params(("id" = palyra_api::schema::Name, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn uninvite(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<ObjectId>,
) -> Result<StatusCode, Failure> {
    let snapshot = app.access.snapshot();
    if let Some(invitation) = snapshot.state().invitation(&id) {
        may_manage(&app, &caller, &invitation.user, Some(invitation.role))?;
    }
    let actor = caller.actor();
    governing::take_away(&app, RecordKind::MemberUninvited, &caller.doer(), move |state, _| {
        state.withdraw_invitation(&actor, &id)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What each role may do, unless a policy says otherwise.
#[utoipa::path(get, path = "/api/v1/roles", tag = "members", security(("bearer" = []), ("certificate" = [])),
    responses((status = 200, body = Roles), (status = "4XX", body = ErrorBody)))]
pub(super) async fn roles(_: Caller) -> Reply<Roles> {
    let told = |&role: &WorkspaceRole| RolePermissions {
        role,
        about: role::about(role).to_owned(),
        permissions: role::permissions(role).iter().map(ToString::to_string).collect(),
    };
    Reply(Roles { roles: WorkspaceRole::ALL.iter().map(told).collect() })
}

/// Asks policy about managing somebody: about the highest of the role they have and the one they would have.
fn may_manage(app: &App, caller: &Caller, user: &PrincipalId, to: Option<WorkspaceRole>) -> Result<(), Failure> {
    let snapshot = app.access.snapshot();
    let has = snapshot.state().member(user).map(|member| member.role);
    let highest = role::highest(has.into_iter().chain(to));
    caller.may_about_role(app, (Action::MemberManage, thing(ObjectKind::Member, user.as_str())?), highest)
}

fn told(app: &App) -> Members {
    let snapshot = app.access.snapshot();
    let (state, now) = (snapshot.state(), app.clock.now());
    let members = state.members().map(|record| member(state, record, now)).collect();
    let invitations = state.invitations().map(|invitation| Invitation {
        id: invitation.id.to_string(),
        user: invitation.user.clone(),
        role: invitation.role,
        workspaces: names(&invitation.workspaces),
        by: invitation.by.clone(),
        until: invitation.until,
    });
    Members { members, invitations: invitations.collect() }
}

fn member(state: &Registered, record: &MemberRecord, now: Timestamp) -> Member {
    let of_them = |principal: &palyra_types::Principal| {
        principal.kind() == palyra_types::PrincipalKind::User && *principal.id() == record.user
    };
    let devices = state.devices().filter(|device| device.state == DeviceState::Active && of_them(&device.principal));
    let tokens = state.tokens().filter(|token| of_them(&token.minted_by) && token.over_at() > now);
    Member {
        user: record.user.clone(),
        role: record.role,
        workspaces: names(&record.workspaces),
        joined: record.joined,
        by: record.by.clone(),
        devices: count(devices.count()),
        tokens: count(tokens.count()),
    }
}

fn names(workspaces: &Membership) -> Option<Vec<WorkspaceName>> {
    match workspaces {
        Membership::All => None,
        Membership::Only(names) => Some(names.iter().cloned().collect()),
    }
}

/// How long an invitation holds, unless something else is said.
const INVITED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
