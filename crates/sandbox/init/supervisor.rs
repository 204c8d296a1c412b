//! The init's own life: read an order, fork the tool, watch, end the tree, report.
//!
//! Guarantees: one `Refused`, or one `Started` and one `Ended`. The wall clock runs from the fork, here, so that a daemon that
//! hangs does not prolong it.
//! Does not: touch the tool's output.

use std::time::{Duration, Instant};

use crate::{
    kernel::{self, Errno},
    limits::ProcessWatch,
    program::{Program, Progress},
    protocol::{self, Cause, Order, Report, Step, TreeUsage, layer},
    tree,
};

/// The control socket.
const CONTROL: i32 = 0;

/// Tells the daemon something. A daemon that is gone needs to know nothing.
pub fn report(report: &Report) {
    let _ = kernel::write_all(CONTROL, &report.encode());
}

/// Reads the order and the descriptors that come with it.
pub fn read_order() -> Result<(Order, Vec<i32>), Errno> {
    let broken = || Errno(kernel::EINVAL);
    let mut fds = Vec::new();
    let mut bytes = vec![0; 16 << 10];
    let mut have = 0;
    let whole = loop {
        let room = bytes.get_mut(have..).ok_or_else(broken)?;
        match kernel::receive(CONTROL, room, &mut fds)? {
            0 => return Err(broken()),
            received => have += received,
        }
        let Some(prefix) = bytes.first_chunk::<4>().filter(|_| have >= 4) else { continue };
        let whole = 4 + u32::from_le_bytes(*prefix) as usize;
        if whole > protocol::MAX_ORDER || have > whole {
            return Err(broken());
        }
        if have == whole {
            break whole;
        }
        bytes.resize(whole, 0);
    };
    let order = bytes.get(4..whole).and_then(Order::decode).ok_or_else(broken)?;
    Ok((order, fds))
}

/// Runs the order to its end.
pub fn supervise(order: &Order, fds: &[i32], signals: i32) -> Result<(), (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    let [progress, told] = kernel::pipe().map_err(at(Step::Fork))?;
    let init = kernel::own_pid();
    let mut processes = ProcessWatch::new(order);
    let started = Instant::now();
    let tool = kernel::fork().map_err(at(Step::Fork))?;
    if tool == 0 {
        Program { order, fds, pipe: told, init }.run();
    }
    // The tree alone holds the pipes now: when the daemon sees their end, so it is.
    fds.iter().copied().chain([told]).for_each(kernel::close);
    let mut watch =
        Watch { tool, progress: Some(progress), said: Vec::new(), status: None, started, wall: Duration::ZERO };
    let cause = watch.until_end(signals, deadline(started, order.wall_ms), processes.as_mut());
    let grace = match cause {
        // Nobody is left to say goodbye, or too many are.
        Cause::Itself | Cause::Processes => Duration::ZERO,
        Cause::WallClock | Cause::Asked => Duration::from_millis(protocol::GRACE_MS),
    };
    tree::end(signals, grace, |child| watch.collected(&child));
    if watch.progress.is_some() {
        // Stopped on the way to the program, which never ran.
        return Err((Step::Execute, Errno(kernel::EINTR)));
    }
    watch.failure().map_or(Ok(()), Err)?;
    let (user_us, system_us, max_rss_kb) = kernel::children_usage();
    let wall_us = u64::try_from(watch.wall.as_micros()).unwrap_or(u64::MAX);
    let usage = TreeUsage { user_us, system_us, max_rss_kb, wall_us };
    report(&Report::Ended { cause, status: watch.status.unwrap_or_default(), usage });
    Ok(())
}

/// A time so far away that the clock cannot say it is never.
fn deadline(from: Instant, wall_ms: u64) -> Instant {
    const YEAR_MS: u64 = 365 * 24 * 3600 * 1000;
    from + Duration::from_millis(wall_ms.min(YEAR_MS))
}

/// What the init knows about the tool while it runs.
struct Watch {
    tool: i32,
    /// The pipe through which the child tells its progress, until it is through.
    progress: Option<i32>,
    said: Vec<u8>,
    status: Option<i32>,
    started: Instant,
    wall: Duration,
}

impl Watch {
    /// Watches until the tool has ended or has to end.
    fn until_end(&mut self, signals: i32, deadline: Instant, mut processes: Option<&mut ProcessWatch>) -> Cause {
        let longest = if processes.is_some() { ProcessWatch::EVERY } else { Duration::MAX };
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(longest);
            let [asked, child, progress] = kernel::poll([CONTROL, signals, self.progress.unwrap_or(-1)], left);
            if progress {
                self.hear();
            }
            if child {
                tree::drain(signals);
                tree::collect(|child| self.collected(&child));
            }
            if self.status.is_some() {
                // A tool that has ended holds no pipe, so this comes to its end.
                while self.progress.is_some() {
                    self.hear();
                }
                return Cause::Itself;
            }
            // Whatever is said after the order means one thing, and so does silence for ever.
            if asked {
                return Cause::Asked;
            }
            if Instant::now() >= deadline {
                return Cause::WallClock;
            }
            if processes.as_mut().is_some_and(|processes| processes.is_exceeded()) {
                return Cause::Processes;
            }
        }
    }

    /// Reads from the progress pipe; at its end the tool runs, and the daemon hears of it.
    fn hear(&mut self) {
        let Some(pipe) = self.progress else { return };
        let mut buffer = [0; 256];
        match kernel::read(pipe, &mut buffer) {
            Ok(read) if read > 0 => self.said.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            _ => {
                kernel::close(pipe);
                self.progress = None;
                if let Some(Progress::Ready { layers, landlock }) = Progress::last_of(&self.said) {
                    let pid = self.tool.cast_unsigned();
                    report(&Report::Started { pid, layers: layers | layer::TREE_KILL, landlock });
                }
            }
        }
    }

    fn collected(&mut self, child: &tree::Collected) {
        if child.pid == self.tool && self.status.is_none() {
            self.status = Some(child.status);
            self.wall = self.started.elapsed();
        }
    }

    /// Why the tool never ran, if it did not.
    fn failure(&self) -> Option<(Step, Errno)> {
        match Progress::last_of(&self.said) {
            Some(Progress::Ready { .. }) => None,
            Some(Progress::Failed { step, errno }) => Some((step, Errno(errno))),
            None => Some((Step::Execute, Errno(kernel::EPERM))),
        }
    }
}
