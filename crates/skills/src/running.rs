//! One call, from an empty store to its outcome.
//!
//! Guarantees: a call that finds no place waits for one, not for longer than it may take; each limit ends it with an error of its own; its
//! place is free again when this is over, however that came about.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use palyra_package::{Grants, Metering, SkillLimits};
use palyra_types::json::{Json, Limits};
use tokio::time::Instant;
use wasmtime::{
    Store, Trap, UpdateDeadline,
    component::{ComponentType, Lift},
};

use crate::{
    engine::Shared,
    host::SkillHost,
    ledger::{Ended, end},
    limiter::Limiter,
    loading::{Entry, LoadedSkill},
    metered::{Meter, Reading, metered},
    outcome::{SkillFailure, SkillRun, SkillUsage},
    state::{Answers, Beginning, CallState, Program},
};

/// Everything about a call.
pub(crate) struct Given {
    pub(crate) skill: Arc<LoadedSkill>,
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) input: String,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: SkillLimits,
    pub(crate) answers: Answers,
    /// Who knows how long people took to answer.
    pub(crate) waited: Option<Arc<dyn SkillHost>>,
}

/// Runs a call.
pub(crate) async fn run(given: Given, shared: Arc<Shared>) -> SkillRun {
    let Given { skill, id, tool, input, grants, limits, answers, waited } = given;
    let metering = skill.pool.metering;
    let wall = Duration::from_millis(limits.wall_ms);
    let places = Arc::clone(&skill.pool.places);
    let place = match Arc::clone(&places).try_acquire_many_owned(skill.places) {
        Ok(place) => place,
        // More than there are will never be free.
        Err(_) if skill.places > skill.pool.size => return unused(metering, SkillFailure::NoRoom),
        Err(_) => match tokio::time::timeout(wall, places.acquire_many_owned(skill.places)).await {
            Ok(Ok(place)) => place,
            _ => return unused(metering, SkillFailure::NoRoom),
        },
    };
    let ticking = shared.ticker.ticking();

    let limit = (metering == Metering::Epoch).then(|| Duration::from_millis(limits.cpu_ms));
    let meter = Arc::new(Meter::new(shared.tick, limit));
    let (program, tool, input) = match skill.entry {
        Entry::V1 | Entry::V0_1 => (Program::World, tool, input),
        Entry::Command => {
            (Program::Command { arguments: [id, tool], input: input.into_bytes().into() }, String::new(), String::new())
        }
    };
    let memory = Arc::clone(&shared.memory);
    let limiter = Limiter::new(&limits, memory, shared.most_memory_bytes, shared.most_table_entries);
    let state = CallState::new(Beginning { limits, grants, program, answers, meter: Arc::clone(&meter), limiter });
    let mut outcome = match prepare(&skill, state, &limits) {
        Ok(mut store) => {
            let executing = metered(&meter, &shared.turns, execute(&skill, &mut store, &tool, &input));
            let answer = within(wall, waited.as_deref(), executing).await;
            conclude(store, &meter, answer, &skill)
        }
        Err(error) => unused(metering, SkillFailure::Trapped { detail: format!("{error:#}") }),
    };
    drop(ticking);
    drop(place);
    if outcome.answer.as_ref().is_ok_and(|answer| answer.len() > SHORT_ANSWER) {
        // Reading a long answer takes a while, and this may be a thread that others wait for.
        tokio::task::yield_now().await;
    }
    if let Ok(answer) = &outcome.answer
        && let Err(failure) = check(answer, &limits)
    {
        outcome.answer = Err(failure);
    }
    outcome.answer = outcome.answer.map_err(SkillFailure::brief);
    outcome
}

/// The outcome of a call that did not begin.
pub(crate) fn unused(metering: Metering, failure: SkillFailure) -> SkillRun {
    let (fuel, ticks) = match metering {
        Metering::Epoch => (None, Some(0)),
        Metering::Fuel => (Some(0), None),
    };
    SkillRun {
        answer: Err(failure),
        usage: SkillUsage { metering, fuel, ticks, memory_bytes: 0, host_calls: BTreeMap::new() },
        log: Vec::new(),
        log_truncated: false,
        recording: None,
    }
}

