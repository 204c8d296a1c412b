//! Why a command failed, in the three lines that people see: what, why, what next.

use std::borrow::Cow;

use palyra_api::ErrorDetail;
use palyra_client::ClientError;
use palyra_policy::{DataError, DocumentError, Finding, LoadError, suite::SuiteError};
use palyra_types::{id::CallId, visible::visible_block};

use crate::{exit::Exit, terminal::shown_block};

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// A word for programs.
    pub(crate) code: Cow<'static, str>,
    /// What happened.
    pub(crate) what: String,
    /// Why.
    pub(crate) cause: String,
    /// What to do next.
    pub(crate) help: String,
    /// The places in policy files it is about, if any.
    pub(crate) findings: Vec<Finding>,
    /// The call that was refused, if it is journalled.
    pub(crate) call: Option<CallId>,
}

impl Failure {
    /// A failure that is about no policy file. What it quotes is made visible here.
    pub(crate) fn new(
        exit: Exit,
        code: &'static str,
        what: impl Into<String>,
        cause: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let shown = |text: String| visible_block(&text);
        Self {
            exit,
            code: code.into(),
            what: shown(what.into()),
            cause: shown(cause.into()),
            help: shown(help.into()),
            findings: Vec::new(),
            call: None,
        }
    }

    /// What the daemon refused.
    pub(crate) fn refused(error: &ErrorDetail) -> Self {
        let exit = Exit::of_refusal(&error.code);
        let what = match exit {
            Exit::Denied => "policy denies it",
            Exit::Rejected => "a person said no",
            Exit::Expired => "nobody answered in time",
            _ => "the daemon refuses",
        };
        let help = match (error.call, &error.help) {
            (Some(call), _) if exit == Exit::Denied => {
                format!("why, and what would change it: `palyra explain {call}`")
            }
            (_, help) => match command_about(&error.code) {
                Some(command) => command.to_owned(),
                None => help.clone().unwrap_or_default(),
            },
        };
        let failure = Self::new(exit, "refused", what, "", "");
        Self { code: error.code.clone().into(), cause: shown_block(&error.message), help, call: error.call, ..failure }
    }
}

impl Failure {
    /// The same with other advice, if it is about this code: a command knows best what was asked for.
    #[must_use]
    pub(crate) fn advised(self, code: &str, help: &str) -> Self {
        if self.code == code { Self { help: help.to_owned(), ..self } } else { self }
    }
}

