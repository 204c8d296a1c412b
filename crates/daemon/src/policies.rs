//! Policies as the daemon handles them: reads them again, explains what they decided, and tries others on what was decided before.
//!
//! Guarantees: a reload puts everything in force or nothing, and is journalled either way; a replay changes nothing, and
//! takes no more memory for longer records or more of them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, LazyLock},
};

use palyra_api::policy::{CallExplanation, Flip, Reconsidered, Replay, ReplayReport};
use palyra_gate::{config::PresetChoice, skills::WasmPluginRunnerPolicy};
use palyra_journal::{RecordKind, StoredRecord, state::CallRow};
use palyra_policy::{
    CallRequest, PolicyEvaluationConfig, PolicyRequestContext, RequestDocument, Snapshot, SourceFile, Verdict,
    builtin_tools,
    compare::{Change, Side, compare, describe},
};
use palyra_types::{Timestamp, ToolMetadata, ToolName, id::CallId};
use serde::Deserialize;

use crate::{
    app::{App, InForce},
    config::{Config, ConfigError, environment},
    explanation,
    failure::Failure,
    story,
};

/// Reads configuration and policies again and puts them in force: all of it, or nothing.
///
/// Returns what has to wait for a restart.
///
/// # Errors
/// When something of it cannot be used. What was in force stays.
pub async fn reload(app: &Arc<App>, by: &str) -> Result<Vec<String>, Failure> {
    let (app, by) = (Arc::clone(app), by.to_owned());
    // SECURITY: on a task of its own. Whoever asked for it may hang up, and what was begun would come into force behind a later one, untold.
    let reloading = tokio::spawn(async move { reload_alone(&app, &by).await });
    reloading.await.unwrap_or_else(|error| Err(Failure::internal(error.to_string())))
}

async fn reload_alone(app: &Arc<App>, by: &str) -> Result<Vec<String>, Failure> {
    // One at a time: of two that were mixed, one would be told to be in force and the other be.
    let _alone = app.reloading.lock().await;
    let loading = Arc::clone(app);
    let loaded = tokio::task::spawn_blocking(move || put_in_force(&loading)).await;
    let outcome = loaded.unwrap_or_else(|error| Err(Failure::internal(error.to_string())));
    let mut in_force = InForce { since: app.clock.now(), refused: None };
    match outcome {
        Ok(config) => {
            // Checked with the rest of the configuration; whatever is wrong with them now is told, and those of before stay.
            if let Err(error) = app.providers.replace(&config.provider, &app.clock, &app.entropy) {
                tracing::error!(%error, "the servers of models stay as they were");
            }
            app.upstreams.configure(config.mcp.clone());
            let waits = {
                let mut known = app.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let mut waits = waits_for_a_restart(&known, &config);
                if config.wants_pin() && !app.gate.has_pin() {
                    waits.push(NO_PIN.to_owned());
                }
                // What still holds is remembered as that, so that it is told again at the next reload.
                let held = Config {
                    listen: known.listen.clone(),
                    journal: known.journal.clone(),
                    vault: known.vault.clone(),
                    log: known.log.clone(),
                    skills: WasmPluginRunnerPolicy {
                        concurrent_calls: known.skills.concurrent_calls,
                        all_memory_bytes: known.skills.all_memory_bytes,
                        ..config.skills.clone()
                    },
                    ..Config::clone(&config)
                };
                *known = Arc::new(held);
                waits
            };
            *app.policies.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = in_force;
            tracing::info!(by, policy_set = %app.gate.engine().snapshot().digest(), "policies and configuration are in force");
            app.gate.policies_in_force(by).await?;
            Ok(waits)
        }
        Err(failure) => {
            tracing::error!(by, problem = failure.detail.message, "a reload was refused; what was in force stays");
            {
                let mut known = app.policies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                in_force.since = known.since;
                in_force.refused = Some(failure.detail.message.clone());
                *known = in_force;
            }
            app.gate.policies_refused(by, &failure.detail.message).await?;
            Err(failure)
        }
    }
}

