//! Changes who is let in, and puts it on record.
//!
//! Guarantees: nothing is granted that is not on record first, and a grant that could not be kept is on record as such; what is taken away is
//! taken away at once, whether it can be put on record or not. Whatever a change has cost its credential, by whichever rule, is withdrawn or
//! stopped with it. Whoever asked may hang up meanwhile; what was begun is brought to its end.

use std::{sync::Arc, time::Duration};

use palyra_access::{Ended, Passage, Pending, Refusal, State, StoreError};
use palyra_journal::RecordKind;
use palyra_types::{DeviceId, Principal, Timestamp, TokenId};
use serde::Serialize;

use crate::{app::App, caller::Shown, failure::Failure};

/// Whoever changes who is let in, and by which credential.
#[derive(Debug, Clone)]
pub struct Doer {
    /// Who.
    pub principal: Principal,
    /// By which credential.
    pub shown: Shown,
}

impl Doer {
    /// Whether what they hold still counts. Asked by whoever has the turn to change the registry, so that nothing changes in between.
    pub(crate) fn check(&self, app: &App) -> Result<(), Failure> {
        if self.shown.counts(app) {
            return Ok(());
        }
        Err(Failure::new("revoked", "the credential was revoked meanwhile", "nothing was changed"))
    }
}

/// Something about who is let in, as it is on record.
#[derive(Serialize)]
struct Told<'a, T> {
    by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_device: Option<DeviceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_token: Option<TokenId>,
    #[serde(flatten)]
    what: &'a T,
}

impl<'a, T> Told<'a, T> {
    fn new(by: &Doer, what: &'a T) -> Self {
        let (by_device, by_token) = (by.shown.device().cloned(), by.shown.token().cloned());
        Self { by: by.principal.to_string(), by_device, by_token, what }
    }
}

/// Grants something: on record first, then in force.
///
/// # Errors
/// When a rule refuses it, or it can be neither recorded nor kept.
pub async fn grant<T>(
    app: &Arc<App>,
    kind: RecordKind,
    by: &Doer,
    change: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Failure>
where
    T: Serialize + Clone + Send + Sync + 'static,
{
    let (app, by) = (Arc::clone(app), by.clone());
    finish(tokio::spawn(async move {
        let pending = changing(&app, &by, change).await?;
        app.gate.record_access(kind, &Told::new(&by, pending.outcome())).await?;
        match commit(&app, &by, pending).await {
            Ok((done, _)) => {
                tracing::info!(kind = kind.as_str(), by = %by.principal, "who is let in has changed");
                Ok(done)
            }
            Err(error) => {
                let told =
                    serde_json::json!({ "by": by.principal.to_string(), "kind": kind, "why": error.to_string() });
                if let Err(unrecorded) = app.gate.record_access(RecordKind::AccessUnkept, &told).await {
                    tracing::error!(%unrecorded, "a grant that was not kept could not be recorded as such");
                }
                Err(unkept(&error))
            }
        }
    }))
    .await
}

/// Takes something away: in force first, then on record. Returns how many calls were withdrawn or stopped with it.
///
/// # Errors
/// When a rule refuses it or it cannot be kept. When it cannot be recorded, it is in force all the same.
pub async fn take_away<T>(
    app: &Arc<App>,
    kind: RecordKind,
    by: &Doer,
    change: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal> + Send + 'static,
) -> Result<(T, usize), Failure>
where
    T: Serialize + Clone + Send + Sync + 'static,
{
    let (app, by) = (Arc::clone(app), by.clone());
    finish(tokio::spawn(async move {
        let pending = changing(&app, &by, change).await?;
        let (done, calls) = commit(&app, &by, pending).await.map_err(|error| unkept(&error))?;
        tracing::info!(kind = kind.as_str(), by = %by.principal, calls, "a credential does not count any more");
        let told = Told::new(&by, &done);
        if let Err(error) = app.gate.record_access(kind, &told).await {
            tracing::error!(%error, "what was taken away could not be recorded");
            return Err(error.into());
        }
        Ok((done, calls))
    }))
    .await
}

/// Puts a change in force, and ends what was begun with credentials that do not count any more by it. Says how many calls that were.
async fn commit<T>(app: &Arc<App>, by: &Doer, pending: Pending<T>) -> Result<(T, usize), StoreError> {
    let (done, Passage { before, after }) = pending.commit_and_compare().await?;
    let calls = withdraw(app, &by.principal, after.ended_since(&before, app.clock.now()));
    if after.differs_since(&before) {
        look_again(app).await;
    }
    Ok((done, calls))
}

/// Has everything that waits judged anew, and ends the standing approvals of those who do not count any more.
pub(crate) async fn look_again(app: &App) {
    if let Err(error) = app.gate.look_again().await {
        tracing::error!(%error, "the end of a standing approval could not be recorded; it covers nothing any more");
    }
}

/// Withdraws or stops every call, and ends the pairing, that was begun with credentials that do not count any more. Says how many calls that
/// were.
pub(crate) fn withdraw(app: &Arc<App>, by: &Principal, ended: Ended) -> usize {
    if ended.is_empty() {
        return 0;
    }
    app.pairings.end_those_of(&ended);
    let calls = app.gate.cancel_all_of(&ended.devices, &ended.tokens, by);
    // Whoever was let in a moment before, and proposes a moment after, is met the second time.
    let (later, who) = (Arc::clone(app), by.clone());
    tokio::spawn(async move {
        tokio::time::sleep(ONCE_MORE).await;
        later.gate.cancel_all_of(&ended.devices, &ended.tokens, &who);
    });
    calls
}

/// Prepares a change for somebody who is still let in when it is their turn.
async fn changing<T>(
    app: &App,
    by: &Doer,
    change: impl FnOnce(&mut State, Timestamp) -> Result<T, Refusal>,
) -> Result<Pending<T>, Failure> {
    app.access
        .prepare(|state, at| {
            by.check(app)?;
            change(state, at).map_err(Failure::from)
        })
        .await
}

/// Waits for work that goes on even if nobody does.
pub(crate) async fn finish<T>(work: tokio::task::JoinHandle<Result<T, Failure>>) -> Result<T, Failure> {
    work.await.map_err(|error| Failure::internal(error.to_string()))?
}

fn unkept(error: &StoreError) -> Failure {
    Failure::new("unkept", error.to_string(), error.advice())
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(code(&refusal), refusal.to_string(), refusal.advice())
    }
}

