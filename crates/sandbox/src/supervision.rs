//! The task that accompanies one process: control socket, output, stop, outcome.
//!
//! Guarantees: it always comes to an end, with an outcome; an init that does not report in time is reminded, then killed. It collects the init.
//! Does not: measure time for the process. The init does; the clock here is for an init that fails to.

use std::{io, time::Duration};

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{oneshot, watch},
    time::{Instant, sleep_until, timeout},
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
    pub init: Init,
    pub control: UnixStream,
    /// The rest of the order.
    pub unsent: Vec<u8>,
    pub stdout: Stream,
    pub stderr: Stream,
    pub stop: watch::Receiver<Option<StopCause>>,
    pub started: oneshot::Sender<Result<(), Error>>,
    pub outcome: oneshot::Sender<Outcome>,
    /// What the init was told.
    pub wall: Duration,
    /// What to call it when that runs out.
    pub out_of_time: Ended,
}

impl Supervision {
    /// Accompanies the process to its end.
    pub async fn run(mut self) {
        let mut watch = Watch::default();
        let overdue = sleep_until(in_time(self.wall.saturating_add(A_LITTLE)));
        tokio::pin!(overdue);
        let mut buffer = vec![0; 64 << 10];
        if !matches!(timeout(A_LITTLE, self.control.write_all(&self.unsent)).await, Ok(Ok(()))) {
            self.init.signal(Signal::KILL);
        }
        let mut starting = Some(self.started);
        let mut report = [0; REPORT_LENGTH];
        let mut have = 0;
        let last = loop {
            tokio::select! {
                read = self.control.read(report.get_mut(have..).unwrap_or_default()) => {
                    let read = read.unwrap_or(0);
                    have += read;
                    if read > 0 && have < REPORT_LENGTH {
                        continue;
                    }
                    have = 0;
                    match Report::decode(&report).filter(|_| read > 0) {
                        Some(Report::Started { pid, layers, landlock }) => {
                            watch.session = Some(pid);
                            watch.layers = Layer::from_bits(layers, landlock);
                            starting.take().map(|starting| starting.send(Ok(())));
                        }
                        other => break other,
                    }
                }
                () = self.stdout.readable() => self.stdout.read(&mut buffer),
                () = self.stderr.readable() => self.stderr.read(&mut buffer),
                cause = stopped(&mut self.stop), if watch.cause.is_none() => {
                    watch.cause = Some(cause);
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // The socket is empty in this direction. If the init is gone, that shows in the other one.
                    let _ = self.control.try_write(&[protocol::STOP]);
                }
                () = &mut overdue => {
                    overdue.as_mut().reset(in_time(A_LITTLE));
                    // Somebody may have stopped it. It is killed only when nothing else helps: it alone knows the whole tree.
                    watch.reminders += 1;
                    self.init.signal(if watch.reminders < REMINDERS { Signal::CONT } else { Signal::KILL });
                }
            }
        };
        let ended = match last {
            Some(Report::Ended { cause, status, usage }) => {
                watch.usage = from_tree(usage);
                match cause {
                    Cause::Itself => by_itself(status),
                    Cause::WallClock => self.out_of_time,
                    Cause::Processes => Ended::ProcessLimit,
                    Cause::Asked => Ended::Cancelled(watch.cause.unwrap_or(StopCause::CallerGone)),
                }
            }
            _ => {
                watch.session.into_iter().for_each(orphans::kill_session);
                Ended::SupervisorLost
            }
        };
        if let Some(starting) = starting {
            let _ = starting.send(Err(refusal(last)));
        }
        let stdout = self.stdout.finish(&mut buffer);
        let stderr = self.stderr.finish(&mut buffer);
        let _ = self.outcome.send(Outcome { ended, stdout, stderr, usage: watch.usage, layers: watch.layers });
        self.init.collect(self.control).await;
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
