//! The task that accompanies one process: control socket, output, stop, outcome.
//!
//! Guarantees: it always comes to an end, with an outcome; an init that does not report in time is reminded, then killed. It collects the init.
//! Does not: measure time for the process. The init does; the clock here is for an init that fails to.

use std::{io, os::fd::OwnedFd, pin::Pin, time::Duration};

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{oneshot, watch},
    time::{Instant, Sleep, sleep_until, timeout},
};

use crate::{
    error::{SandboxProcessRunError as Error, SandboxProcessRunErrorKind as Kind},
    init::Init,
    orphans,
    outcome::{Ended, Layer, Outcome, StopCause, Usage},
    protocol::{self, Cause, REPORT_LENGTH, Report, Step, TreeUsage},
    stream::Stream,
};

/// Everything that belongs to one running process.
pub struct Supervision {
    /// The init, and where it reports.
    pub init: Init,
    pub control: UnixStream,
    pub stdout: Stream,
    pub stderr: Stream,
    /// The ends into which the process writes. While they are here too, its end is told once, by the init, and not before by each
    /// stream.
    pub held: [OwnedFd; 2],
    pub stop: watch::Receiver<Option<StopCause>>,
    /// What the init was told.
    pub wall: Duration,
    /// What to call it when that runs out.
    pub out_of_time: Ended,
}

impl Supervision {
    /// Hears from the init that the program runs, or why not, before there is anybody to stop it.
    pub async fn begin(self) -> Result<Begun, Error> {
        let overdue = Box::pin(sleep_until(in_time(self.wall.saturating_add(A_LITTLE))));
        let mut begun = Begun { supervision: self, watch: Watch::default(), overdue, buffer: Vec::new() };
        match begun.report().await {
            Some(Report::Started { pid, layers, landlock }) => {
                begun.watch.session = Some(pid);
                begun.watch.layers = Layer::from_bits(layers, landlock);
                Ok(begun)
            }
            other => {
                let Supervision { init, control, .. } = begun.supervision;
                tokio::spawn(init.collect(control));
                Err(refusal(other))
            }
        }
    }
}

/// A process that runs.
pub struct Begun {
    supervision: Supervision,
    watch: Watch,
    overdue: Pin<Box<Sleep>>,
    buffer: Vec<u8>,
}

impl Begun {
    /// Accompanies the process to its end.
    pub async fn run(mut self, outcome: oneshot::Sender<Outcome>) {
        self.buffer = vec![0; 64 << 10];
        let ended = match self.report().await {
            Some(Report::Ended { cause, status, usage }) => {
                self.watch.usage = from_tree(usage);
                match cause {
                    Cause::Itself => by_itself(status),
                    Cause::WallClock => self.supervision.out_of_time,
                    Cause::Processes => Ended::ProcessLimit,
                    Cause::Asked => Ended::Cancelled(self.watch.cause.unwrap_or(StopCause::CallerGone)),
                }
            }
            _ => {
                self.watch.session.into_iter().for_each(orphans::kill_session);
                Ended::SupervisorLost
            }
        };
        let Self { supervision: Supervision { init, control, mut stdout, mut stderr, held, .. }, watch, .. } = self;
        let captured = (stdout.finish(&mut self.buffer), stderr.finish(&mut self.buffer));
        let Watch { usage, layers, .. } = watch;
        let _ = outcome.send(Outcome { ended, stdout: captured.0, stderr: captured.1, usage, layers });
        // Only now does the live stream end, so that whoever waits for that finds the outcome.
        drop((stdout, stderr, held));
        init.collect(control).await;
    }

    /// Waits for the next report, or the end of the init, which is none. Meanwhile output is read and stops are passed on.
    async fn report(&mut self) -> Option<Report> {
        let Self { supervision, watch, overdue, buffer } = self;
        let mut report = [0; REPORT_LENGTH];
        let mut have = 0;
        loop {
            tokio::select! {
                read = supervision.control.read(report.get_mut(have..).unwrap_or_default()) => {
                    let read = read.unwrap_or(0);
                    have += read;
                    if read == 0 || have == REPORT_LENGTH {
                        return Report::decode(&report).filter(|_| read > 0);
                    }
                }
                () = supervision.stdout.readable(), if !buffer.is_empty() => supervision.stdout.read(buffer),
                () = supervision.stderr.readable(), if !buffer.is_empty() => supervision.stderr.read(buffer),
                cause = stopped(&mut supervision.stop), if watch.cause.is_none() => {
                    watch.cause = Some(cause);
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // The socket is empty in this direction. If the init is gone, that shows in the other one.
                    let _ = supervision.control.try_write(&[protocol::STOP]);
                }
                () = &mut *overdue => {
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // Somebody may have stopped it. It is killed only when nothing else helps: it alone knows the whole tree.
                    watch.reminders += 1;
                    supervision.init.signal(if watch.reminders < REMINDERS { Signal::CONT } else { Signal::KILL });
                }
            }
        }
    }
}

/// Sends the rest of an order that did not fit into the socket at once.
pub async fn send_rest(orders: UnixStream, unsent: &[u8], init: &Init) {
    let mut orders = orders;
    // A process that refuses the order while it is sent says so to the init, which reports it.
    if timeout(A_LITTLE, orders.write_all(unsent)).await.is_err() {
        init.signal(Signal::KILL);
    }
}

/// What is known about the process so far.
#[derive(Default)]
struct Watch {
    session: Option<u32>,
    layers: Vec<Layer>,
    usage: Usage,
    cause: Option<StopCause>,
    reminders: u32,
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