/// The word for a refusal of the registry.
const fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Agent => "not_for_agents",
        Refusal::NoRole | Refusal::Above { .. } | Refusal::ScopeAbove { .. } | Refusal::OutsideWorkspaces => {
            "above_own_role"
        }
        Refusal::Scope(_) => "missing_scope",
        Refusal::FeatureOff(_) => "feature_off",
        Refusal::LastOwner(_) => "last_owner",
        Refusal::LastDevice(_) => "last_device",
        Refusal::NoMember(_) => "unknown_member",
        Refusal::NoInvitation(_) => "unknown_invitation",
        Refusal::NoDevice(_) => "no_such_device",
        Refusal::NoToken(_) => "unknown_token",
        Refusal::Full { .. } => "too_many_records",
        Refusal::AlreadyMember(_)
        | Refusal::AlreadyInvited(_)
        | Refusal::InvitationKnown(_)
        | Refusal::InvitationOver(_)
        | Refusal::DeviceKnown(_)
        | Refusal::KeyKnown(_)
        | Refusal::NotAwaiting(_)
        | Refusal::NotActive(_)
        | Refusal::DeviceRevoked(_)
        | Refusal::TokenKnown(_)
        | Refusal::NotLive(_)
        | Refusal::AlreadyRotated(_)
        | Refusal::TokenRevoked(_)
        | Refusal::FeatureNeeds { .. } => "not_as_it_stands",
        Refusal::Label(_)
        | Refusal::InvitationLifetime(_)
        | Refusal::OwnerEverywhere
        | Refusal::NoDeviceRole
        | Refusal::InPerson
        | Refusal::RoleInPerson
        | Refusal::Outlasts { .. }
        | Refusal::Outruns { .. }
        | Refusal::TokenUnknown
        | Refusal::RoleOfNoUser(_)
        | Refusal::NotYourself(_)
        | Refusal::NoScopes
        | Refusal::ScopeUnsuited { .. }
        | Refusal::Lifetime(_)
        | Refusal::Surface(_)
        | Refusal::OtherChannel(_)
        | Refusal::Overlap(_)
        | Refusal::PerMinute(_)
        | Refusal::Concurrent(_) => "not_allowed_so",
    }
}

/// How long after a credential was revoked it is looked once more whether something was begun with it.
const ONCE_MORE: Duration = Duration::from_millis(300);
