//! One MCP server, for as long as it is configured: reached in the background, and again when it is gone.
//!
//! Guarantees: there is one conversation with it at most; after a failure it is tried again after a while that grows, or at once when
//! somebody calls it, but not more often than every second; it is asked for its tools when it says that they have changed, the more seldom the
//! more often it says so, and every few minutes whatever it says.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use palyra_gate::{Gate, ServerHandle};
use palyra_types::visible::visible_block;
use palyra_upstream::{About, Client, ClientError, ServerSection, Tool};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    link::{Linked, Unreached, forbidden, reach},
    sent::{Leases, Sent},
};

/// A server.
pub(super) struct Server {
    /// How it is configured.
    pub(super) section: ServerSection,
    /// Where that stands.
    pub(super) origin: Origin,
    state: watch::Receiver<State>,
    /// What its tools were when it last told, so that what waits for a person does not go away while it is started again.
    last: Arc<Mutex<Option<Listed>>>,
    /// What it was sent, in this conversation and in those before.
    leases: Arc<Leases>,
    wanted: Arc<Notify>,
    work: JoinHandle<()>,
}

/// The tools that a server has told of.
pub(super) type Listed = Arc<[Arc<Tool>]>;

/// Where a server is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In `config.toml`.
    Config,
    /// By command.
    Command,
}

/// How a server is.
#[derive(Clone)]
pub(super) enum State {
    /// It is being started or connected to.
    Starting,
    /// It can be called.
    Up(Arc<Up>),
    /// It cannot be spoken with.
    Down(Unreached),
}

/// A server that can be called.
pub(super) struct Up {
    client: Client,
    leases: Arc<Leases>,
    /// What it is to receipts.
    pub(super) executor: &'static str,
    /// What holds it.
    pub(super) layers: Vec<String>,
}

impl Up {
    /// The conversation.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// What takes out of its answers what it was sent.
    pub(super) fn sent(&self) -> Sent {
        self.leases.sent()
    }

    /// What it says about itself.
    pub(super) const fn about(&self) -> &About {
        self.client.about()
    }
}

impl Server {
    /// Begins to reach a server. Whoever listens to `moved` hears of every change.
    pub(super) fn begin(gate: Gate, (section, origin): (ServerSection, Origin), moved: watch::Sender<u64>) -> Self {
        let (told, state) = watch::channel(State::Starting);
        let (wanted, last) = (Arc::new(Notify::new()), Arc::default());
        let leases = Arc::new(Leases::of(gate.clone(), &section));
        let life = Life {
            gate,
            section: section.clone(),
            told,
            last: Arc::clone(&last),
            leases: Arc::clone(&leases),
            wanted: Arc::clone(&wanted),
            moved,
        };
        Self { section, origin, state, last, leases, wanted, work: tokio::spawn(life.go_on()) }
    }

    /// How it is.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The tools that it told of last.
    pub(super) fn tools(&self) -> Option<Listed> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The conversation, as soon as there is one. What cannot be reached is tried once more, and no longer waited for than that takes.
    pub(super) async fn up(&self, within: Duration) -> Result<Arc<Up>, Unreached> {
        let slow = Unreached::new(
            format!("the server is not there within {} seconds", within.as_secs()),
            "give it more time with `call_seconds`, or call it again when it has started",
        );
        let up = timeout(within, self.reached()).await.unwrap_or(Err(slow));
        up.map_err(|unreached| unreached.without(&self.leases.sent()))
    }

