//! The task that accompanies one process: control socket, output, stop, outcome.
//!
//! Guarantees: it always comes to an end, with an outcome; an init that does not report in time is reminded, then killed. It collects the init.
//! Does not: measure time for the process. The init does; the clock here is for an init that fails to.

use std::{collections::BTreeSet, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::{net::SendFlags, process::Signal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{oneshot, watch},
    time::{Instant, sleep_until},
};
use zeroize::Zeroizing;

use crate::{
    egress::{EgressServer, Observer},
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    init::Init,
    orphans,
    outcome::{Ended, Layer, Outcome, StopCause, Usage},
    plan::Limits,
    protocol::{self, Cause, Denied, Held, REPORT_LENGTH, Report, Step, TreeUsage},
    reason::{self, Reason},
    stream::Stream,
    tier_c::cgroup::Cgroup,
};

/// Everything that belongs to one process.
pub struct Supervision {
    /// The init, and where it reports.
    pub init: Init,
    pub control: std::os::unix::net::UnixStream,
    pub stdout: Stream,
    pub stderr: Stream,
    /// The ends into which the process writes. While they are here too, its end is told once, by the init, and not before by each
    /// stream.
    pub ends: Vec<OwnedFd>,
    pub stop: watch::Receiver<Option<StopCause>>,
    /// What the init was told.
    pub wall: Duration,
    /// What to call it when that runs out.
    pub out_of_time: Ended,
    /// What holds it besides what the init says.
    pub walls: Walls,
}

/// What a process is in, and what bounds it.
pub struct Walls {
    /// For an enclosure.
    pub enclosed: Option<Enclosed>,
    /// The limits of the plan.
    pub limits: Limits,
    /// The paths that it was given and that its enclosure does not hold.
    pub outside: Vec<String>,
    /// What serves its network.
    pub server: Option<EgressServer>,
    /// What looks at its connections, where nothing holds them.
    pub observer: Option<Observer>,
}

impl Walls {
    /// The layers: what the process and its init say, and what its enclosure is known to have.
    fn layers(&self, held: Held) -> Vec<Layer> {
        let mut layers = Layer::from_bits(held.layers, held.landlock);
        layers.extend(self.enclosed.iter().flat_map(|enclosed| enclosed.layers.iter().copied()));
        layers
    }
}

/// What belongs to the enclosure of a process that runs.
#[derive(Debug)]
pub struct Enclosed {
    /// The layers that are known without the init.
    pub layers: Vec<Layer>,
    /// What bounds the tree as a whole.
    pub cgroup: Option<Arc<Cgroup>>,
}

impl Supervision {
    /// Waits until the program runs, or it is clear why not. Nobody can stop it yet but by dropping this.
    pub async fn begin(self, orders: UnixStream, unsent: Zeroizing<Vec<u8>>) -> Result<Begun, Error> {
        let overdue = sleep_until(in_time(self.wall.saturating_add(A_LITTLE)));
        tokio::pin!(overdue);
        let mut watch = Watch::default();
        let answer = exchange(orders, unsent);
        tokio::pin!(answer);
        let (held, refused) = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                () = &mut overdue => {
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // The init knows by itself when the time is up, unless the process that has the order does nothing at all.
                    let _ = rustix::io::write(&self.control, &[protocol::STOP]);
                    watch.remind(&self.init);
                }
            }
        };
        // It said who it is before it waited for the order, and the init if there could be none.
        let said = refused.or_else(|| read_report(&self.control));
        let control = UnixStream::from_std(self.control);
        let control = control.map_err(|error| Error::new(Kind::SpawnFailed, error.to_string()))?;
        if watch.reminders > 0 {
            tokio::spawn(self.init.collect(control));
            return Err(Error::new(
                Kind::SpawnFailed,
                "the process that was to become the program did nothing in time",
            ));
        }
        if let Some(Report::Waiting { pid }) = said {
            // SECURITY: in an enclosure, numbers of processes are its own, and mean others outside.
            watch.session = Some(pid).filter(|_| self.walls.enclosed.is_none());
            let Self { init, stdout, stderr, ends, stop, wall, out_of_time, walls, .. } = self;
            return Ok(Begun { init, control, stdout, stderr, ends, stop, wall, out_of_time, walls, watch, held });
        }
        tokio::spawn(self.init.collect(control));
        Err(refusal(said))
    }
}