/// What to type about a refusal where the daemon's own advice is for those who speak HTTP, or for agents.
fn command_about(code: &str) -> Option<&'static str> {
    match code {
        "not_found" => Some("`palyra journal tail` shows the last records, and which calls they are about"),
        "bad_request" => Some("`--help` says what this command takes"),
        "unknown_tool" => Some("`palyra tools` lists them"),
        "unknown_run" => Some("name a run that was opened with the same credential, or leave --run out"),
        "no_posture" => Some("`palyra posture list` shows what is set"),
        "missing_scope" => Some("`palyra tokens scopes` says what each scope allows; mint a token that has this one"),
        "rate_limited" => Some("wait a moment, then try again"),
        "feature_off" => {
            Some("`palyra access flags` shows which flags are on, and `palyra access flags set NAME on` switches it on")
        }
        "above_own_role" => Some("`palyra whoami` shows your role, and `palyra access roles` what each may do"),
        "last_owner" => Some("make somebody else an owner first: `palyra access members set NAME --role owner`"),
        "last_device" => Some("pair another device first: `palyra devices pair`; or add --even-the-last"),
        "no_such_device" => Some("`palyra devices list` shows them"),
        "unknown_token" => Some("`palyra tokens list --all` shows them"),
        "unknown_member" | "unknown_invitation" => Some("`palyra access members` shows them"),
        "unknown_secret" => Some("`palyra vault list` shows them"),
        "unknown_version" | "unknown_binding" | "already_bound" => Some("`palyra vault show NAME` shows what there is"),
        "unknown_skill" => Some("`palyra skills list` shows what is installed"),
        "unknown_memory" => Some("`palyra memory list SCOPE` shows what is remembered there"),
        "unknown_artifact" => Some("`palyra artifacts list` shows them"),
        "unknown_schedule" => Some("`palyra cron list` shows them"),
        "unknown_key" => Some("`palyra skills publishers` shows the keys that there are"),
        "unknown_mcp_server" => Some("`palyra mcp list` shows them"),
        "vault_locked" => Some("`palyra vault unlock` opens it; `palyra vault status` says what it waits for"),
        "pairing_open" => Some(
            "end it where it was opened, with Ctrl-C, or by `palyra devices pairing ID --end`, or wait two minutes",
        ),
        "no_pairing" => Some("open one: `palyra devices pair`"),
        "behind" => Some("`palyra devices authority` shows who is behind; add --even-if-behind to cut them off"),
        "unknown_device" | "revoked" | "expired" => {
            Some("pair this device anew: `palyra devices pair` on one that is let in, then `palyra pair ADDRESS` here")
        }
        _ => None,
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let (exit, code, what, help) = match &error {
            ClientError::Refused { error, .. } => return Self::refused(error),
            ClientError::Unreachable { .. } => {
                (Exit::Unreachable, "unreachable", "no daemon answers", "start it: `palyra up`")
            }
            ClientError::Stranger { .. } => (
                Exit::Unreachable,
                "stranger",
                "nothing was sent to whoever listens there",
                "stop that program, or start the daemon of this state directory anew: `palyra up`",
            ),
            ClientError::Closed { .. } => (
                Exit::Unreachable,
                "closed",
                "the daemon takes no connection now",
                "try again in a moment; if that does not help, it has too many connections: look at its log",
            ),
            ClientError::NotTaken { .. } => (
                Exit::Failure,
                "not_taken",
                "this device is not let in (any more)",
                "pair it again: `palyra devices pair` there, then `palyra pair ADDRESS` here",
            ),
            ClientError::Slow { .. } => {
                (Exit::Unreachable, "slow", "the daemon does not answer", "look at the daemon's log")
            }
            ClientError::Lost { .. } => {
                (Exit::Unreachable, "lost", "the daemon went away", "look at the daemon's log, then try again")
            }
            ClientError::Protocol(_) => (
                Exit::Unreachable,
                "protocol",
                "the answer cannot be understood",
                "check that the daemon and this program have the same version: `palyra status`",
            ),
            ClientError::Output(_) => {
                (Exit::Failure, "unwritable", "the output cannot be written", "check the disk, or write elsewhere")
            }
        };
        Self::new(exit, code, what, error.to_string(), help)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let (cause, help) = match error.findings.first() {
            Some(first) => (format!("{}: {}", first.location.file, first.problem), first.problem.advice()),
            None => (error.to_string(), String::new()),
        };
        let count = error.findings.len();
        let what =
            format!("the policies cannot be loaded: {count} {}", if count == 1 { "problem" } else { "problems" });
        Self { findings: error.findings, ..Self::new(Exit::Failure, "policies_invalid", what, cause, help) }
    }
}

impl From<Finding> for Failure {
    fn from(finding: Finding) -> Self {
        let what = format!("{} cannot be used", finding.location.file);
        Self::new(Exit::Failure, finding.problem.code(), what, finding.problem.to_string(), finding.problem.advice())
    }
}

impl From<SuiteError> for Failure {
    fn from(error: SuiteError) -> Self {
        match error {
            SuiteError::Policies(error) => error.into(),
            SuiteError::File(finding) => finding.into(),
            other => {
                let help = other.advice();
                Self::new(Exit::Failure, "tests_invalid", "the policy tests cannot be read", other.to_string(), help)
            }
        }
    }
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        let help = error.advice();
        Self::new(Exit::Usage, "request_invalid", "the request cannot be read", error.to_string(), help)
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        let help = "this is a broken build; install Palyra again";
        Self::new(Exit::Failure, "broken_build", "built-in data cannot be used", error.to_string(), help)
    }
}
