//! What can be asked of a daemon: one method for each route of `docs/api.md`.

use std::{io::Write, time::Duration};

use hyper::{Method, StatusCode};
use palyra_api::{
    Health,
    approval::{Answers, Approval, ApprovalQuery, Approvals, Approve, Deny, Grants, Unlock},
    authorize::{
        Asking, Authorization, AuthorizationExplanation, AuthorizationQuery, Authorizations, Authorize, HookQuery,
    },
    call::{Call, CallQuery, Calls, Cancelled, NewCall},
    console::ConsoleLink,
    device::{
        Authority, ConfirmPairing, Devices, NewPairing, OpenPairing, Pairing, Renewal, Renewed, RevokeDevice, Revoked,
        RotateAuthority,
    },
    event::EventQuery,
    health::{Identity, Readiness},
    journal::{ExportQuery, Head, Proof, Record, RecordQuery, Records, Verification},
    member::{ChangeMember, Flags, Invitation, Members, NewInvitation, Roles, SetFlag},
    policy::{CallExplanation, PolicySet, Replay, ReplayReport},
    run::{NewRun, Run},
    session::{Forgotten, SessionQuery, SessionRuns, SessionRunsQuery, Sessions, Transcript, TranscriptQuery},
    token::{MintedToken, NewToken, RevokeToken, RotateToken, Scopes, Tokens},
    tool::{PosturePlace, PostureSetting, Postures, Tools, Workspaces},
};
use palyra_types::{
    DeviceId, IdempotencyKey, PrincipalId, TokenId,
    id::{ApprovalId, CallId, RunId, SessionId},
};
use serde_json::Value;

use crate::{
    client::{Ask, Client, Wait, read, refusal},
    error::ClientError,
    query::{segment, with_query},
    stream::EventStream,
};

/// How long a stream may be silent. The daemon says something every 15 seconds, so a connection is dead by then.
const SILENCE: Duration = Duration::from_secs(50);

/// A call that was proposed to be followed.
#[derive(Debug)]
pub enum Proposed {
    /// A new call, and its events.
    New(EventStream),
    /// What came of the call that was proposed with the same key before.
    Known(Box<Call>),
}

