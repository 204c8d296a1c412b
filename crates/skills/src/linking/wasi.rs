//! The part of WASI 0.2 that skills have: streams, polling, the environment, clocks and randomness.
//!
//! Guarantees: the environment is empty, and so are the arguments unless the skill is a command; insecure randomness is the same in every
//! call. Clocks and randomness need their grants and are answered by the host. What polling found is written down, since it tells time.

use std::time::Duration;

use serde_json::json;
use wasmtime::{
    StoreContextMut,
    component::{ComponentType, HasSelf, Linker, Lower, Resource, ResourceTable, ResourceType},
};
use wasmtime_wasi_io::{
    async_trait,
    bindings::wasi::io::{error, poll, streams},
    bytes::Bytes,
    poll::{DynPollable, Pollable, subscribe},
    streams::{DynInputStream, DynOutputStream},
};

use super::streams::{Input, Leads, Output};
use crate::{
    host::LogLevel,
    ledger::end,
    outcome::SkillFailure,
    recording::Written,
    state::{CallState, Program},
};

type Store<'a> = StoreContextMut<'a, CallState>;

/// Defines all of it.
pub(super) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    error::add_to_linker::<CallState, Tables>(linker, |state| &mut state.table)?;
    streams::add_to_linker::<CallState, Tables>(linker, |state| &mut state.table)?;
    poll::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    environment(linker)?;
    standard_streams(linker)?;
    terminals(linker)?;
    clocks(linker)?;
    randomness(linker)
}

struct Tables;

impl wasmtime::component::HasData for Tables {
    type Data<'a> = &'a mut ResourceTable;
}

fn environment(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut environment = linker.instance("wasi:cli/environment@0.2.0")?;
    environment.func_wrap("get-environment", |store: Store<'_>, (): ()| {
        store.data().ledger.count()?;
        Ok((Vec::<(String, String)>::new(),))
    })?;
    environment.func_wrap("get-arguments", |store: Store<'_>, (): ()| {
        store.data().ledger.count()?;
        Ok((match &store.data().program {
            Program::World => Vec::new(),
            Program::Command { arguments, .. } => arguments.to_vec(),
        },))
    })?;
    environment.func_wrap("initial-cwd", |store: Store<'_>, (): ()| {
        store.data().ledger.count()?;
        Ok((None::<String>,))
    })?;
    let mut exit = linker.instance("wasi:cli/exit@0.2.0")?;
    exit.func_wrap("exit", |_: Store<'_>, (status,): (Result<(), ()>,)| -> wasmtime::Result<()> {
        Err(end(SkillFailure::Exited { code: i32::from(status.is_err()) }))
    })?;
    exit.func_wrap("exit-with-code", |_: Store<'_>, (code,): (u8,)| -> wasmtime::Result<()> {
        Err(end(SkillFailure::Exited { code: i32::from(code) }))
    })
}

fn standard_streams(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker.instance("wasi:cli/stdin@0.2.0")?.func_wrap("get-stdin", |mut store: Store<'_>, (): ()| {
        let state = store.data_mut();
        state.ledger.count()?;
        let rest = match &state.program {
            Program::World => Bytes::new(),
            // SECURITY: each stream reads the input from its beginning, and shares it with the others. Thousands of them cost nothing.
            Program::Command { input, .. } => input.clone(),
        };
        let stream: DynInputStream = Box::new(Input { ledger: state.ledger.clone(), rest });
        Ok((state.table.push(stream)?,))
    })?;
    linker.instance("wasi:cli/stdout@0.2.0")?.func_wrap("get-stdout", |mut store: Store<'_>, (): ()| {
        let state = store.data_mut();
        state.ledger.count()?;
        let leads = match state.program {
            Program::World => Leads::Log(LogLevel::Info),
            Program::Command { .. } => Leads::Answer,
        };
        Ok((output(state, leads)?,))
    })?;
    linker.instance("wasi:cli/stderr@0.2.0")?.func_wrap("get-stderr", |mut store: Store<'_>, (): ()| {
        let state = store.data_mut();
        state.ledger.count()?;
        Ok((output(state, Leads::Complaint)?,))
    })
}

fn output(state: &mut CallState, leads: Leads) -> wasmtime::Result<Resource<DynOutputStream>> {
    let stream: DynOutputStream = Box::new(Output { ledger: state.ledger.clone(), listener: state.listener(), leads });
    Ok(state.table.push(stream)?)
}

struct TerminalInput;
struct TerminalOutput;

