//! What other programs were told about what they wanted to do themselves, told from the journal, and why.
//!
//! A decision is known by the number of its record: that is what a program is told, and what it shows to people. Its record is all that there
//! is, but where a person was asked: what policy was asked then stands with the call that was made of it.
//!
//! Does not: say who may know. A record tells where links lead, which whoever asked was not told; so it is for those who may read the journal.

use palyra_api::{
    authorize::{Authorization, AuthorizationExplanation, AuthorizationRecord},
    call::PolicyRef,
};
use palyra_journal::{ReadError, RecordKind, StoredRecord};
use palyra_policy::Verdict;
use palyra_types::{
    Timestamp, ToolName,
    id::{ApprovalId, CallId},
};
use serde::Deserialize;
use serde_json::Value;

use super::decision;
use crate::{
    app::App,
    failure::Failure,
    policies::{self, Posed},
    story::PrincipalForm,
};

/// A decision as it is on record.
pub struct Recorded {
    /// Who asked for what, and what they were told.
    pub decided: AuthorizationRecord,
    /// What policy was asked, if it was, and by which policies. Records are masked, so what was a name may be none any more.
    request: Option<Value>,
    policy_set: Option<String>,
}

impl Recorded {
    /// The decision of this record, if it is one and was neither dropped nor erased.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn find(app: &App, seq: u64) -> Result<Option<Self>, ReadError> {
        let found = app.store.records(seq, 1).await?.into_iter().next();
        Ok(found.filter(|one| one.record.seq == seq).as_ref().and_then(Self::of))
    }

    /// The decision that a record is about, if it is one that was not erased.
    #[must_use]
    pub fn of(record: &StoredRecord) -> Option<Self> {
        if record.record.kind != RecordKind::HookDecided {
            return None;
        }
        Self::read(record.record.seq, record.record.time(), record.body.as_deref()?)
    }

    fn read(seq: u64, at: Timestamp, body: &str) -> Option<Self> {
        let form: Form = serde_json::from_str(body).ok()?;
        let about = match (form.proposal, form.principal) {
            (Some(proposal), _) => proposal.told(),
            (None, Some(principal)) => {
                About { principal, channel: form.channel, token: form.token, tool: form.tool, meant: None, args: None }
            }
            (None, None) => return None,
        };
        let told = Authorization {
            decision: decision(form.verdict),
            code: form.code,
            reason: form.reason,
            policy: form.policies.first().cloned(),
            policies: form.policies,
            help: form.advice,
            record: Some(seq),
            call: form.asked_about,
            approval: form.approval,
        };
        let About { principal, channel, token, tool, meant, args } = about;
        let decided = AuthorizationRecord { at, principal, channel, token, tool, meant, args, told };
        Some(Self { decided, request: form.request, policy_set: form.policy_set })
    }

    /// What policy was asked, if it was and the record still says so.
    fn posed(&self) -> Option<Posed> {
        let request = serde_json::from_value(self.request.clone()?).ok()?;
        Posed::read(&request, self.decided.at, self.policy_set.clone()?)
    }
}

/// Why another program was told what is on record under this number, and what would change that.
///
/// # Errors
/// When that is no such decision, or it was dropped or erased.
pub async fn explain(app: &App, seq: u64) -> Result<AuthorizationExplanation, Failure> {
    let missing = || {
        let message = format!("record {seq} is no decision about what another program does itself, or it was erased");
        Failure::not_found(message)
    };
    let recorded = Recorded::find(app, seq).await?.ok_or_else(missing)?;
    let posed = match (recorded.posed(), recorded.decided.told.call) {
        (None, Some(call)) => policies::posed_about(app, call).await?,
        (posed, _) => posed,
    };
    let decided = recorded.decided;
    let snapshot = app.gate.engine().snapshot();
    let behind = |id: &String| {
        let policy = snapshot.policies().find(|policy| policy.id.as_str() == id)?;
        Some(PolicyRef { id: id.clone(), location: policy.location.to_string(), why: policy.why.clone() })
    };
    let policies = decided.told.policies.iter().filter_map(behind).collect();
    Ok(AuthorizationExplanation { policies, now: posed.map(|posed| policies::reconsider(app, &posed)), decided })
}

/// Who asked for what.
struct About {
    principal: String,
    channel: Option<String>,
    token: Option<String>,
    tool: Option<String>,
    meant: Option<ToolName>,
    args: Option<Value>,
}

/// The body of `hook.decided`: of a proposal, or of what made none and says itself who handed it over.
#[derive(Deserialize)]
struct Form {
    verdict: Verdict,
    code: String,
    reason: String,
    advice: Option<String>,
    #[serde(default)]
    policies: Vec<String>,
    policy_set: Option<String>,
    request: Option<Value>,
    asked_about: Option<CallId>,
    approval: Option<ApprovalId>,
    proposal: Option<ProposalForm>,
    principal: Option<String>,
    channel: Option<String>,
    token: Option<String>,
    tool: Option<String>,
}