/// # Errors
/// Every method fails when the daemon cannot be asked, refuses, or answers something else than the wire types say.
impl Client {
    /// Whether the daemon is there, and which one it is.
    ///
    /// # Errors
    /// See above.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.ask(Ask::get("/healthz")).await
    }

    /// Whether the daemon can do its work.
    ///
    /// # Errors
    /// See above. A daemon that is not ready is an answer, not an error.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        let (status, body) = self.exchange(Ask::get("/readyz")).await?;
        match read(&body) {
            Ok(readiness) if status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE => Ok(readiness),
            Err(error) if status.is_success() => Err(error),
            _ => Err(refusal(status, &body)),
        }
    }

    /// Figures for Prometheus, as text.
    ///
    /// # Errors
    /// See above.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let (status, body) = self.exchange(Ask::get("/metrics").accept("text/plain")).await?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        String::from_utf8(body.into()).map_err(|error| ClientError::Protocol(error.to_string()))
    }

    /// Who the daemon takes this client for.
    ///
    /// # Errors
    /// See above.
    pub async fn identity(&self) -> Result<Identity, ClientError> {
        self.ask(Ask::get("/api/v1/identity")).await
    }

    /// Proposes a call and waits for what comes of it; or has it accepted, if the call says so, and does not wait.
    ///
    /// # Errors
    /// See above. A call that was refused is an error, too.
    pub async fn propose(&self, call: &NewCall, key: Option<&IdempotencyKey>) -> Result<Call, ClientError> {
        let wait = if call.wait { Wait::Long } else { Wait::Short };
        self.ask(Ask::post("/api/v1/calls").json(call)?.key(key).wait(wait)).await
    }

    /// Proposes a call and follows it. The last event is `call.over`. A call that its key shows to be known is not followed again.
    ///
    /// # Errors
    /// See above. A call that is refused once it is under way says so by its last event.
    pub async fn propose_stream(&self, call: &NewCall, key: Option<&IdempotencyKey>) -> Result<Proposed, ClientError> {
        let ask = Ask::post("/api/v1/calls").json(call)?.key(key).accept("text/event-stream").wait(Wait::Long);
        Ok(match self.listen_or_read(ask).await? {
            Ok(events) => Proposed::New(events),
            Err(call) => Proposed::Known(Box::new(call)),
        })
    }

    /// Asks whether this client may do something itself. With `wait`, it waits for a person where policy asks.
    ///
    /// # Errors
    /// See above. That it may not is an answer, not an error.
    pub async fn authorize(&self, wanted: &Authorize) -> Result<Authorization, ClientError> {
        let wait = if wanted.on_ask == Some(Asking::Wait) { Wait::Long } else { Wait::Short };
        self.ask(Ask::post("/api/v1/authorize").json(wanted)?.wait(wait)).await
    }

    /// What other programs were told lately, newest first.
    ///
    /// # Errors
    /// See above.
    pub async fn authorizations(&self, query: &AuthorizationQuery) -> Result<Authorizations, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/authorizations", query)).wait(Wait::Long)).await
    }

    /// Why another program was told what is on record under this number.
    ///
    /// # Errors
    /// See above.
    pub async fn authorization(&self, seq: u64) -> Result<AuthorizationExplanation, ClientError> {
        self.ask(Ask::get(format!("/api/v1/authorizations/{seq}/explanation")).wait(Wait::Long)).await
    }

    /// Hands on what Claude Code handed a hook, as it came, and reads the answer as it is.
    ///
    /// # Errors
    /// See above. That something is denied is an answer, not an error.
    pub async fn claude_code_hook(&self, said: Vec<u8>, query: &HookQuery) -> Result<Value, ClientError> {
        let path = with_query("/hooks/claude-code", query);
        self.ask(Ask::post(path).bytes(said.into()).wait(Wait::Long)).await
    }

    /// Calls that are under way, or were refused last.
    ///
    /// # Errors
    /// See above.
    pub async fn calls(&self, query: &CallQuery) -> Result<Calls, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/calls", query))).await
    }

    /// One call.
    ///
    /// # Errors
    /// See above.
    pub async fn call(&self, id: CallId) -> Result<Call, ClientError> {
        self.ask(Ask::get(format!("/api/v1/calls/{id}"))).await
    }

    /// Withdraws or stops a call.
    ///
    /// # Errors
    /// See above.
    pub async fn cancel(&self, id: CallId) -> Result<Cancelled, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/calls/{id}"))).await
    }

    /// Why a call was decided as it was.
    ///
    /// # Errors
    /// See above.
    pub async fn explanation(&self, id: CallId) -> Result<CallExplanation, ClientError> {
        self.ask(Ask::get(format!("/api/v1/calls/{id}/explanation")).wait(Wait::Long)).await
    }

    /// Opens a run.
    ///
    /// # Errors
    /// See above.
    pub async fn open_run(&self, run: &NewRun) -> Result<Run, ClientError> {
        self.ask(Ask::post("/api/v1/runs").json(run)?).await
    }

    /// A run, and what it has used.
    ///
    /// # Errors
    /// See above.
    pub async fn run(&self, id: RunId) -> Result<Run, ClientError> {
        self.ask(Ask::get(format!("/api/v1/runs/{id}"))).await
    }

    /// The events of a run and the live output of its calls, from behind a record or from now on.
    ///
    /// # Errors
    /// See above.
    pub async fn run_stream(&self, id: RunId, after: Option<u64>) -> Result<EventStream, ClientError> {
        let path = with_query(&format!("/api/v1/runs/{id}/stream"), &EventQuery { after });
        self.listen(Ask::get(path).accept("text/event-stream"), SILENCE).await
    }

    /// What was said in a run.
    ///
    /// # Errors
    /// See above.
    pub async fn transcript(&self, run: RunId, query: &TranscriptQuery) -> Result<Transcript, ClientError> {
        self.ask(Ask::get(with_query(&format!("/api/v1/runs/{run}/transcript"), query))).await
    }

    /// The sessions in which something was said, newest first.
    ///
    /// # Errors
    /// See above.
    pub async fn sessions(&self, query: &SessionQuery) -> Result<Sessions, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/sessions", query))).await
    }

    /// A session and its runs.
    ///
    /// # Errors
    /// See above.
    pub async fn session(&self, id: SessionId, query: &SessionRunsQuery) -> Result<SessionRuns, ClientError> {
        self.ask(Ask::get(with_query(&format!("/api/v1/sessions/{id}"), query))).await
    }

    /// Forgets what was said in a session.
    ///
    /// # Errors
    /// See above.
    pub async fn forget_session(&self, id: SessionId) -> Result<Forgotten, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/sessions/{id}/transcript"))).await
    }

    /// Everything that is journalled, from behind a record or from now on.
    ///
    /// # Errors
    /// See above.
    pub async fn events(&self, after: Option<u64>) -> Result<EventStream, ClientError> {
        let path = with_query("/api/v1/events", &EventQuery { after });
        self.listen(Ask::get(path).accept("text/event-stream"), SILENCE).await
    }

    /// Questions that nobody has answered yet.
    ///
    /// # Errors
    /// See above.
    pub async fn approvals(&self, query: &ApprovalQuery) -> Result<Approvals, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/approvals", query))).await
    }

    /// One question.
    ///
    /// # Errors
    /// See above.
    pub async fn approval(&self, id: ApprovalId) -> Result<Approval, ClientError> {
        self.ask(Ask::get(format!("/api/v1/approvals/{id}"))).await
    }

    /// Says yes to a question.
    ///
    /// # Errors
    /// See above.
    pub async fn approve(&self, id: ApprovalId, answer: &Approve) -> Result<Answers, ClientError> {
        self.ask(Ask::post(format!("/api/v1/approvals/{id}/approve")).json(answer)?).await
    }

    /// Says no to a question.
    ///
    /// # Errors
    /// See above.
    pub async fn deny(&self, id: ApprovalId, answer: &Deny) -> Result<Answers, ClientError> {
        self.ask(Ask::post(format!("/api/v1/approvals/{id}/deny")).json(answer)?).await
    }

    /// Shows by a PIN that a person is there.
    ///
    /// # Errors
    /// See above.
    pub async fn unlock(&self, pin: &Unlock) -> Result<(), ClientError> {
        self.tell(Ask::post("/api/v1/approvals/unlock").json(pin)?).await
    }

    /// The standing approvals.
    ///
    /// # Errors
    /// See above.
    pub async fn grants(&self) -> Result<Grants, ClientError> {
        self.ask(Ask::get("/api/v1/grants")).await
    }

    /// Ends a standing approval.
    ///
    /// # Errors
    /// See above.
    pub async fn end_grant(&self, id: ApprovalId) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, format!("/api/v1/grants/{id}"))).await
    }

    /// The tools there are.
    ///
    /// # Errors
    /// See above.
    pub async fn tools(&self) -> Result<Tools, ClientError> {
        self.ask(Ask::get("/api/v1/tools")).await
    }

    /// The workspaces that are configured.
    ///
    /// # Errors
    /// See above.
    pub async fn workspaces(&self) -> Result<Workspaces, ClientError> {
        self.ask(Ask::get("/api/v1/workspaces")).await
    }

    /// The postures that are set.
    ///
    /// # Errors
    /// See above.
    pub async fn postures(&self) -> Result<Postures, ClientError> {
        self.ask(Ask::get("/api/v1/postures")).await
    }

    /// Sets how freely a tool may be used in a layer.
    ///
    /// # Errors
    /// See above.
    pub async fn set_posture(&self, setting: &PostureSetting) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::PUT, "/api/v1/postures").json(setting)?).await
    }

    /// Takes a posture away, so that the next layer counts again.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_posture(&self, place: &PosturePlace) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, with_query("/api/v1/postures", place))).await
    }

    /// The policies that are in force.
    ///
    /// # Errors
    /// See above.
    pub async fn policy(&self) -> Result<PolicySet, ClientError> {
        self.ask(Ask::get("/api/v1/policy")).await
    }

    /// Has the policy files read again.
    ///
    /// # Errors
    /// See above.
    pub async fn reload(&self) -> Result<PolicySet, ClientError> {
        self.ask(Ask::post("/api/v1/policy/reload").wait(Wait::Long)).await
    }

    /// Tries a candidate on recorded decisions.
    ///
    /// # Errors
    /// See above.
    pub async fn replay(&self, candidate: &Replay) -> Result<ReplayReport, ClientError> {
        self.ask(Ask::post("/api/v1/policy/replay").json(candidate)?.wait(Wait::Long)).await
    }

    /// The signed head of the journal.
    ///
    /// # Errors
    /// See above.
    pub async fn head(&self) -> Result<Head, ClientError> {
        self.ask(Ask::get("/api/v1/journal/head")).await
    }

    /// Some records.
    ///
    /// # Errors
    /// See above.
    pub async fn records(&self, query: &RecordQuery) -> Result<Records, ClientError> {
        self.ask(Ask::get(with_query("/api/v1/journal/records", query))).await
    }

    /// One record.
    ///
    /// # Errors
    /// See above.
    pub async fn record(&self, seq: u64) -> Result<Record, ClientError> {
        self.ask(Ask::get(format!("/api/v1/journal/records/{seq}"))).await
    }

    /// The proof that a record is in the journal.
    ///
    /// # Errors
    /// See above.
    pub async fn proof(&self, seq: u64) -> Result<Proof, ClientError> {
        self.ask(Ask::get(format!("/api/v1/journal/proofs/{seq}")).wait(Wait::Long)).await
    }

    /// Has the daemon verify all of its journal.
    ///
    /// # Errors
    /// See above. A journal that is not what was written is an answer, not an error.
    pub async fn verify(&self) -> Result<Verification, ClientError> {
        self.ask(Ask::post("/api/v1/journal/verify").wait(Wait::Long)).await
    }

    /// Writes a bundle that anybody can verify, as it comes. Returns how many bytes it has. Writing blocks the thread.
    ///
    /// # Errors
    /// See above, and when it cannot be written.
    pub async fn export(&self, query: &ExportQuery, to: &mut dyn Write) -> Result<u64, ClientError> {
        let path = with_query("/api/v1/journal/export", query);
        self.copy(Ask::get(path).accept("application/jsonl, application/x-ndjson, application/json"), to).await
    }

    /// A link that opens the console once.
    ///
    /// # Errors
    /// See above.
    pub async fn console_link(&self) -> Result<ConsoleLink, ClientError> {
        self.ask(Ask::post("/api/v1/console/links")).await
    }

    /// The paired devices.
    ///
    /// # Errors
    /// See above.
    pub async fn devices(&self) -> Result<Devices, ClientError> {
        self.ask(Ask::get("/api/v1/devices")).await
    }

    /// Revokes a device, at once.
    ///
    /// # Errors
    /// See above.
    pub async fn revoke_device(&self, id: &DeviceId, how: &RevokeDevice) -> Result<Revoked, ClientError> {
        self.ask(Ask::new(Method::DELETE, with_query(&format!("/api/v1/devices/{}", segment(id.as_str())), how))).await
    }

    /// Opens a pairing.
    ///
    /// # Errors
    /// See above.
    pub async fn open_pairing(&self, new: &NewPairing) -> Result<OpenPairing, ClientError> {
        self.ask(Ask::post("/api/v1/devices/pairings").json(new)?).await
    }

    /// How a pairing stands.
    ///
    /// # Errors
    /// See above.
    pub async fn pairing(&self, id: &str) -> Result<Pairing, ClientError> {
        self.ask(Ask::get(format!("/api/v1/devices/pairings/{}", segment(id)))).await
    }

    /// Says that the device that knew the code is the one that was meant.
    ///
    /// # Errors
    /// See above.
    pub async fn confirm_pairing(&self, id: &str, confirm: &ConfirmPairing) -> Result<Pairing, ClientError> {
        self.ask(Ask::post(format!("/api/v1/devices/pairings/{}/confirm", segment(id))).json(confirm)?.wait(Wait::Long))
            .await
    }

    /// Ends a pairing, or says no to the device that knew the code.
    ///
    /// # Errors
    /// See above.
    pub async fn end_pairing(&self, id: &str) -> Result<Pairing, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/devices/pairings/{}", segment(id)))).await
    }

    /// Has the certificate of this device renewed.
    ///
    /// # Errors
    /// See above.
    pub async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ClientError> {
        self.ask(Ask::post("/api/v1/devices/certificate").json(renewal)?).await
    }

    /// The authority that certifies devices.
    ///
    /// # Errors
    /// See above.
    pub async fn authority(&self) -> Result<Authority, ClientError> {
        self.ask(Ask::get("/api/v1/authority")).await
    }

    /// Takes a step of the rotation of the authority.
    ///
    /// # Errors
    /// See above.
    pub async fn rotate_authority(&self, step: &RotateAuthority) -> Result<Authority, ClientError> {
        self.ask(Ask::post("/api/v1/authority/rotation").json(step)?).await
    }

    /// The API tokens.
    ///
    /// # Errors
    /// See above.
    pub async fn tokens(&self) -> Result<Tokens, ClientError> {
        self.ask(Ask::get("/api/v1/tokens")).await
    }

    /// What tokens can be used for.
    ///
    /// # Errors
    /// See above.
    pub async fn scopes(&self) -> Result<Scopes, ClientError> {
        self.ask(Ask::get("/api/v1/scopes")).await
    }

    /// Mints a token.
    ///
    /// # Errors
    /// See above.
    pub async fn mint_token(&self, new: &NewToken) -> Result<MintedToken, ClientError> {
        self.ask(Ask::post("/api/v1/tokens").json(new)?).await
    }

    /// Has a token followed by a new one.
    ///
    /// # Errors
    /// See above.
    pub async fn rotate_token(&self, id: &TokenId, how: &RotateToken) -> Result<MintedToken, ClientError> {
        self.ask(Ask::post(format!("/api/v1/tokens/{}/rotate", segment(id.as_str()))).json(how)?).await
    }

    /// Revokes a token, at once.
    ///
    /// # Errors
    /// See above.
    pub async fn revoke_token(&self, id: &TokenId, how: &RevokeToken) -> Result<Revoked, ClientError> {
        self.ask(Ask::new(Method::DELETE, with_query(&format!("/api/v1/tokens/{}", segment(id.as_str())), how))).await
    }

    /// The members, and who is invited.
    ///
    /// # Errors
    /// See above.
    pub async fn members(&self) -> Result<Members, ClientError> {
        self.ask(Ask::get("/api/v1/members")).await
    }

    /// Gives a member another role or other workspaces.
    ///
    /// # Errors
    /// See above.
    pub async fn change_member(&self, user: &PrincipalId, change: &ChangeMember) -> Result<Members, ClientError> {
        self.ask(Ask::new(Method::PUT, format!("/api/v1/members/{}", segment(user.as_str()))).json(change)?).await
    }

    /// Removes a member, with all their devices and tokens.
    ///
    /// # Errors
    /// See above.
    pub async fn remove_member(&self, user: &PrincipalId) -> Result<Revoked, ClientError> {
        self.ask(Ask::new(Method::DELETE, format!("/api/v1/members/{}", segment(user.as_str())))).await
    }

    /// Invites somebody.
    ///
    /// # Errors
    /// See above.
    pub async fn invite(&self, new: &NewInvitation) -> Result<Invitation, ClientError> {
        self.ask(Ask::post("/api/v1/invitations").json(new)?).await
    }

    /// Takes an invitation back.
    ///
    /// # Errors
    /// See above.
    pub async fn withdraw_invitation(&self, id: &str) -> Result<(), ClientError> {
        self.tell(Ask::new(Method::DELETE, format!("/api/v1/invitations/{}", segment(id)))).await
    }

    /// What each role may do.
    ///
    /// # Errors
    /// See above.
    pub async fn roles(&self) -> Result<Roles, ClientError> {
        self.ask(Ask::get("/api/v1/roles")).await
    }

    /// The parts of the daemon that can be switched on and off.
    ///
    /// # Errors
    /// See above.
    pub async fn flags(&self) -> Result<Flags, ClientError> {
        self.ask(Ask::get("/api/v1/flags")).await
    }

    /// Switches a part of the daemon on or off.
    ///
    /// # Errors
    /// See above.
    pub async fn set_flag(&self, name: &str, set: &SetFlag) -> Result<Flags, ClientError> {
        self.ask(Ask::new(Method::PUT, format!("/api/v1/flags/{}", segment(name))).json(set)?).await
    }
}