const NO_PIN: &str = "nobody can answer: `presence` under [approvals] wants a PIN, and this daemon knows none; `palyra approvals pin` \
                      sets one, and the next start of the daemon reads it";

/// The sections that changed and are read at the start only.
fn waits_for_a_restart(before: &Config, after: &Config) -> Vec<String> {
    let changed = [
        ("under [listen]", before.listen != after.listen),
        ("under [journal]", before.journal != after.journal),
        ("under [vault]", before.vault != after.vault),
        ("under [log]", before.log != after.log),
        ("of `concurrent_calls` under [skills]", before.skills.concurrent_calls != after.skills.concurrent_calls),
        ("of `all_memory_bytes` under [skills]", before.skills.all_memory_bytes != after.skills.all_memory_bytes),
    ];
    let told = |name: &str| format!("what changed {name} waits for the next start of the daemon");
    changed.iter().filter(|(_, changed)| *changed).map(|(name, _)| told(name)).collect()
}

fn put_in_force(app: &App) -> Result<Arc<Config>, Failure> {
    let invalid = |error: ConfigError| Failure::new("config_invalid", error.to_string(), error.advice());
    let config = Config::read(&app.home, environment()).map_err(invalid)?;
    let sources = config.policies(&app.home.policies()).map_err(|error| unusable(&error))?;
    // Everything is worked out before anything is changed, and both change at once.
    let policies = Snapshot::load(&sources).map_err(|error| unusable(&error))?;
    app.gate
        .put_in_force(config.gate(), Arc::new(policies))
        .map_err(|error| Failure::new("config_invalid", error.to_string(), error.advice()))?;
    Ok(Arc::new(config))
}

/// Why a call was decided as it was, and what would be decided now.
///
/// # Errors
/// When there is no such call, or policy was never asked about it, or that was erased.
pub async fn explain(app: &App, id: CallId) -> Result<CallExplanation, Failure> {
    let missing = || Failure::not_found(format!("there is no call {id}"));
    let row = app.store.call(id).await?.ok_or_else(missing)?;
    let Some(Asked { posed, verdict: decided, reason }) = asked_about(app, &row).await? else {
        let message = format!("policy was not asked about the call {id}, or what it was asked was erased");
        return Err(Failure::new("not_found", message, format!("`palyra journal show {id}` tells what refused it")));
    };
    let Reconsidered { what, verdict, same_policies, parts } = reconsider(app, &posed);
    Ok(CallExplanation { call: id, what, decided, reason, verdict, same_policies, parts })
}

/// What policy was asked about a call, if it was and that is still known.
///
/// # Errors
/// When the journal cannot be read.
pub async fn posed_about(app: &App, id: CallId) -> Result<Option<Posed>, Failure> {
    let Some(row) = app.store.call(id).await? else { return Ok(None) };
    Ok(asked_about(app, &row).await?.map(|asked| asked.posed))
}

async fn asked_about(app: &App, row: &CallRow) -> Result<Option<Asked>, Failure> {
    let records = story::opening(app.store.as_ref(), row).await?;
    Ok(records.iter().find(|record| record.record.kind == RecordKind::ToolDecided).and_then(recorded))
}

/// What the policies in force say to something that policy was asked before.
#[must_use]
pub fn reconsider(app: &App, posed: &Posed) -> Reconsidered {
    let snapshot = app.gate.engine().snapshot();
    let parts = snapshot.explain_call(&posed.call, &posed.context, &app.gate.evaluation());
    let verdict = parts.iter().map(|part| part.decision.verdict).max().unwrap_or(Verdict::Deny);
    Reconsidered {
        what: describe(&posed.call, &posed.context),
        verdict: verdict.to_string(),
        same_policies: posed.policy_set == snapshot.digest().to_string(),
        parts: parts.iter().map(explanation::told).collect(),
    }
}

