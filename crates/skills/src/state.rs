//! What belongs to one call while it runs: its grants, its limits, who answers it and what it has said.
//!
//! Guarantees: every question passes through here. It is counted, it is refused if it was not granted, its answer is written down if
//! answers are, and a replay is answered from its recording without the host being asked.

use std::sync::Arc;

use palyra_package::{Grants, SkillLimits};
use serde_json::Value;
use tokio::runtime::Handle;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_io::{IoView, bytes::Bytes};

use crate::{
    host::{HostRefusal, SkillHost},
    ledger::{Ledger, end},
    limiter::{Handed, Limiter},
    metered::{Meter, Reading},
    outcome::SkillFailure,
    recording::{Recorder, Recording, Replay, Written},
    task::Task,
};

/// What belongs to one call while it runs.
pub(crate) struct CallState {
    pub(crate) table: ResourceTable,
    pub(crate) limiter: Limiter,
    pub(crate) ledger: Ledger,
    pub(crate) meter: Arc<Meter>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: SkillLimits,
    pub(crate) program: Program,
    /// Whether its instance was made.
    pub(crate) is_made: bool,
    /// Where the randomness that can be guessed is.
    pub(crate) insecure: u64,
    answers: Answers,
}

/// How a skill is made: as a world with a function, or as a command with standard input and output.
pub(crate) enum Program {
    /// Its input is an argument. What it writes goes to the log.
    World,
    /// What it is started with, and its standard input.
    Command { arguments: [String; 2], input: Bytes },
}

/// Who answers.
pub(crate) enum Answers {
    /// The host.
    Live(Live),
    /// A recording.
    Recorded(Replay),
}

/// A host that answers.
pub(crate) struct Live {
    pub(crate) host: Arc<dyn SkillHost>,
    /// Each answer is written down, if there is one.
    pub(crate) recorder: Option<Recorder>,
    /// Where the host works.
    pub(crate) runtime: Handle,
}

/// What a call begins with.
pub(crate) struct Beginning {
    pub(crate) limits: SkillLimits,
    pub(crate) grants: Arc<Grants>,
    pub(crate) program: Program,
    pub(crate) answers: Answers,
    pub(crate) meter: Arc<Meter>,
    pub(crate) limiter: Limiter,
}

impl CallState {
    /// The state of a call that has not begun.
    pub(crate) fn new(beginning: Beginning) -> Self {
        let Beginning { limits, grants, program, answers, meter, limiter } = beginning;
        let mut table = ResourceTable::new();
        table.set_max_capacity(MOST_RESOURCES);
        let ledger = Ledger::new(&limits);
        Self { table, limiter, ledger, meter, grants, limits, program, is_made: false, insecure: 0, answers }
    }

    /// Counts a question, and ends the call if what it asks for was not granted.
    ///
    /// # Errors
    /// When there were too many, or it was not granted.
    pub(crate) fn enter(&self, function: &'static str, capability: &str, granted: bool) -> wasmtime::Result<()> {
        self.ledger.count()?;
        if !granted {
            return Err(end(SkillFailure::NotGranted { capability: capability.to_owned() }));
        }
        self.ledger.note(function);
        Ok(())
    }

    /// Gives the thread back if the call has had it for a while.
    ///
    /// SECURITY: code looks at the clock between its own instructions. Whoever has the host do much with few of them, such as hand over megabytes,
    /// would keep its thread, and hear neither the clock nor whoever wants it stopped.
    pub(crate) async fn pause(&mut self) {
        if !matches!(self.meter.read(), Reading::Early) {
            tokio::task::yield_now().await;
        }
    }

    /// Puts a question to whoever answers. How it is spelt comes from [`Self::spelt`].
    ///
    /// # Errors
    /// When a recording has another question here.
    pub(crate) async fn ask<T, F>(
        &mut self,
        function: &'static str,
        asked: Value,
        live: impl FnOnce(Arc<dyn SkillHost>) -> F,
    ) -> wasmtime::Result<Result<T, HostRefusal>>
    where
        T: Written + Send + 'static,
        F: Future<Output = Result<T, HostRefusal>> + Send + 'static,
    {
        self.pause().await;
        match &mut self.answers {
            Answers::Recorded(replay) => replay.answer(function, &asked).map_err(end),
            Answers::Live(Live { host, recorder, runtime }) => {
                // SECURITY: a future that is polled here runs on the stack of the skill, of which the skill may have used a part. The host
                // has needs that nobody here can bound, so it works elsewhere, on a stack of its own.
                let answer = Task::spawn(runtime, live(Arc::clone(host))).await;
                let answer = answer.map_err(|_| wasmtime::Error::msg("the host failed to answer"))?;
                if let Some(recorder) = recorder {
                    recorder.note(function, asked, &answer);
                }
                Ok(answer)
            }
        }
    }