/// Sends what is left of the order, and returns what holds the program, if that is told now, and what is refused of the order, if anything is:
/// then the program does not run.
async fn exchange(mut orders: UnixStream, unsent: Zeroizing<Vec<u8>>) -> (Held, Option<Report>) {
    // Who refuses the order while it is sent says so.
    let _ = orders.write_all(&unsent).await;
    match next_word(&mut orders).await {
        // The kernel may still refuse the program.
        Some(Report::Holding { held }) => (held, next_word(&mut orders).await),
        refused => (Held::default(), refused),
    }
}

async fn next_word(orders: &mut UnixStream) -> Option<Report> {
    let mut word = [0; REPORT_LENGTH];
    orders.read_exact(&mut word).await.ok().and_then(|_| Report::decode(&word))
}

/// The report that is there already.
fn read_report(control: &std::os::unix::net::UnixStream) -> Option<Report> {
    let mut report = [0; REPORT_LENGTH];
    let read = rustix::io::read(control, &mut report).ok()?;
    Report::decode(&report).filter(|_| read == REPORT_LENGTH)
}

/// A process that runs.
pub struct Begun {
    init: Init,
    control: UnixStream,
    stdout: Stream,
    stderr: Stream,
    ends: Vec<OwnedFd>,
    stop: watch::Receiver<Option<StopCause>>,
    wall: Duration,
    out_of_time: Ended,
    walls: Walls,
    watch: Watch,
    /// What holds the program, if it told before it began.
    held: Held,
}

impl Begun {
    /// The layers that are known to hold it by now.
    pub fn layers(&self) -> Vec<Layer> {
        self.walls.layers(self.held)
    }

    /// Accompanies the process to its end.
    pub async fn run(mut self, outcome: oneshot::Sender<Outcome>) {
        let mut buffer = vec![0; 64 << 10];
        let (ended, usage, layers, denied) = match self.report(&mut buffer).await {
            Some(Report::Ended { cause, status, usage, held, denied }) => {
                let ended = match cause {
                    Cause::Itself => by_itself(status),
                    Cause::WallClock => self.out_of_time,
                    Cause::Processes => Ended::ProcessLimit,
                    Cause::Asked => Ended::Cancelled(self.watch.cause.unwrap_or(StopCause::CallerGone)),
                };
                (ended, from_tree(usage), self.walls.layers(held), denied)
            }
            _ => {
                self.watch.session.into_iter().for_each(orphans::kill_session);
                (Ended::SupervisorLost, Usage::default(), Vec::new(), Denied::default())
            }
        };
        let cgroup = self.walls.enclosed.and_then(|enclosed| enclosed.cgroup);
        let exceeded = cgroup.as_ref().map(|cgroup| cgroup.exceeded()).unwrap_or_default();
        let egress = match self.walls.server {
            Some(server) => Some(server.finish().await),
            None => None,
        };
        let unexpected = match self.walls.observer {
            Some(observer) => observer.finish().await,
            None => BTreeSet::new(),
        };
        let mut reasons = reason::known(ended, &denied, exceeded, &self.walls.limits, self.walls.outside);
        reasons.extend(egress.iter().flat_map(|summary| summary.refusals.iter().cloned().map(Reason::from)));
        drop(cgroup);
        let (stdout, stderr) = (self.stdout.finish(&mut buffer), self.stderr.finish(&mut buffer));
        let _ = outcome.send(Outcome { ended, stdout, stderr, usage, layers, reasons, egress, unexpected });
        // Only now does the live stream end, so that whoever waits for that finds the outcome.
        drop((self.stdout, self.stderr, self.ends));
        // Whoever waits for the outcome comes first; tidying up takes a while, and nobody waits for that.
        tokio::task::yield_now().await;
        self.init.collect(self.control).await;
    }

