//! What is known about a call, told from the journal.
//!
//! A call's story is read from its first two records, its last one and its question, however much lies between them.

use std::fmt;

use palyra_api::call::{Call, CallLogLine, CallState as Told, Decided, Output, PolicyRef, Proposed, Receipt, Refused};
use palyra_gate::{Completed, Ending, Output as GateOutput, Refusal, RefusalRecord, skills::LogLine};
use palyra_journal::{
    JournalStore, ReadError, RecordKind, StoredRecord,
    state::{CallRow, CallState},
};
use palyra_types::{Sha256Digest, Timestamp, ToolName, id::CallId};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::failure::Failure;

/// A call, if there is one of this id.
///
/// # Errors
/// When the journal cannot be read.
pub async fn of(store: &dyn JournalStore, id: CallId) -> Result<Option<Call>, ReadError> {
    let Some((mut call, row)) = begun(store, id).await? else { return Ok(None) };
    if row.last_seq > row.first_seq + 1
        && let Some(record) =
            store.records(row.last_seq, 1).await?.into_iter().next().filter(|one| is(one, &row, row.last_seq))
    {
        add(&mut call, &record);
    }
    if call.state == Told::Ended && call.receipt.is_none() && call.refusal.is_none() {
        call.refusal = Some(Refused {
            code: "dropped".to_owned(),
            message: "the records about what came of the call were dropped or erased".to_owned(),
            help: Some("a bundle that was exported before has them".to_owned()),
        });
    }
    Ok(Some(call))
}

/// A call without what came of it, and its row.
async fn begun(store: &dyn JournalStore, id: CallId) -> Result<Option<(Call, CallRow)>, ReadError> {
    let Some(row) = store.call(id).await? else { return Ok(None) };
    let approval = store.approval_of(id).await?.map(|approval| approval.id);
    let mut call = Call {
        id,
        run: row.run,
        session: row.session,
        state: state(row.state),
        first_seq: row.first_seq,
        last_seq: row.last_seq,
        proposed: None,
        decided: None,
        approval,
        receipt: None,
        output: None,
        refusal: None,
        log: Vec::new(),
    };
    for record in opening(store, &row).await? {
        add(&mut call, &record);
    }
    Ok(Some((call, row)))
}

/// The records of the proposal and of the decision.
///
/// # Errors
/// When the journal cannot be read.
pub async fn opening(store: &dyn JournalStore, row: &CallRow) -> Result<Vec<StoredRecord>, ReadError> {
    let records = store.records(row.first_seq, 2).await?;
    let second = row.first_seq.saturating_add(1);
    Ok(records.into_iter().filter(|one| is(one, row, row.first_seq) || is(one, row, second)).collect())
}

/// SECURITY: where a record was dropped, the next that is kept is read in its place, and that is somebody else's.
fn is(record: &StoredRecord, row: &CallRow, seq: u64) -> bool {
    record.record.seq == seq && record.record.subject().call == Some(row.call)
}

/// A call that ran, if it is there, as its caller is told: what came out is not masked for them.
///
/// # Errors
/// When the journal cannot be read.
pub async fn completed(store: &dyn JournalStore, id: CallId, completed: &Completed) -> Result<Option<Call>, ReadError> {
    let Some((mut call, _)) = begun(store, id).await? else { return Ok(None) };
    call.state = Told::Ended;
    call.last_seq = completed.receipt.seq;
    call.receipt = Some(Receipt {
        attestation: serde_json::to_value(&completed.receipt.attestation).unwrap_or_default(),
        note: completed.receipt.note.clone(),
        seq: completed.receipt.seq,
        hash: completed.receipt.hash,
    });
    call.output = output(&completed.output);
    let line = |line: &LogLine| CallLogLine { level: line.level.to_string(), message: line.message.clone() };
    call.log = completed.log.iter().map(line).collect();
    Ok(Some(call))
}

/// A call that ran, as far as whoever waited for it is told without looking it up.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub ending: Ending,
    /// More about how it ended.
    pub detail: Option<String>,
    /// What came out, not masked for its caller.
    pub output: Option<Output>,
    /// The number of its receipt.
    pub seq: u64,
    /// The hash of its receipt.
    pub hash: Sha256Digest,
}

impl Ran {
    /// A call that ran.
    #[must_use]
    pub fn of(completed: Completed) -> Self {
        let receipt = completed.receipt;
        Self {
            call: receipt.attestation.call,
            ending: receipt.attestation.ending,
            detail: receipt.attestation.detail,
            output: match completed.output {
                GateOutput::Value { value } => Some(Output::Value { value }),
                other => output(&other),
            },
            seq: receipt.seq,
            hash: receipt.hash,
        }
    }
}

fn output(of: &GateOutput) -> Option<Output> {
    serde_json::to_value(of).ok().and_then(|value| serde_json::from_value(value).ok())
}

/// What is answered to whoever asks again for a call that is over: the call, or the refusal once more.
///
/// # Errors
/// The refusal.
pub fn again(call: Call) -> Result<Call, Failure> {
    match &call.refusal {
        None => Ok(call),
        Some(refused) => {
            let help = refused.help.clone().unwrap_or_default();
            Err(Failure::new(&refused.code, refused.message.clone(), help).about(call.id))
        }
    }
}