    /// Puts a question that is answered at once.
    ///
    /// # Errors
    /// When a recording has another question here.
    pub(crate) fn ask_now<T: Written>(
        &mut self,
        function: &'static str,
        asked: impl FnOnce() -> Value,
        live: impl FnOnce(&dyn SkillHost) -> Result<T, HostRefusal>,
    ) -> wasmtime::Result<Result<T, HostRefusal>> {
        match &mut self.answers {
            Answers::Recorded(replay) => replay.answer(function, &asked()).map_err(end),
            Answers::Live(Live { host, recorder, .. }) => {
                let answer = live(host.as_ref());
                if let Some(recorder) = recorder {
                    recorder.note(function, asked(), &answer);
                }
                Ok(answer)
            }
        }
    }

    /// A question as it is compared or written down, or nothing if it is neither. So many bytes of it are what the skill handed over.
    pub(crate) fn spelt(&mut self, bytes: usize, spell: impl FnOnce() -> Value) -> Value {
        let is_wanted = match &mut self.answers {
            Answers::Recorded(_) => true,
            Answers::Live(Live { recorder, .. }) => {
                recorder.as_mut().is_some_and(|recorder| recorder.makes_room(bytes))
            }
        };
        if is_wanted { spell() } else { Value::Null }
    }

    /// What was recorded, if the call is answered from a recording.
    ///
    /// # Errors
    /// When the recording has another question here.
    pub(crate) fn recall<T: Written>(
        &mut self,
        function: &'static str,
        asked: &Value,
    ) -> wasmtime::Result<Option<Result<T, HostRefusal>>> {
        match &mut self.answers {
            Answers::Recorded(replay) => replay.answer(function, asked).map(Some).map_err(end),
            Answers::Live(_) => Ok(None),
        }
    }

    /// Writes down what the engine itself answered, if answers are written down.
    pub(crate) fn note<T: Written>(&mut self, function: &'static str, asked: Value, answer: &Result<T, HostRefusal>) {
        if let Answers::Live(Live { recorder: Some(recorder), .. }) = &mut self.answers {
            recorder.note(function, asked, answer);
        }
    }

    /// Who hears what the call says, if anybody does.
    pub(crate) fn listener(&self) -> Option<Arc<dyn SkillHost>> {
        match &self.answers {
            Answers::Live(Live { host, .. }) => Some(Arc::clone(host)),
            Answers::Recorded(_) => None,
        }
    }

    /// Refuses more bytes than may be handed over at once. What is handed over is memory of the host as long as what comes back is there, and so
    /// counts among what all calls have together.
    ///
    /// # Errors
    /// When there are more, or all calls together have no more.
    pub(crate) fn hold_to(&self, bytes: usize) -> wasmtime::Result<Handed> {
        let limit = self.limits.host_bytes;
        let Some(bytes) = u64::try_from(bytes).ok().filter(|&bytes| bytes <= limit) else {
            return Err(end(SkillFailure::HandedTooMuch { limit }));
        };
        self.limiter.hand(bytes.saturating_mul(COPIES)).map_err(end)
    }

    /// What was written down, or what a replay did not ask.
    ///
    /// # Errors
    /// When a replay asked less than was recorded.
    pub(crate) fn finish(self) -> Result<Option<Recording>, SkillFailure> {
        match self.answers {
            Answers::Live(Live { recorder, .. }) => Ok(recorder.and_then(Recorder::finish)),
            Answers::Recorded(replay) => replay.finished().map(|()| None),
        }
    }
}

impl IoView for CallState {
    fn table(&mut self) -> &mut ResourceTable {
        &mut self.table
    }
}

/// How often the host has what is handed over: as it came, as it is written down, and as it is sent or kept.
const COPIES: u64 = 3;
/// Streams and pollables that a call may hold at once.
const MOST_RESOURCES: usize = 1_000;
