//! Why a request failed, in the one shape of errors, and with which status.
//!
//! A [`Failure`] travels as an extension of an empty response; [`edge`](crate::edge) writes the body, because it knows the request's id.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use palyra_api::ErrorDetail;
use palyra_gate::{
    AnswerError, Refusal,
    safekeeping::VaultRefusal,
    skills::{SkillRefusal, StoreError},
};
use palyra_journal::{ExportError, ProofError, ReadError};
use palyra_notebook::{ArtifactError, MemoryError};
use palyra_schedule::ScheduleError;
use palyra_types::id::CallId;
use palyra_vault::{OpenError, VaultError, backend::BackendError, backup::BackupError};

use crate::{authorise::seconds, scheduling::schedule::SchedulingError};

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub status: StatusCode,
    /// What is told.
    pub detail: ErrorDetail,
    /// When to come back, and how many requests a minute there may be.
    pub retry: Option<(Duration, u32)>,
    /// Whether asking again would do once more what was done already.
    pub repeats: bool,
}

impl Failure {
    /// A failure with these words. The code decides the status.
    pub fn new(code: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        let detail = ErrorDetail {
            code: code.to_owned(),
            message: message.into(),
            help: Some(help.into()),
            request_id: None,
            call: None,
            param: None,
        };
        Self { status: status_of(code), detail, retry: None, repeats: false }
    }

    /// The same, with when to come back and how many requests a minute there may be.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration, limit: u32) -> Self {
        self.retry = Some((after, limit));
        self
    }

    /// The same of a request that has done something already: where to look before it is asked again.
    #[must_use]
    pub fn having_done(mut self, done: &str) -> Self {
        self.detail.help = Some(match self.detail.help {
            Some(help) => format!("{help}; {done}"),
            None => done.to_owned(),
        });
        self.repeats = true;
        self
    }

    /// The same, about a call.
    #[must_use]
    pub fn about(mut self, call: CallId) -> Self {
        self.detail.call = Some(call);
        self
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new("bad_request", message, "`/openapi.json` describes every request")
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", message, "`/openapi.json` lists what there is")
    }

    /// Something went wrong inside the daemon.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new("internal", message, "look at the daemon's log, and report this")
    }

    /// A call that was refused. Those that are journalled can be looked at later.
    #[must_use]
    pub fn refused(refusal: &Refusal, call: CallId) -> Self {
        let journalled = !matches!(
            refusal,
            Refusal::TooManyCalls { .. }
                | Refusal::Repeated
                | Refusal::Stopping { goes_on: false }
                | Refusal::Journal(_)
                | Refusal::Unreadable(_)
                | Refusal::UnknownRun(_)
                | Refusal::ForeignRun(..)
                | Refusal::Internal(_)
        );
        let failure = match refusal {
            // Whether somebody else has such a run is not told.
            Refusal::ForeignRun(run, _) => Self::from(&Refusal::UnknownRun(*run)),
            refusal => Self::from(refusal),
        };
        if journalled { failure.about(call) } else { failure }
    }
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        Self::new(refusal.code(), refusal.to_string(), refusal.advice())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::from(&refusal)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        Self::new(error.code(), error.to_string(), error.advice())
    }
}

impl From<VaultRefusal> for Failure {
    fn from(refusal: VaultRefusal) -> Self {
        if let VaultRefusal::Gate(refusal) = refusal {
            return refusal.into();
        }
        Self::new(vault_code(&refusal), refusal.to_string(), refusal.advice())
    }
}

/// The word for a refusal of the vault.
const fn vault_code(refusal: &VaultRefusal) -> &'static str {
    match refusal {
        VaultRefusal::Closed(closed) if closed.is_locked => "vault_locked",
        VaultRefusal::Open(OpenError::Backend(BackendError::WrongPassphrase)) => "wrong_passphrase",
        VaultRefusal::Open(OpenError::Backend(BackendError::WeakPassphrase { .. })) => "weak_passphrase",
        VaultRefusal::Open(OpenError::Backend(BackendError::Locked)) => "vault_locked",
        VaultRefusal::Closed(_) | VaultRefusal::Open(_) => "vault_closed",
        VaultRefusal::Vault(error) | VaultRefusal::Backup(BackupError::Vault(error)) => secret_code(error),
        VaultRefusal::Backup(error) => match error {
            BackupError::Recipient(_) | BackupError::Nobody => "bad_recipient",
            _ => "bad_backup",
        },
        VaultRefusal::Gate(_) => "internal",
    }
}

const fn secret_code(error: &VaultError) -> &'static str {
    match error {
        VaultError::NoSecret(_) => "unknown_secret",
        VaultError::NoVersion { .. } => "unknown_version",
        VaultError::NoBinding(_) => "unknown_binding",
        VaultError::Bound(_) => "already_bound",
        VaultError::Expired { .. } => "secret_expired",
        VaultError::Past(_) | VaultError::LongNote { .. } | VaultError::Value(_) => "bad_secret",
        VaultError::Binding(_) => "bad_binding",
        VaultError::Full { .. } => "too_many_records",
        VaultError::Changed(_) | VaultError::Meddled => "vault_changed",
        VaultError::Busy => "vault_busy",
        VaultError::Backend(_) | VaultError::Io(_) | VaultError::NoEntropy => "vault_unwritable",
    }
}