fn prepare(skill: &LoadedSkill, state: CallState, limits: &SkillLimits) -> wasmtime::Result<Store<CallState>> {
    let mut store = Store::new(&skill.pool.engine, state);
    store.limiter(|state| &mut state.limiter);
    let handed = limits.host_bytes.max(limits.output_bytes);
    store.set_hostcall_fuel(usize::try_from(handed).unwrap_or(usize::MAX));
    store.set_max_component_handles(MOST_HANDLES);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        let state = store.data();
        match state.meter.read() {
            Reading::Early => Ok(UpdateDeadline::Continue(1)),
            Reading::SliceOver => Ok(UpdateDeadline::Yield(1)),
            Reading::LimitReached => Err(end(SkillFailure::ComputedTooLong { limit_ms: state.limits.cpu_ms })),
        }
    });
    if skill.pool.metering == Metering::Fuel {
        store.set_fuel(limits.fuel)?;
    }
    Ok(store)
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Told {
    code: String,
    message: String,
}

/// Makes the instance and calls it. The error is wasmtime's; the failure is what the skill says itself.
async fn execute(
    skill: &LoadedSkill,
    store: &mut Store<CallState>,
    tool: &str,
    input: &str,
) -> wasmtime::Result<Result<String, SkillFailure>> {
    let instance = skill.pre.instantiate_async(&mut *store).await?;
    store.data_mut().is_made = true;
    let limit = store.data().limits.output_bytes;
    match skill.entry {
        Entry::V1 => {
            let run = instance.get_typed_func::<(&str, &str), (Result<String, Told>,)>(&mut *store, &skill.index)?;
            let (answer,) = run.call_async(store, (tool, input)).await?;
            Ok(answer.map_err(|Told { code, message }| SkillFailure::told(code, message, limit)))
        }
        Entry::V0_1 => {
            let run = instance.get_typed_func::<(&str, &str), (Result<String, String>,)>(&mut *store, &skill.index)?;
            let (answer,) = run.call_async(store, (tool, input)).await?;
            Ok(answer.map_err(|message| SkillFailure::told("failed".to_owned(), message, limit)))
        }
        Entry::Command => {
            let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, &skill.index)?;
            let (ended,) = run.call_async(&mut *store, ()).await?;
            match ended {
                Ok(()) => Ok(written(store)),
                Err(()) => Err(end(SkillFailure::Exited { code: 1 })),
            }
        }
    }
}

/// Waits no longer than it may take. The time that people take does not count.
async fn within<F: Future>(wall: Duration, waited: Option<&dyn SkillHost>, future: F) -> Option<F::Output> {
    let waited = || waited.map_or(Duration::ZERO, |host| Duration::from_millis(host.waited_ms()));
    let began = Instant::now();
    let mut future = pin!(future);
    let mut counted = Duration::ZERO;
    loop {
        let limit = wall.saturating_add(counted);
        // A moment that no clock reaches is no limit.
        let Some(deadline) = began.checked_add(limit) else { return Some(future.await) };
        match tokio::time::timeout_at(deadline, future.as_mut()).await {
            Ok(output) => return Some(output),
            Err(_) => match waited() {
                now if now > counted => counted = now,
                _ => return None,
            },
        }
    }
}