    /// Waits for the last report, or the end of the init, which is none. Meanwhile output is read and stops are passed on.
    async fn report(&mut self, buffer: &mut [u8]) -> Option<Report> {
        let overdue = sleep_until(in_time(self.wall.saturating_add(A_LITTLE)));
        tokio::pin!(overdue);
        let mut report = [0; REPORT_LENGTH];
        let mut have = 0;
        loop {
            tokio::select! {
                read = self.control.read(report.get_mut(have..).unwrap_or_default()) => {
                    let read = read.unwrap_or(0);
                    have += read;
                    if read == 0 || have == REPORT_LENGTH {
                        return Report::decode(&report).filter(|_| read > 0);
                    }
                }
                () = self.stdout.readable() => self.stdout.read(buffer),
                () = self.stderr.readable() => self.stderr.read(buffer),
                cause = stopped(&mut self.stop), if self.watch.cause.is_none() => {
                    self.watch.cause = Some(cause);
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // The socket is empty in this direction. If the init is gone, that shows in the other one. Not by way of the runtime,
                    // which may not know yet that it can be written to.
                    let _ = rustix::net::send(&self.control, &[protocol::STOP], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                }
                () = &mut overdue => {
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    self.watch.remind(&self.init);
                }
            }
        }
    }
}

/// What is known about the process so far.
#[derive(Default)]
struct Watch {
    session: Option<u32>,
    cause: Option<StopCause>,
    reminders: u32,
}

impl Watch {
    /// Somebody may have stopped the init. It is killed only when nothing else helps: it alone knows the whole tree.
    fn remind(&mut self, init: &Init) {
        self.reminders += 1;
        init.signal(if self.reminders < REMINDERS { Signal::CONT } else { Signal::KILL });
    }
}

/// Why the program did not start.
pub fn refusal(report: Option<Report>) -> Error {
    let Some(Report::Refused { step, errno }) = report else {
        return Error::new(Kind::SupervisorLost, "the supervisor ended before the program began");
    };
    let reason = rustix::io::Errno::from_raw_os_error(errno);
    let kind = match (step, reason) {
        (Step::Execute, rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Kind::ProgramNotFound,
        (
            Step::Execute,
            rustix::io::Errno::ACCESS
            | rustix::io::Errno::NOEXEC
            | rustix::io::Errno::ISDIR
            | rustix::io::Errno::LIBBAD
            | rustix::io::Errno::TXTBSY,
        ) => Kind::NotExecutable,
        (Step::Execute, rustix::io::Errno::TOOBIG) => Kind::InvalidInput,
        (Step::Program | Step::Directory | Step::Mount, rustix::io::Errno::STALE) => Kind::Changed,
        (Step::Program, _) => Kind::OutsideEnclosure,
        (Step::Directory, _) => Kind::DirectoryUnusable,
        (Step::Unchanged, _) => Kind::Changed,
        _ => Kind::SpawnFailed,
    };
    Error::new(kind, format!("{}: {}", during(step), io::Error::from(reason)))
}

const fn during(step: Step) -> &'static str {
    match step {
        Step::Order => "while reading the plan",
        Step::Supervise => "while becoming a supervisor",
        Step::Fork => "while forking",
        Step::Session => "while starting a session",
        Step::Streams => "while connecting the streams",
        Step::Directory => "while entering the working directory",
        Step::Privileges => "while giving up privileges",
        Step::Landlock => "while hiding directories",
        Step::Limits => "while setting limits",
        Step::Descriptors => "while closing descriptors",
        Step::Unchanged => "while looking at the program once more",
        Step::Execute => "while executing the program",
        Step::Cgroup => "while joining a cgroup",
        Step::User => "while becoming an ordinary user",
        Step::Mount => "while mounting a directory",
        Step::Network => "while opening the sockets of the network",
        Step::Capabilities => "while giving up capabilities",
        Step::Filter => "while filtering system calls",
        Step::Program => "while looking for the program in the enclosure",
    }
}

fn in_time(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now + A_YEAR)
}

async fn stopped(stop: &mut watch::Receiver<Option<StopCause>>) -> StopCause {
    match stop.wait_for(Option::is_some).await {
        Ok(cause) => cause.unwrap_or(StopCause::CallerGone),
        // Nobody is left who could stop it or wants its outcome.
        Err(_) => StopCause::CallerGone,
    }
}

/// A wait status as the kernel encodes it: the signal in the low seven bits, else the code in the next byte.
const fn by_itself(status: i32) -> Ended {
    match status & 0x7f {
        0 => Ended::Exited((status >> 8) & 0xff),
        signal => Ended::Signalled(signal),
    }
}

const fn from_tree(usage: TreeUsage) -> Usage {
    Usage {
        user: Duration::from_micros(usage.user_us),
        system: Duration::from_micros(usage.system_us),
        max_rss_kb: usage.max_rss_kb,
        wall: Duration::from_micros(usage.wall_us),
    }
}

/// How much longer than agreed the init may take before it is reminded. The grace between its two signals is part of it.
const A_LITTLE: Duration = Duration::from_secs(1);
/// How often, before it is given up on.
const REMINDERS: u32 = 60;
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