impl From<SkillRefusal> for Failure {
    fn from(refusal: SkillRefusal) -> Self {
        if let SkillRefusal::Gate(refusal) = refusal {
            return refusal.into();
        }
        Self::new(skill_code(&refusal), refusal.to_string(), refusal.advice())
    }
}

/// The word for a refusal about skills.
const fn skill_code(refusal: &SkillRefusal) -> &'static str {
    match refusal {
        SkillRefusal::Closed(_) => "skills_closed",
        SkillRefusal::Unknown(_) => "unknown_skill",
        SkillRefusal::Package(_) => "bad_package",
        SkillRefusal::Compiling(_) => "not_compiled",
        SkillRefusal::NotDeveloping | SkillRefusal::NoFirstTrust => "not_configured",
        SkillRefusal::NoReplay(_) => "no_replay",
        SkillRefusal::Store(error) => store_code(error),
        SkillRefusal::Shelf(_) => "skills_unusable",
        SkillRefusal::Gate(_) => "internal",
    }
}

const fn store_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::NotInstalled(_) => "unknown_skill",
        StoreError::Unsigned(_) => "unsigned",
        StoreError::Signature(_) => "bad_signature",
        StoreError::UnknownPublisher { .. } => "unknown_publisher",
        StoreError::OtherKey { .. } | StoreError::Distrusted { .. } | StoreError::ReleaseOfDistrusted(_) => "untrusted",
        StoreError::NotTrusted { .. } => "unknown_key",
        StoreError::Rollback { .. } | StoreError::SameVersion { .. } => "version_rollback",
        StoreError::OtherDomain { .. } => "other_origin",
        StoreError::Grant(_) => "bad_grant",
        StoreError::Reason(_) => "bad_reason",
        StoreError::Quarantined(_) => "already_quarantined",
        StoreError::NotQuarantined(_) => "not_quarantined",
        StoreError::TooManySkills { .. } => "too_many_records",
        StoreError::Overtaken => "skills_changed",
        StoreError::PackageAltered { .. } | StoreError::OtherArchive => "package_altered",
        StoreError::Held(_)
        | StoreError::NotRegular(_)
        | StoreError::Foreign(_)
        | StoreError::OpenToOthers(_)
        | StoreError::TooLarge { .. }
        | StoreError::Io { .. }
        | StoreError::Unsure { .. }
        | StoreError::Registry { .. }
        | StoreError::RegistryGone(_)
        | StoreError::Unwritable(_) => "skills_unusable",
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        let code = match &error {
            MemoryError::Unknown(_) => "unknown_memory",
            MemoryError::Store(_) => "keeping_unusable",
            _ => "bad_request",
        };
        Self::new(code, error.to_string(), error.advice())
    }
}

impl From<ArtifactError> for Failure {
    fn from(error: ArtifactError) -> Self {
        let code = match &error {
            ArtifactError::Store(_) | ArtifactError::Changed(_) | ArtifactError::Missing(_) => "keeping_unusable",
            _ => "bad_request",
        };
        Self::new(code, error.to_string(), error.advice())
    }
}

impl From<SchedulingError> for Failure {
    fn from(error: SchedulingError) -> Self {
        let code = match &error {
            SchedulingError::Gate(refusal) => return refusal.into(),
            SchedulingError::Schedule(ScheduleError::Unknown(_)) | SchedulingError::Unnamed(_) => "unknown_schedule",
            SchedulingError::Stopped => "stopping",
            SchedulingError::Schedule(_) => "keeping_unusable",
            SchedulingError::Crashed(_) => "internal",
        };
        Self::new(code, error.to_string(), error.advice())
    }
}