#[derive(Deserialize)]
struct ProposalForm {
    principal: PrincipalForm,
    channel: Option<String>,
    token: Option<String>,
    tool: String,
    args: Value,
    elsewhere: Option<ElsewhereForm>,
}

impl ProposalForm {
    fn told(self) -> About {
        let Self { principal, channel, token, tool, args, elsewhere } = self;
        About {
            principal: principal.to_string(),
            channel,
            token,
            tool: elsewhere.map(|elsewhere| elsewhere.tool),
            meant: ToolName::parse(&tool).ok(),
            args: Some(args),
        }
    }
}

#[derive(Deserialize)]
struct ElsewhereForm {
    tool: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
mod tests {
    use palyra_api::authorize::Decision;
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Option<AuthorizationRecord> {
        Recorded::read(7, at(), &body.to_string()).map(|recorded| recorded.decided)
    }

    fn at() -> Timestamp {
        Timestamp::from_unix_millis(1_000)
    }

    fn told(decision: Decision, code: &str, reason: &str) -> Authorization {
        let (code, reason) = (code.to_owned(), reason.to_owned());
        let (policy, policies, help, call, approval) = (None, Vec::new(), None, None, None);
        Authorization { decision, code, reason, policy, policies, help, record: Some(7), call, approval }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_proposal_is_told_with_both_names_of_its_tool_and_with_what_would_change_the_decision() {
        let args = json!({ "command": "palyra stop" });
        let body = json!({
            "verdict": "deny", "code": "denied_by_policy", "reason": "forbidden", "advice": "nobody",
            "policies": ["baseline.runs-palyra"], "policy_set": "0".repeat(64), "input_sha256": "0".repeat(64),
            "request": { "principal": "agent:local", "run": ["/usr/bin/bash", "-c", "palyra stop"], "elsewhere": true },
            "proposal": {
                "call": CALL, "run": CALL, "session": CALL, "principal": { "kind": "agent", "id": "local" },
                "channel": "hook", "token": "tok-1", "tool": "process.run", "args": args, "waiting": "attached",
                "elsewhere": { "tool": "Bash" },
            },
        });
        let recorded = Recorded::read(7, at(), &body.to_string()).unwrap();
        assert!(recorded.posed().is_some());
        let expected = AuthorizationRecord {
            at: at(),
            principal: "agent:local".to_owned(),
            channel: text("hook"),
            token: text("tok-1"),
            tool: text("Bash"),
            meant: ToolName::parse("process.run").ok(),
            args: Some(args),
            told: Authorization {
                policy: text("baseline.runs-palyra"),
                policies: vec!["baseline.runs-palyra".to_owned()],
                help: text("nobody"),
                ..told(Decision::Deny, "denied_by_policy", "forbidden")
            },
        };
        assert_eq!(recorded.decided, expected);
    }

    #[test]
    fn a_name_that_was_masked_takes_nothing_else_from_the_record() {
        let body = json!({
            "verdict": "allow", "code": "allowed", "reason": "permitted", "policies": [], "policy_set": "0".repeat(64),
            "request": { "principal": "agent:local", "tool": MASKED, "elsewhere": true },
            "proposal": {
                "call": CALL, "run": CALL, "session": CALL, "principal": { "kind": "agent", "id": "local" },
                "tool": MASKED, "args": {}, "waiting": "attached", "elsewhere": { "tool": MASKED },
            },
        });
        let recorded = Recorded::read(7, at(), &body.to_string()).unwrap();
        assert!(recorded.posed().is_none());
        let AuthorizationRecord { tool, meant, told: said, .. } = recorded.decided;
        assert_eq!((tool, meant, said), (text(MASKED), None, told(Decision::Allow, "allowed", "permitted")));
    }

    #[test]
    fn what_made_no_proposal_is_told_with_whoever_handed_it_over() {
        let body = json!({
            "verdict": "deny", "code": "bad_json", "reason": "no JSON object", "program": "claude-code",
            "principal": "agent:local", "channel": "hook", "token": "tok-1", "sha256": "0".repeat(64),
        });
        let expected = AuthorizationRecord {
            at: at(),
            principal: "agent:local".to_owned(),
            channel: text("hook"),
            token: text("tok-1"),
            tool: None,
            meant: None,
            args: None,
            told: told(Decision::Deny, "bad_json", "no JSON object"),
        };
        assert_eq!(read(&body), Some(expected));
    }

    #[test]
    fn what_says_nothing_of_who_asked_is_no_decision() {
        assert_eq!(read(&json!({ "verdict": "deny", "code": "bad_json", "reason": "x" })), None);
        assert_eq!(read(&json!({ "verdict": "maybe", "code": "x", "reason": "x", "principal": "agent:local" })), None);
        assert_eq!(read(&json!([])), None);
    }

    const MASKED: &str = "[masked openai key]";

    const CALL: &str = "01J8ZK5V7Q3M4N5P6R7S8T9V0W";
}
