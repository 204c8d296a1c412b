//! Performs calls of skills: the executing half of every `skill.*` tool.
//!
//! Guarantees: what runs is the package that was decided about, checked once more; it ends when the call is stopped, at its limits, or when the run's
//! budget is spent, and each is told apart; what it answers fits the schema that its manifest promises; what it asked of the host is on record
//! before the call is attested.
//! Does not: check a permit. It is for this crate, which does.

use std::{sync::Arc, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use palyra_journal::mask::masked_bytes;
use palyra_package::{
    SkillLimits,
    schema::{Effort, TooMuchWork},
};
use palyra_skills::{
    engine::SkillCall,
    kv::KvScope,
    outcome::{SkillFailure, SkillRun},
    recording::Recording,
};
use palyra_types::{Json, json::Limits};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{
    files::SkillFiles,
    host::{CallHost, LiveLog, SkillDoor},
    shelf::Ready,
};
use crate::{
    attest::{Ending, SkillAttestation},
    execute::{Executed, Executor, asked_to_stop, stopped},
    output::Output,
    permit::CallFacts,
    tool::{SkillTerms, SkillWork},
};

/// The executor's name in attestations.
pub const TIER_A_EXECUTOR: &str = "wasm_tier_a";

/// How many bytes of an answer are read where others wait.
const SHORT_ANSWER: usize = 64 << 10;

/// Runs a tool of a skill.
pub(crate) async fn perform(
    facts: &Arc<CallFacts>,
    work: SkillWork,
    terms: &SkillTerms,
    executor: &Executor,
) -> Executed {
    let attested = attestation(&work);
    let not_started = |why: &str| Executed {
        executor: TIER_A_EXECUTOR,
        skill: Some(Box::new(attested.clone())),
        ..Executed::unknown(Ending::NotStarted, why)
    };
    let open = match executor.skills.open() {
        Ok(open) => open,
        Err(closed) => return not_started(&closed.to_string()),
    };
    let ready = match open.ready(&work, terms.limits.metering).await {
        Ok(ready) => ready,
        Err(error) => return not_started(&error.to_string()),
    };
    let reserved = &facts.reserved;
    let limits = SkillLimits {
        wall_ms: terms.limits.wall_ms.min(reserved.wall_ms),
        output_bytes: terms.limits.output_bytes.min(reserved.output_bytes),
        ..terms.limits
    };
    let grants = Arc::new(terms.grants.clone());
    let host = Arc::new(CallHost {
        clock: Arc::clone(&executor.clock),
        entropy: Arc::clone(&executor.entropy),
        begun: Instant::now(),
        door: SkillDoor::new(Arc::clone(&executor.door), work.hosts.clone()),
        fetcher: Arc::clone(&executor.fetcher),
        secrets: executor.secrets.clone().ok().flatten(),
        kv: Arc::clone(open.kv()),
        scope: facts.proposal.workspace.clone().map(|workspace| KvScope { skill: work.skill.clone(), workspace }),
        files: SkillFiles {
            workspace: executor.workspace.clone(),
            directories: Arc::new(work.directories.clone()),
            may_read: Arc::clone(&executor.may_read),
            may_write: Arc::clone(&executor.may_write),
        },
        grants: Arc::clone(&grants),
        limits,
        live: LiveLog::new(Arc::clone(facts), executor.live.clone()),
    });
    let call = SkillCall {
        skill: Arc::clone(&ready.skill),
        id: work.skill.to_string(),
        tool: work.tool.clone(),
        input: work.input.clone(),
        grants,
        limits,
        host: host.clone(),
        record: (executor.record_bytes > 0).then_some(executor.record_bytes),
    };
    let mut stop = executor.stop.clone();
    let ended = tokio::select! {
        biased;
        cause = asked_to_stop(&mut stop) => Err(cause),
        run = open.engine().call(call) => Ok(run),
    };
    let is_short = reserved.wall_ms < terms.limits.wall_ms;
    let mut log = Vec::new();
    let (ending, detail, output, attested) = match ended {
        Err(cause) => (Ending::Cancelled, Some(stopped(cause).to_owned()), Output::Nothing, attested),
        Ok(mut run) => {
            let replayable = tell(&run, executor);
            log = std::mem::take(&mut run.log);
            let attested = SkillAttestation { usage: Some(run.usage.clone()), replayable, ..attested };
            let (ending, detail, output) = concluded(run, &ready, (work.skill.as_str(), &work.tool), is_short).await;
            (ending, detail, output, attested)
        }
    };
    executor.door.close().await;
    let used = host.door.used();
    Executed {
        executor: TIER_A_EXECUTOR,
        layers: layers(&limits),
        network: (!work.hosts.is_empty()).then_some(used),
        detail,
        output,
        skill: Some(Box::new(attested)),
        log,
        ..Executed::unknown(ending, "")
    }
}

/// What an answer, or the lack of one, means for the call.
async fn concluded(
    run: SkillRun,
    ready: &Arc<Ready>,
    (skill, tool): (&str, &str),
    is_short: bool,
) -> (Ending, Option<String>, Output) {
    let value = match run.answer {
        Ok(text) => match answer(text, ready, tool).await {
            Ok(value) => return (Ending::Completed, None, Output::Value { value }),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    let ending = match &value {
        SkillFailure::TookTooLong { .. } if is_short => Ending::BudgetSpent,
        SkillFailure::TookTooLong { .. } => Ending::TimedOut,
        SkillFailure::Stopped => Ending::Cancelled,
        failure if failure.is_limit() => Ending::LimitExceeded,
        _ => Ending::Completed,
    };
    let detail = value.to_string();
    (ending, Some(detail), Output::Value { value: told(skill, Err(value)) })
}

/// What a caller is told: the answer, or why there is none.
pub(super) fn told(skill: &str, answer: Result<Value, SkillFailure>) -> Value {
    answer.unwrap_or_else(|failure| {
        let help = match &failure {
            // What needs no choice can be granted by a command that is whole.
            SkillFailure::NotGranted { capability } if !matches!(capability.as_str(), "secrets" | "files") => {
                format!("an owner or admin grants it: `palyra skills grant {skill} --grant {capability}`")
            }
            SkillFailure::NotGranted { .. } => {
                format!("an owner or admin grants it; `palyra skills show {skill}` tells what it asks for, and by which command")
            }
            failure => failure.advice().to_owned(),
        };
        json!({ "error": { "code": failure.code(), "message": failure.to_string(), "help": help } })
    })
}

/// The answer, if it is what the manifest promises.
pub(super) async fn answer(text: String, ready: &Arc<Ready>, tool: &str) -> Result<Value, SkillFailure> {
    if text.len() <= SHORT_ANSWER
        && let Ok(read) = read_answer(&text, ready, tool, Effort::Brief)
    {
        return read.map_err(SkillFailure::brief);
    }
    // What takes longer keeps nobody else waiting.
    let (ready, tool) = (Arc::clone(ready), tool.to_owned());
    let reading = spawn_blocking(move || read_answer(&text, &ready, &tool, Effort::Whole));
    match reading.await {
        Ok(Ok(read)) => read.map_err(SkillFailure::brief),
        Ok(Err(laborious)) => Err(SkillFailure::Misfit { detail: laborious.to_string() }),
        Err(failed) => Err(SkillFailure::Misfit { detail: failed.to_string() }),
    }
}

fn read_answer(
    text: &str,
    ready: &Ready,
    tool: &str,
    effort: Effort,
) -> Result<Result<Value, SkillFailure>, TooMuchWork> {
    let limits = Limits { bytes: text.len(), ..Limits::default() };
    let value = match Json::parse(text.as_bytes(), limits) {
        Ok(value) => value.into_value(),
        Err(error) => return Ok(Err(SkillFailure::NotJson { detail: error.to_string() })),
    };
    let misfit = match ready.outputs.get(tool) {
        Some(promised) => promised.first_misfit(&value, effort)?,
        None => None,
    };
    Ok(misfit.map_or(Ok(value), |detail| Err(SkillFailure::Misfit { detail })))
}

/// Journals what the call asked. Says whether it can be run again from that.
fn tell(run: &SkillRun, executor: &Executor) -> bool {
    #[derive(Serialize)]
    struct Told<'a> {
        recording: &'a Recording,
    }
    let Some(recording) = &run.recording else { return false };
    // SECURITY: base 64 hides tokens from what masks a record. What would have to be masked there is of no use for a replay, so none of it is kept.
    if recording.calls.iter().any(|call| hides_a_token(&call.asked) || hides_a_token(&call.answered)) {
        return false;
    }
    if !recording.calls.is_empty() {
        executor.door.account().tell(palyra_journal::RecordKind::SkillRecorded, &Told { recording });
    }
    true
}

/// Whether there is a token in something that is spelt in base 64.
fn hides_a_token(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let bytes = BASE64_STANDARD.decode(text);
            bytes.is_ok_and(|bytes| masked_bytes(&bytes) != bytes)
        }
        Value::Array(all) => all.iter().any(hides_a_token),
        Value::Object(fields) => fields.values().any(hides_a_token),
        _ => false,
    }
}

fn attestation(work: &SkillWork) -> SkillAttestation {
    let publisher = work.skill.as_str().split('/').next().unwrap_or_default();
    SkillAttestation {
        id: work.skill.clone(),
        version: work.version.clone(),
        package_sha256: work.package_sha256,
        component_sha256: work.component_sha256,
        publisher: publisher.to_owned(),
        signed_by: work.signed_by.clone(),
        usage: None,
        replayable: false,
    }
}

/// What really held it.
fn layers(limits: &SkillLimits) -> Vec<String> {
    let metering = format!("metered_by_{}", limits.metering);
    ["wasm_memory_isolation", &metering, "memory_limit", "wall_clock", "host_calls_granted_only"]
        .map(str::to_owned)
        .to_vec()
}