impl From<ProofError> for Failure {
    fn from(error: ProofError) -> Self {
        Self::not_found(error.to_string())
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Empty { .. } => Self::not_found(error.to_string()),
            other => Self::new("journal_unreadable", other.to_string(), "run `palyra journal verify`"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let seconds = self.retry.map_or(1, |(after, _)| seconds(after));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some((_, limit)) = self.retry {
            response.headers_mut().insert("ratelimit-limit", HeaderValue::from(limit));
            response.headers_mut().insert("ratelimit-remaining", HeaderValue::from(0));
        }
        if self.repeats {
            response.extensions_mut().insert(Repeats);
        }
        response.extensions_mut().insert(self.detail);
        response
    }
}

/// On an answer: asking again would do once more what was done already.
#[derive(Debug, Clone, Copy)]
pub struct Repeats;

/// The status that goes with a code. The same for a refusal as it happens and as it is told again later.
#[must_use]
pub fn status_of(code: &str) -> StatusCode {
    match code {
        "bad_request" | "bad_json" | "bad_host" | "two_credentials" => StatusCode::BAD_REQUEST,
        "unauthenticated" | "expired" | "revoked" | "unknown_device" => StatusCode::UNAUTHORIZED,
        "denied_by_policy"
        | "denied_by_person"
        | "budget_exceeded"
        | "foreign_origin"
        | "agent_may_not_answer"
        | "own_call"
        | "pin_needed"
        | "no_pin"
        | "wrong_pin"
        | "pin_locked"
        | "not_for_agents"
        | "missing_scope"
        | "wrong_credential"
        | "feature_off"
        | "wrong_passphrase"
        | "above_own_role" => StatusCode::FORBIDDEN,
        "provider_unavailable" | "bad_answer" | "provider_refused" => StatusCode::BAD_GATEWAY,
        "provider_timed_out" => StatusCode::GATEWAY_TIMEOUT,
        "provider_limited" => StatusCode::TOO_MANY_REQUESTS,
        "model_not_found" | "unknown_mcp_server" => StatusCode::NOT_FOUND,
        "mcp_exists" | "mcp_in_config" | "mcp_changed" => StatusCode::CONFLICT,
        "bad_mcp_server" | "mcp_refused" => StatusCode::UNPROCESSABLE_ENTITY,
        "mcp_unusable" => StatusCode::SERVICE_UNAVAILABLE,
        "no_pairing" | "no_such_device" | "unknown_token" | "unknown_member" | "unknown_invitation" => {
            StatusCode::NOT_FOUND
        }
        "unknown_secret" | "unknown_version" | "unknown_binding" => StatusCode::NOT_FOUND,
        "unknown_skill" | "unknown_key" => StatusCode::NOT_FOUND,
        "not_found" | "unknown_tool" | "unknown_run" | "unknown_session" | "unknown_approval" | "unknown_response" => {
            StatusCode::NOT_FOUND
        }
        "unknown_memory" | "unknown_artifact" | "unknown_schedule" => StatusCode::NOT_FOUND,
        "method_not_allowed" => StatusCode::METHOD_NOT_ALLOWED,
        "too_slow" => StatusCode::REQUEST_TIMEOUT,
        "cancelled" | "approval_mismatch" | "too_late" | "not_shown" | "repeated_call" | "no_posture" | "key_taken" => {
            StatusCode::CONFLICT
        }
        "last_owner" | "last_device" | "pairing_open" | "not_as_it_stands" | "behind" | "too_many_records" => {
            StatusCode::CONFLICT
        }
        "vault_locked" | "vault_closed" | "vault_open" | "vault_changed" | "already_bound" | "secret_expired" => {
            StatusCode::CONFLICT
        }
        "skills_closed"
        | "skills_changed"
        | "version_rollback"
        | "other_origin"
        | "already_quarantined"
        | "not_quarantined"
        | "package_altered"
        | "no_replay" => StatusCode::CONFLICT,
        "approval_expired" | "dropped" => StatusCode::GONE,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "not_json" => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "not_acceptable" => StatusCode::NOT_ACCEPTABLE,
        "bad_arguments" | "unknown_workspace" | "no_sandbox" | "key_reused" | "bad_pattern" | "bad_timebox"
        | "policies_invalid" | "config_invalid" | "not_allowed_so" | "no_address" => StatusCode::UNPROCESSABLE_ENTITY,
        "no_passphrase" | "weak_passphrase" | "bad_secret" | "bad_binding" | "bad_backup" | "bad_recipient" => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        "bad_package" | "unsigned" | "bad_signature" | "unknown_publisher" | "untrusted" | "not_compiled"
        | "bad_grant" | "bad_reason" | "bad_key" | "not_configured" => StatusCode::UNPROCESSABLE_ENTITY,
        "too_many_calls" | "too_many_pending" | "too_many_requests" | "too_many_runs" | "too_many_servers"
        | "too_many_streams" | "rate_limited" => StatusCode::TOO_MANY_REQUESTS,
        "stopping"
        | "journal_unwritable"
        | "journal_unreadable"
        | "unattested"
        | "unsure"
        | "unkept"
        | "vault_busy"
        | "vault_unwritable"
        | "skills_unusable"
        | "transcripts_unusable"
        | "keeping_unusable" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_about_skills_has_a_status_of_its_own() {
        for (status, codes) in [
            (404, &["unknown_skill", "unknown_key"][..]),
            (
                409,
                &[
                    "skills_closed",
                    "skills_changed",
                    "version_rollback",
                    "other_origin",
                    "already_quarantined",
                    "not_quarantined",
                    "package_altered",
                    "no_replay",
                ],
            ),
            (
                422,
                &[
                    "bad_package",
                    "unsigned",
                    "bad_signature",
                    "unknown_publisher",
                    "untrusted",
                    "not_compiled",
                    "bad_grant",
                    "bad_reason",
                    "bad_key",
                    "not_configured",
                ],
            ),
            (503, &["skills_unusable"]),
        ] {
            for code in codes {
                assert_eq!(status_of(code).as_u16(), status, "{code}");
            }
        }
    }
}