/// Tries a candidate on what was decided before.
///
/// # Errors
/// When the candidate cannot be used, or the journal cannot be read.
pub async fn replay(app: &App, replay: Replay) -> Result<ReplayReport, Failure> {
    let config = Arc::clone(&app.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let (sources, evaluation) = candidate(app, &config, &replay)?;
    let loading = tokio::task::spawn_blocking(move || Snapshot::load(&sources));
    let after =
        loading.await.map_err(|error| Failure::internal(error.to_string()))?.map_err(|error| unusable(&error))?;
    let sides = Sides {
        before: (app.gate.engine().snapshot(), app.gate.evaluation()),
        after: (Arc::new(after), Arc::new(evaluation)),
    };
    let (mut found, mut before) = (Findings::default(), app.hub.size());
    let most = u64::from(replay.last);
    while before > 0 && found.tried < most {
        let from = before.saturating_sub(LOOKED_AT);
        let headings = app.store.subjects(from, usize::try_from(before - from).unwrap_or_default()).await?;
        let decided = headings.iter().filter(|(seq, kind, _)| *seq < before && *kind == RecordKind::ToolDecided);
        let decided: Vec<u64> = decided.map(|(seq, ..)| *seq).collect();
        let older = decided.len().saturating_sub(usize::try_from(most - found.tried).unwrap_or(usize::MAX));
        if let Some(first) = decided.get(older) {
            found = try_all(app, &sides, *first..before, found).await?;
        }
        // Policy was not asked about all of them; then older ones take their places.
        before = decided.get(older).filter(|_| older > 0).copied().unwrap_or(from);
    }
    Ok(found.report())
}

/// Tries the decisions among these records, so many bytes of records at a time.
async fn try_all(app: &App, sides: &Sides, records: Range<u64>, mut found: Findings) -> Result<Findings, Failure> {
    let mut next = records.start;
    while next < records.end {
        let count = usize::try_from(records.end - next).unwrap_or_default();
        let portion = app.store.records_within(next, count, PORTION_BYTES).await?;
        let Some(last) = portion.last() else { break };
        next = last.record.seq.saturating_add(1);
        let (end, sides) = (records.end, sides.clone());
        let trying = tokio::task::spawn_blocking(move || {
            let decided =
                |stored: &&StoredRecord| stored.record.kind == RecordKind::ToolDecided && stored.record.seq < end;
            for record in portion.iter().filter(decided) {
                found.try_one(record, &sides);
            }
            found
        });
        found = trying.await.map_err(|error| Failure::internal(error.to_string()))?;
    }
    Ok(found)
}

fn candidate(
    app: &App,
    config: &Config,
    replay: &Replay,
) -> Result<(Vec<SourceFile>, PolicyEvaluationConfig), Failure> {
    let mut chosen = config.clone();
    if let Some(name) = &replay.preset {
        chosen.policy.preset = match name.as_str() {
            "none" => PresetChoice::None,
            name => PresetChoice::Preset(
                palyra_policy::Preset::parse(name).map_err(|error| Failure::bad_request(error.to_string()))?,
            ),
        };
    }
    let directory = app.home.policies();
    let own = if replay.instead { directory.join("-") } else { directory };
    let mut sources = chosen.policies(&own).map_err(|error| unusable(&error))?;
    sources.extend(replay.files.iter().map(|file| SourceFile::operator(file.name.as_str(), file.text.as_str())));
    let mut evaluation = PolicyEvaluationConfig::clone(&app.gate.evaluation());
    if replay.preset.is_some() {
        let state = evaluation.state_directory.clone();
        let broken = |error: palyra_policy::DataError| Failure::internal(error.to_string());
        if let Some(state) = state {
            let workspaces = std::mem::take(&mut evaluation.workspaces);
            evaluation = chosen.gate().evaluation(&state).map_err(broken)?;
            evaluation.workspaces.extend(workspaces);
        }
    }
    Ok((sources, evaluation))
}

/// What is in force, and the candidate.
#[derive(Clone)]
struct Sides {
    before: (Arc<Snapshot>, Arc<PolicyEvaluationConfig>),
    after: (Arc<Snapshot>, Arc<PolicyEvaluationConfig>),
}

/// What would be decided otherwise, the same things together. Bounded, however much that is.
#[derive(Default)]
struct Findings {
    tried: u64,
    skipped: u64,
    flips: BTreeMap<(Change, String, String, String), Flip>,
    bytes: usize,
    untold: u64,
}

impl Findings {
    fn try_one(&mut self, record: &StoredRecord, sides: &Sides) {
        match (recorded(record), record.record.subject().call) {
            (Some(one), Some(call)) => self.compare(one, call, sides),
            // Policy was not asked about every call that was refused.
            _ if was_not_asked(record) => {}
            _ => self.skipped += 1,
        }
    }

    fn compare(&mut self, one: Asked, call: CallId, Sides { before, after }: &Sides) {
        self.tried += 1;
        let (before, after) = (Side { set: &before.0, config: &before.1 }, Side { set: &after.0, config: &after.1 });
        for flip in compare(before, after, &[(one.posed.call, one.posed.context)]).flips {
            let key = (flip.change, flip.who.clone(), flip.what.clone(), flip.plan.clone().unwrap_or_default());
            if let Some(known) = self.flips.get_mut(&key) {
                known.times += 1;
                known.call = known.call.max(call);
                continue;
            }
            if self.bytes > REPORT_BYTES {
                self.untold += 1;
                continue;
            }
            self.bytes += FLIP_BYTES + flip.who.len() + flip.what.len() * 2 + flip.reason.len();
            let told = Flip {
                change: flip.change.title().to_owned(),
                who: flip.who,
                what: flip.what,
                plan: flip.plan,
                before: flip.before.to_string(),
                after: flip.after.to_string(),
                reason: flip.reason,
                times: 1,
                call,
            };
            self.flips.insert(key, told);
        }
    }

    fn report(self) -> ReplayReport {
        let Self { tried, skipped, flips, untold, .. } = self;
        ReplayReport { tried, skipped, flips: flips.into_values().collect(), untold }
    }
}

/// What policy was asked, and which policies decided it.
pub struct Posed {
    call: CallRequest,
    context: PolicyRequestContext,
    policy_set: String,
}

impl Posed {
    /// What a record says that policy was asked, at this time, if it can be read.
    #[must_use]
    pub fn read(request: &RequestDocument, at: Timestamp, policy_set: String) -> Option<Self> {
        static TOOLS: LazyLock<BTreeMap<ToolName, ToolMetadata>> =
            LazyLock::new(|| builtin_tools().unwrap_or_default());
        let (call, context) = request.read(at, &TOOLS).ok()?;
        Some(Self { call, context, policy_set })
    }
}

/// What policy was asked and said, as a record tells it.
struct Asked {
    posed: Posed,
    verdict: String,
    reason: String,
}

#[derive(Deserialize)]
struct DecidedForm {
    request: RequestDocument,
    decision: DecisionForm,
    reason: String,
}

#[derive(Deserialize)]
struct DecisionForm {
    verdict: String,
    policy_set: String,
}

fn was_not_asked(record: &StoredRecord) -> bool {
    #[derive(Deserialize)]
    struct Form {
        refused: String,
    }
    record
        .body
        .as_deref()
        .and_then(|body| serde_json::from_str::<Form>(body).ok())
        .is_some_and(|form| !form.refused.is_empty())
}

fn recorded(record: &StoredRecord) -> Option<Asked> {
    let DecidedForm { request, decision, reason } = serde_json::from_str(record.body.as_deref()?).ok()?;
    let posed = Posed::read(&request, record.record.time(), decision.policy_set)?;
    Some(Asked { posed, verdict: decision.verdict, reason })
}

fn unusable(error: &palyra_policy::LoadError) -> Failure {
    let first = error.findings.first();
    let message = first.map_or_else(|| error.to_string(), |first| format!("{}: {}", first.location, first.problem));
    let help = first.map_or_else(String::new, |first| first.problem.advice());
    Failure::new("policies_invalid", message, help)
}

/// How many records are looked at for decisions at once.
const LOOKED_AT: u64 = 512;

/// How many bytes of records are read at once, more or less.
const PORTION_BYTES: usize = 1 << 20;

/// How long a report may be, more or less, and what a line of it takes at least.
const REPORT_BYTES: usize = 4 << 20;

const FLIP_BYTES: usize = 256;