    async fn reached(&self) -> Result<Arc<Up>, Unreached> {
        let mut state = self.state.clone();
        let mut was_tried = false;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                State::Up(up) => return Ok(up),
                State::Down(unreached) if was_tried => return Err(unreached),
                State::Down(_) => self.wanted.notify_one(),
                State::Starting => {}
            }
            was_tried = true;
            if state.changed().await.is_err() {
                return Err(Unreached::new("the server is not configured any more", "look at `palyra mcp list`"));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// The life of a server.
struct Life {
    gate: Gate,
    section: ServerSection,
    told: watch::Sender<State>,
    last: Arc<Mutex<Option<Listed>>>,
    leases: Arc<Leases>,
    wanted: Arc<Notify>,
    moved: watch::Sender<u64>,
}

impl Life {
    async fn go_on(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            self.tell(State::Starting);
            let unreached = match reach(&self.gate, &self.section, &self.leases).await {
                Ok(linked) => self.while_up(linked).await,
                Err(unreached) => unreached,
            };
            // SECURITY: a server can say why with what it was sent, and this is logged and told.
            let unreached = unreached.without(&self.leases.sent());
            let (name, why) = (&self.section.name, &unreached.why);
            tracing::warn!(server = %name, why, "an MCP server cannot be spoken with; it is tried again");
            self.tell(State::Down(unreached));
            pause = if begun.elapsed() > LONG_ENOUGH { FIRST_PAUSE } else { pause };
            // Whoever calls it does not wait for the pause to be over, but no server is started in a loop.
            sleep(LEAST_PAUSE).await;
            tokio::select! {
                () = sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Keeps the conversation until it is over, and tells why it is.
    async fn while_up(&self, linked: Linked) -> Unreached {
        let Linked { client, program, executor, layers } = linked;
        let mut changes = client.changes();
        let up = Arc::new(Up { client, leases: Arc::clone(&self.leases), executor, layers });
        let (mut is_told, mut gathering) = (false, Gathering::default());
        let forbidden = forbidden(&self.gate, &self.section);
        tokio::pin!(forbidden);
        let trouble = loop {
            match self.list(&up.client).await {
                Ok(()) if !is_told => {
                    is_told = true;
                    tracing::info!(server = %self.section.name, "an MCP server can be called");
                    self.tell(State::Up(Arc::clone(&up)));
                }
                Ok(()) => self.move_on(),
                // It may be busy with a call; if it is gone, that is noticed below.
                Err(error) if is_told && !gathering.has_changed => {
                    tracing::debug!(server = %self.section.name, %error, "an MCP server did not tell its tools again");
                }
                Err(error) => break (error.to_string(), error.advice().to_owned()),
            }
            gathering.listed = Instant::now();
            tokio::select! {
                trouble = up.client.ended() => break (trouble.to_string(), trouble.advice().to_owned()),
                Unreached { why, help, .. } = &mut forbidden => break (why, help),
                () = due(&mut changes, &mut gathering) => {}
            }
        };
        up.client.give_up();
        let (why, help) = trouble;
        let Some(end) = ended(program).await else { return Unreached::new(why, help) };
        Unreached { why: format!("{why}; {}", end.why), help, stderr: shown(&end.stderr) }
    }

    async fn list(&self, client: &Client) -> Result<(), ClientError> {
        let tools = client.tools(self.section.start()).await?;
        // SECURITY: a server can say of a tool what it was sent, and agents are told of tools.
        let sent = self.leases.sent();
        let tools: Vec<_> = tools.into_iter().filter_map(|tool| sent.hide_in_tool(tool)).collect();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(tools.into());
        Ok(())
    }

    fn tell(&self, state: State) {
        self.told.send_replace(state);
        self.move_on();
    }

    fn move_on(&self) {
        self.moved.send_modify(|count| *count += 1);
    }
}

/// How long changes of a server gather before it is asked for its tools. One that changes them all the time is asked now and then.
struct Gathering {
    pause: Duration,
    listed: Instant,
    /// Whether it said that they have changed, since it was asked last.
    has_changed: bool,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { pause: FIRST_GATHERING, listed: Instant::now(), has_changed: false }
    }
}

impl Gathering {
    /// The pause after a change that is told of now. It grows with every change that does not come after a quiet time.
    fn pause(&mut self, now: Instant) -> Duration {
        let is_quiet = now.duration_since(self.listed) > LONGEST_GATHERING;
        let pause = if is_quiet { FIRST_GATHERING } else { self.pause };
        self.pause = (pause * 2).min(LONGEST_GATHERING);
        pause
    }
}

/// Waits until a server is to be asked for its tools again: because it says that they have changed, or because it may have said nothing.
async fn due(changes: &mut watch::Receiver<u64>, gathering: &mut Gathering) {
    let then = gathering.listed + LISTED_AGAIN;
    gathering.has_changed = tokio::select! {
        () = gathered(changes, gathering) => true,
        () = sleep_until(then) => false,
    };
}

/// Waits for a change, and for those that come soon after it.
async fn gathered(changes: &mut watch::Receiver<u64>, gathering: &mut Gathering) {
    if changes.changed().await.is_err() {
        // Nobody tells of changes any more, as the conversation is over.
        std::future::pending::<()>().await;
    }
    sleep(gathering.pause(Instant::now())).await;
    changes.mark_unchanged();
}

async fn ended(program: Option<ServerHandle>) -> Option<palyra_gate::ServerEnd> {
    let mut program = program?;
    program.stop();
    timeout(ENDED_WITHIN, program.ended()).await.ok()
}

/// The last that a program wrote to standard error, for people to read.
pub(super) fn shown(stderr: &str) -> Option<String> {
    let text = visible_block(stderr.trim_end());
    (!text.is_empty()).then_some(text)
}

const LEAST_PAUSE: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(500);

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long a server has to be there for its next failure to count as the first.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

const FIRST_GATHERING: Duration = Duration::from_millis(200);

const LONGEST_GATHERING: Duration = Duration::from_secs(60);

/// After how long a server is asked for its tools that says nothing of them.
const LISTED_AGAIN: Duration = Duration::from_secs(300);

const ENDED_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_asked_again_when_it_says_that_its_tools_have_changed_and_after_a_while_if_it_says_nothing() {
        let (changed, mut changes) = watch::channel(0);
        let mut gathering = Gathering::default();
        changed.send_replace(1);
        due(&mut changes, &mut gathering).await;
        assert!(gathering.has_changed);
        let quiet = timeout(Duration::from_millis(50), due(&mut changes, &mut gathering));
        assert!(quiet.await.is_err(), "it is not asked all the time");
        gathering.listed = Instant::now() - LISTED_AGAIN;
        due(&mut changes, &mut gathering).await;
        assert!(!gathering.has_changed);
    }

    #[test]
    fn a_server_that_changes_its_tools_all_the_time_is_asked_once_a_minute_and_after_a_quiet_time_at_once() {
        let mut gathering = Gathering::default();
        let mut now = gathering.listed;
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let pause = gathering.pause(now);
            pauses.push(pause.as_millis());
            now += pause;
            gathering.listed = now;
        }
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        assert_eq!(gathering.pause(now + LONGEST_GATHERING + FIRST_GATHERING), FIRST_GATHERING);
    }
}