fn conclude(
    store: Store<CallState>,
    meter: &Meter,
    answer: Option<wasmtime::Result<Result<String, SkillFailure>>>,
    skill: &LoadedSkill,
) -> SkillRun {
    let limits = store.data().limits;
    let mut answer = match answer {
        None => Err(SkillFailure::TookTooLong { limit_ms: limits.wall_ms }),
        Some(Ok(answer)) => answer,
        Some(Err(error)) => failure(&error, &store, skill.entry),
    };
    let metering = skill.pool.metering;
    let fuel = store.get_fuel().ok().map(|left| limits.fuel.saturating_sub(left));
    let state = store.into_data();
    let memory_bytes = state.limiter.memory_bytes();
    let ledger = state.ledger.clone();
    let recording = state.finish().unwrap_or_else(|diverged| {
        if matches!(answer, Ok(_) | Err(SkillFailure::Told { .. })) {
            answer = Err(diverged);
        }
        None
    });
    ledger.end_lines();
    let mut entries = ledger.entries();
    let host_calls = std::mem::take(&mut entries.host_calls);
    SkillRun {
        answer,
        usage: SkillUsage {
            metering,
            fuel,
            ticks: (metering == Metering::Epoch).then(|| meter.ticks()),
            memory_bytes,
            host_calls: host_calls.into_iter().map(|(function, count)| (function.to_owned(), count)).collect(),
        },
        log: std::mem::take(&mut entries.log),
        log_truncated: entries.log_truncated,
        recording,
    }
}

/// Why the call ended, from the error that wasmtime gives.
fn failure(error: &wasmtime::Error, store: &Store<CallState>, entry: Entry) -> Result<String, SkillFailure> {
    let state = store.data();
    if let Some(Ended(failure)) = error.downcast_ref() {
        return match failure {
            SkillFailure::Exited { code: 0 } if entry == Entry::Command => written(store),
            SkillFailure::Exited { code } if entry == Entry::Command => Err(complaint(store, *code)),
            failure => Err(failure.clone()),
        };
    }
    Err(match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => SkillFailure::StackOverflow,
        Some(Trap::OutOfFuel) => SkillFailure::OutOfFuel { limit: state.limits.fuel },
        trap => match state.limiter.refused() {
            // What it trapped over, or could not even be made of.
            Some(refused) => refused.clone(),
            None if handed_too_much(error) => match error.downcast_ref::<wasmtime::WasmBacktrace>() {
                Some(_) => SkillFailure::HandedTooMuch { limit: state.limits.host_bytes },
                // No code of the skill was running any more: this was its answer.
                None => SkillFailure::OutputTooLarge { limit: state.limits.output_bytes },
            },
            // Its places were there, so it is made of more than a store takes.
            None if trap.is_none() && !state.is_made => SkillFailure::TooManyInstances { detail: format!("{error:#}") },
            None => {
                let detail = trap.map_or_else(|| format!("{:#}", error.root_cause()), ToString::to_string);
                // Whoever panics says where, on its standard error.
                let said = state.ledger.entries().complaint();
                SkillFailure::Trapped {
                    detail: if said.is_empty() { detail } else { format!("{detail}; it said: {said}") },
                }
            }
        },
    })
}

/// Whether the skill handed over more than the store's limit. Wasmtime has a type for that error and keeps it to itself, so its text is all
/// there is; a test holds it to that.
fn handed_too_much(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().starts_with("too much data is being copied between the host and the guest")
}

/// What a command wrote to its standard output.
fn written(store: &Store<CallState>) -> Result<String, SkillFailure> {
    let written = std::mem::take(&mut store.data().ledger.entries().written);
    String::from_utf8(written).map_err(|_| SkillFailure::NotJson { detail: "it is not UTF-8".to_owned() })
}

fn complaint(store: &Store<CallState>, code: i32) -> SkillFailure {
    match store.data().ledger.entries().complaint() {
        message if message.is_empty() => SkillFailure::Exited { code },
        message => SkillFailure::Told { code: format!("exit-{code}"), message },
    }
}

/// That an answer is one.
fn check(answer: &str, limits: &SkillLimits) -> Result<(), SkillFailure> {
    let limit = limits.output_bytes;
    let bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    if answer.len() > bytes {
        return Err(SkillFailure::OutputTooLarge { limit });
    }
    match Json::parse(answer.as_bytes(), Limits { bytes, ..Limits::default() }) {
        Ok(_) => Ok(()),
        Err(error) => Err(SkillFailure::NotJson { detail: error.to_string() }),
    }
}

/// How many bytes of an answer are read at once.
const SHORT_ANSWER: usize = 64 << 10;

/// Handles that a skill may hold at once, its own included.
const MOST_HANDLES: usize = 10_000;