/// There is no terminal.
fn terminals(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let gone = |_: Store<'_>, _: u32| Ok(());
    linker.instance("wasi:cli/terminal-input@0.2.0")?.resource(
        "terminal-input",
        ResourceType::host::<TerminalInput>(),
        gone,
    )?;
    linker.instance("wasi:cli/terminal-output@0.2.0")?.resource(
        "terminal-output",
        ResourceType::host::<TerminalOutput>(),
        gone,
    )?;
    linker
        .instance("wasi:cli/terminal-stdin@0.2.0")?
        .func_wrap("get-terminal-stdin", |_: Store<'_>, (): ()| Ok((None::<Resource<TerminalInput>>,)))?;
    linker
        .instance("wasi:cli/terminal-stdout@0.2.0")?
        .func_wrap("get-terminal-stdout", |_: Store<'_>, (): ()| Ok((None::<Resource<TerminalOutput>>,)))?;
    linker
        .instance("wasi:cli/terminal-stderr@0.2.0")?
        .func_wrap("get-terminal-stderr", |_: Store<'_>, (): ()| Ok((None::<Resource<TerminalOutput>>,)))
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

fn clocks(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut wall = linker.instance("wasi:clocks/wall-clock@0.2.0")?;
    wall.func_wrap("now", |mut store: Store<'_>, (): ()| {
        let millis = super::skill::now(store.data_mut(), "wasi:clocks/wall-clock.now")?;
        let nanoseconds = u32::try_from(millis % 1_000 * 1_000_000)?;
        Ok((Datetime { seconds: millis / 1_000, nanoseconds },))
    })?;
    wall.func_wrap("resolution", |store: Store<'_>, (): ()| {
        enter_clock(store.data(), "wasi:clocks/wall-clock.resolution")?;
        Ok((Datetime { seconds: 0, nanoseconds: 1_000_000 },))
    })?;
    let mut monotonic = linker.instance("wasi:clocks/monotonic-clock@0.2.0")?;
    monotonic.func_wrap("now", |mut store: Store<'_>, (): ()| {
        Ok((super::skill::monotonic(store.data_mut(), "wasi:clocks/monotonic-clock.now")?,))
    })?;
    monotonic.func_wrap("resolution", |store: Store<'_>, (): ()| {
        enter_clock(store.data(), "wasi:clocks/monotonic-clock.resolution")?;
        Ok((1_u64,))
    })?;
    monotonic.func_wrap("subscribe-instant", |mut store: Store<'_>, (when,): (u64,)| {
        let state = store.data_mut();
        enter_clock(state, "wasi:clocks/monotonic-clock.subscribe-instant")?;
        // Nobody is told this time, so it is not written down. What polling finds is.
        let now = state.listener().map_or(when, |host| host.monotonic());
        Ok((deadline(state, when.saturating_sub(now))?,))
    })?;
    monotonic.func_wrap("subscribe-duration", |mut store: Store<'_>, (nanos,): (u64,)| {
        enter_clock(store.data(), "wasi:clocks/monotonic-clock.subscribe-duration")?;
        Ok((deadline(store.data_mut(), nanos)?,))
    })
}

fn enter_clock(state: &CallState, function: &'static str) -> wasmtime::Result<()> {
    state.enter(function, "clock", state.grants.clock)
}

fn deadline(state: &mut CallState, nanos: u64) -> wasmtime::Result<Resource<DynPollable>> {
    let until = tokio::time::Instant::now().checked_add(Duration::from_nanos(nanos));
    let deadline = state.table.push(Deadline(until))?;
    subscribe(&mut state.table, deadline)
}

/// A moment. `None` is one that never comes.
struct Deadline(Option<tokio::time::Instant>);

#[async_trait]
impl Pollable for Deadline {
    async fn ready(&mut self) {
        match self.0 {
            Some(moment) => tokio::time::sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }
}

fn randomness(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut random = linker.instance("wasi:random/random@0.2.0")?;
    random.func_wrap_async("get-random-bytes", |mut store: Store<'_>, (length,): (u64,)| {
        Box::new(async move {
            store.data_mut().pause().await;
            Ok((super::skill::random(store.data_mut(), "wasi:random/random.get-random-bytes", length)?,))
        })
    })?;
    random.func_wrap("get-random-u64", |mut store: Store<'_>, (): ()| {
        let bytes = super::skill::random(store.data_mut(), "wasi:random/random.get-random-u64", 8)?;
        let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| wasmtime::Error::msg("there is no randomness"))?;
        Ok((u64::from_le_bytes(bytes),))
    })?;
    let mut insecure = linker.instance("wasi:random/insecure@0.2.0")?;
    insecure.func_wrap_async("get-insecure-random-bytes", |mut store: Store<'_>, (length,): (u64,)| {
        Box::new(async move {
            let state = store.data_mut();
            state.pause().await;
            state.ledger.count()?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let _handed = state.hold_to(length)?;
            let mut bytes = Vec::with_capacity(length);
            while bytes.len() < length {
                bytes.extend_from_slice(&guessable(state).to_le_bytes());
            }
            bytes.truncate(length);
            Ok((bytes,))
        })
    })?;
    insecure.func_wrap("get-insecure-random-u64", |mut store: Store<'_>, (): ()| {
        store.data().ledger.count()?;
        Ok((guessable(store.data_mut()),))
    })?;
    linker.instance("wasi:random/insecure-seed@0.2.0")?.func_wrap("insecure-seed", |mut store: Store<'_>, (): ()| {
        store.data().ledger.count()?;
        let state = store.data_mut();
        Ok(((guessable(state), guessable(state)),))
    })
}

/// The next number of a sequence that is the same in every call (SplitMix64).
fn guessable(state: &mut CallState) -> u64 {
    state.insecure = state.insecure.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = state.insecure;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl poll::Host for CallState {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        const FUNCTION: &str = "wasi:io/poll.poll";
        self.pause().await;
        self.ledger.count()?;
        let asked = json!(pollables.len());
        if let Some(found) = self.recall(FUNCTION, &asked)? {
            return Ok(found?);
        }
        let found = Ok(self.table.poll(pollables).await?);
        self.note(FUNCTION, asked, &found);
        Ok(found?)
    }
}

impl poll::HostPollable for CallState {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        const FUNCTION: &str = "wasi:io/poll.ready";
        self.pause().await;
        self.ledger.count()?;
        if let Some(found) = self.recall(FUNCTION, &().to_value())? {
            return Ok(found?);
        }
        let found = Ok(self.table.ready(pollable).await?);
        self.note(FUNCTION, ().to_value(), &found);
        Ok(found?)
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.ledger.count()?;
        // There is nothing to find out, so a replay has nothing to wait for.
        if self.listener().is_none() { Ok(()) } else { self.table.block(pollable).await }
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.table.drop(pollable)
    }
}
