//! The init's own life: fork the process that becomes the tool, watch it, end the tree, report.
//!
//! Guarantees: one `Refused`, or one `Started` and one `Ended`. The wall clock runs from the order, here, so that a daemon that
//! hangs does not prolong it.
//! Does not: see the order or touch the tool's output. The process that becomes the tool is forked before there is an order, and
//! gets it itself.

use core::time::Duration;

use crate::{
    kernel::{self, Errno, Shared},
    limits::ProcessWatch,
    program::{self, Program, Progress},
    protocol::{self, Cause, Report, Step, TreeUsage, layer},
    tree,
};

/// The control socket.
const CONTROL: i32 = 0;

/// The socket from which the order comes, until there is a process to read it.
const ORDERS: i32 = 1;

/// What the standard streams are when they are nothing else.
const NOTHING: i32 = 2;

/// How long one process that is killed gets to be gone, before the whole machine is searched for its like.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Tells the daemon something. A daemon that is gone needs to know nothing.
pub fn report(report: &Report) {
    let _ = kernel::write_all(CONTROL, &report.encode());
}

/// Waits for an order and sees to its end.
pub fn supervise(signals: i32) -> Result<(), (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    let shared = kernel::share().map_err(at(Step::Fork))?;
    let [progress, told] = kernel::pipe().map_err(at(Step::Fork))?;
    let timer = kernel::timer().map_err(at(Step::Supervise))?;
    let init = kernel::own_pid();
    let tool = kernel::fork().map_err(at(Step::Fork))?;
    if tool == 0 {
        Program { orders: ORDERS, timer, init, shared }.run();
    }
    // The tool alone holds what it has to do with: the end of the pipe says that it runs or is no more.
    kernel::duplicate(NOTHING, ORDERS).map_err(at(Step::Fork))?;
    kernel::close(told);
    let mut watch = Watch { tool, shared, signals, timer, progress: Some(progress), processes: None, end: None };
    let (cause, children) = watch.until_end();
    let grace = match cause {
        // Nobody is left to say goodbye, or too many are.
        Cause::Itself | Cause::Processes => Duration::ZERO,
        // Nothing runs yet that could: there is one process, which still waits or prepares itself.
        _ if Progress::of(shared).is_none() => {
            kernel::kill(tool, kernel::SIGKILL);
            kernel::poll([signals], Some(A_MOMENT));
            Duration::ZERO
        }
        Cause::WallClock | Cause::Asked => Duration::from_millis(protocol::GRACE_MS),
    };
    if children {
        tree::end(signals, grace, |child| watch.collected(&child));
    }
    // If it was ready to run when it had to end, it may have run.
    watch.hear();
    watch.failure().map_or(Ok(()), Err)?;
    let (user_us, system_us, max_rss_kb) = kernel::children_usage();
    let (status, at) = watch.end.unwrap_or_default();
    let wall = at.saturating_sub(shared.get(program::ORDERED_AT));
    let usage = TreeUsage { user_us, system_us, max_rss_kb, wall_us: wall / 1000 };
    report(&Report::Ended { cause, status, usage });
    Ok(())
}

/// What the init knows about the tool while it runs.
struct Watch {
    tool: i32,
    /// What the tool-to-be says about itself.
    shared: Shared,
    signals: i32,
    timer: i32,
    /// The pipe that ends when the program runs, until it does.
    progress: Option<i32>,
    processes: Option<ProcessWatch>,
    /// The tool's wait status, and when it was collected.
    end: Option<(i32, u64)>,
}

impl Watch {
    /// Watches until the tool has ended or has to end. Says also whether the init has a child left.
    fn until_end(&mut self) -> (Cause, bool) {
        loop {
            let longest = self.processes.as_ref().map(|_| ProcessWatch::EVERY);
            let descriptors = [CONTROL, self.signals, self.progress.unwrap_or(-1), self.timer];
            let [asked, child, progress, out_of_time] = kernel::poll(descriptors, longest);
            if progress {
                self.hear();
            }
            if child {
                let children = tree::collect(|child| self.collected(&child));
                if self.end.is_some() {
                    // Before it ran, or after: it holds no pipe any more.
                    self.hear();
                    return (Cause::Itself, children);
                }
                tree::drain(self.signals);
            }
            // Whatever is said means one thing, and so does silence for ever.
            if asked {
                return (Cause::Asked, true);
            }
            if out_of_time {
                return (Cause::WallClock, true);
            }
            if self.processes.as_mut().is_some_and(ProcessWatch::is_exceeded) {
                return (Cause::Processes, true);
            }
        }
    }

    /// Hears the end of the pipe: the program runs, if it was ready to, and the daemon hears of it.
    fn hear(&mut self) {
        let Some(pipe) = self.progress.take() else { return };
        kernel::close(pipe);
        if let Some(Progress::Ready { layers, landlock }) = Progress::of(self.shared) {
            let pid = self.tool.cast_unsigned();
            report(&Report::Started { pid, layers: layers | layer::TREE_KILL, landlock });
            self.processes = ProcessWatch::new(self.shared);
        }
    }

    fn collected(&mut self, child: &tree::Collected) {
        if child.pid == self.tool && self.end.is_none() {
            self.end = Some((child.status, kernel::now()));
        }
    }

    /// Why the tool never ran, if it did not.
    fn failure(&self) -> Option<(Step, Errno)> {
        match Progress::of(self.shared) {
            Some(Progress::Ready { .. }) => None,
            Some(Progress::Failed { step, errno }) => Some((step, Errno(errno))),
            None => Some((Step::Execute, Errno(kernel::EINTR))),
        }
    }
}