/// The word for what came of a call, for figures.
#[must_use]
pub fn outcome_word(outcome: &Result<Completed, Refusal>) -> &'static str {
    match outcome {
        Ok(completed) => completed.receipt.attestation.ending.as_str(),
        Err(refusal) => refusal.code(),
    }
}

const fn state(state: CallState) -> Told {
    match state {
        CallState::Waiting => Told::Waiting,
        CallState::Started => Told::Started,
        CallState::Ended => Told::Ended,
    }
}

/// Adds what a record says.
fn add(call: &mut Call, record: &StoredRecord) {
    match record.record.kind {
        RecordKind::ToolProposed => call.proposed = read(record).map(|form| proposed(form, record.record.time())),
        RecordKind::ToolDecided => match read::<DecidedForm>(record) {
            Some(DecidedForm { refused: Some(code), reason, advice, .. }) => {
                call.refusal = Some(Refused { code, message: reason, help: advice });
            }
            Some(form) => {
                let decided = decided(form);
                if decided.verdict == "deny" {
                    call.refusal = Some(Refused {
                        code: "denied_by_policy".to_owned(),
                        message: decided.reason.clone(),
                        help: Some("`palyra why` shows which rule would allow it".to_owned()),
                    });
                }
                call.decided = Some(decided);
            }
            None => {}
        },
        RecordKind::ApprovalResolved => call.refusal = read(record).and_then(unanswered),
        RecordKind::ToolAttested => {
            if let Some(form) = read::<AttestedForm>(record) {
                // The text of a note stands before its first empty line.
                let text = form.note.split("\n\n").next().unwrap_or_default();
                call.receipt = Some(Receipt {
                    attestation: serde_json::from_str(text).unwrap_or_default(),
                    seq: record.record.seq,
                    hash: record.hash,
                    note: form.note,
                });
                call.output = form.output.and_then(|output| serde_json::from_value(output).ok());
                call.log = form.log;
            }
        }
        _ => {}
    }
}

fn proposed(form: ProposedForm, at: Timestamp) -> Proposed {
    Proposed {
        at,
        principal: form.principal.to_string(),
        tool: form.tool,
        args: form.args,
        workspace: form.workspace,
        channel: form.channel,
    }
}

fn decided(form: DecidedForm) -> Decided {
    let decision = form.decision.unwrap_or_default();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut policies = Vec::new();
    let parts = decision.get("decision").and_then(|decision| decision.get("parts")).and_then(Value::as_array);
    let verdict = text(&decision, "verdict");
    for part in parts.into_iter().flatten().filter(|part| text(part, "verdict") == verdict) {
        for policy in ["by", "held_by"].iter().filter_map(|key| part.get(*key)?.as_array()).flatten() {
            let line = policy.get("line").map(|line| format!(":{line}")).unwrap_or_default();
            let policy = PolicyRef {
                id: text(policy, "id"),
                location: format!("{}{line}", text(policy, "file")),
                why: policy.get("why").and_then(Value::as_str).map(str::to_owned),
            };
            // Several parts of a call may have one policy behind them.
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    let policy_set = decision.get("policy_set").and_then(|digest| serde_json::from_value(digest.clone()).ok());
    Decided { verdict, reason: form.reason, policies, policy_set }
}

/// What a question came to that was not answered with yes.
fn unanswered(form: ResolvedForm) -> Option<Refused> {
    let (code, message, help) = match form.state.as_str() {
        "denied" => {
            let by = form.by.map_or_else(|| "somebody".to_owned(), |by| by.to_string());
            let message = form.message.map(|message| format!(": {message}")).unwrap_or_default();
            ("denied_by_person", format!("{by} said no{message}"), "do not try the same again")
        }
        "expired" => (
            "approval_expired",
            "the approval expired".to_owned(),
            "propose it again while somebody is there to answer",
        ),
        "cancelled" => {
            let cause = form.cause.unwrap_or_default();
            if let Some(RefusalRecord { code, advice }) = form.refused {
                return Some(Refused { code, message: cause, help: Some(advice) });
            }
            ("cancelled", format!("the call was cancelled: {cause}"), "propose it again")
        }
        _ => return None,
    };
    Some(Refused { code: code.to_owned(), message, help: Some(help.to_owned()) })
}

fn read<T: DeserializeOwned>(record: &StoredRecord) -> Option<T> {
    serde_json::from_str(record.body.as_deref()?).ok()
}

#[derive(Deserialize)]
struct ProposedForm {
    principal: PrincipalForm,
    tool: ToolName,
    args: Value,
    workspace: Option<String>,
    channel: Option<String>,
}

/// Somebody, as records name them.
#[derive(Deserialize)]
pub(crate) struct PrincipalForm {
    kind: String,
    id: String,
}

impl fmt::Display for PrincipalForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

#[derive(Deserialize)]
struct DecidedForm {
    refused: Option<String>,
    reason: String,
    advice: Option<String>,
    decision: Option<Value>,
}

#[derive(Deserialize)]
struct ResolvedForm {
    state: String,
    by: Option<PrincipalForm>,
    message: Option<String>,
    cause: Option<String>,
    refused: Option<RefusalRecord>,
}

#[derive(Deserialize)]
struct AttestedForm {
    note: String,
    /// Nothing is known about what an interrupted call printed.
    output: Option<Value>,
    #[serde(default)]
    log: Vec<CallLogLine>,
}
