//! The init's own life: fork the process that becomes the tool, watch it, end the tree, report.
//!
//! Guarantees: one `Ended` for an order that was carried out. The wall clock runs from the word to go, here, so that a daemon that hangs
//! does not prolong it.
//! Does not: see the order, hear of the start, or touch the tool's output. The process that becomes the tool is forked before there
//! is an order, gets it itself, and sets the timers at which the init has to wake up.

use core::time::Duration;

use crate::{
    blueprint::Blueprint,
    enclosure,
    kernel::{self, Errno, Open, Shared},
    limits::ProcessWatch,
    notices::Notices,
    program::{self, Program, Progress, Timers},
    protocol::{self, Cause, Held, Report, Step, TreeUsage, layer},
    tree,
};

/// The control socket.
pub const CONTROL: i32 = 0;

/// The socket from which the order comes, as the daemon hands it over.
pub const ORDERS: i32 = 1;

/// What the standard streams are when they are nothing else.
const NOTHING: i32 = 2;

/// The list of the init's own children, in the place of that socket.
pub const CHILDREN: i32 = ORDERS;

/// How long one process that is killed gets to be gone, before the whole machine is searched for its like.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Tells the daemon something. A daemon that is gone needs to know nothing.
pub fn report(report: &Report) {
    let _ = kernel::write_all(CONTROL, &report.encode());
}

/// Waits for an order and sees to its end.
pub fn supervise(signals: i32, enclosure: Option<&Blueprint>) -> Result<(), (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    let shared = kernel::share().map_err(at(Step::Fork))?;
    let timers = Timers::new().map_err(at(Step::Supervise))?;
    let orders = kernel::copy_aside(ORDERS).map_err(at(Step::Supervise))?;
    // Opened now: when the tree is to be ended, the machine may have no descriptor left to give. Not every kernel is built to list them.
    let children = kernel::open(c"/proc/thread-self/children", Open::Read).unwrap_or(NOTHING);
    kernel::duplicate(children, CHILDREN).map_err(at(Step::Supervise))?;
    let init = kernel::own_pid();
    let [heard, told] = match enclosure {
        Some(_) => kernel::socket_pair().map_err(at(Step::Fork))?,
        None => [NONE; 2],
    };
    let tool = kernel::fork().map_err(at(Step::Fork))?;
    if tool == 0 {
        Program { orders, timers, init, shared, enclosure, told }.run();
    }
    // That process alone holds it now, so that its end says that the program runs, or that the process is no more.
    kernel::close(orders);
    let notices = match enclosure {
        Some(blueprint) => {
            kernel::close(told);
            enclosure::settle()?;
            Notices::from(heard, blueprint.noticed_error)
        }
        None => Notices::NONE,
    };
    let mut watch = Watch { tool, shared, signals, timers, notices, processes: None, end: None };
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
        match enclosure {
            Some(_) => tree::end_all(signals, grace, |child| watch.collected(&child)),
            None => tree::end(signals, grace, |child| watch.collected(&child)),
        }
    }
    watch.report(cause);
    Ok(())
}

/// What the init knows about the tool while it runs.
struct Watch {
    tool: i32,
    /// What the process says about itself that becomes the tool.
    shared: Shared,
    signals: i32,
    timers: Timers,
    /// Of refused calls.
    notices: Notices,
    processes: Option<ProcessWatch>,
    /// The tool's wait status, and when it was collected.
    end: Option<(i32, u64)>,
}

impl Watch {
    /// Watches until the tool has ended or has to end. Says also whether the init has a child left.
    fn until_end(&mut self) -> (Cause, bool) {
        loop {
            let Timers { wall, look } = self.timers;
            let waited = [CONTROL, self.signals, wall, look, self.notices.descriptor()];
            let [asked, child, out_of_time, time_to_look, noticed] = kernel::poll(waited, None);
            if noticed {
                self.notices.hear();
            }
            if child {
                let children = tree::collect(|child| self.collected(&child));
                if self.end.is_some() {
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
            if time_to_look && self.has_too_many_processes() {
                return (Cause::Processes, true);
            }
        }
    }

    fn has_too_many_processes(&mut self) -> bool {
        let mut times = [0; 8];
        let _ = kernel::read(self.timers.look, &mut times);
        if self.processes.is_none() {
            self.processes = ProcessWatch::new(self.shared);
        }
        self.processes.as_mut().is_some_and(ProcessWatch::is_exceeded)
    }

    fn collected(&mut self, child: &tree::Collected) {
        if child.pid == self.tool && self.end.is_none() {
            self.end = Some((child.status, kernel::now()));
        }
    }

    /// Tells how it ended, if it was told to go and did not refuse.
    fn report(&self, cause: Cause) {
        let held = match Progress::of(self.shared) {
            // The process has said so itself.
            Some(Progress::Failed) => return,
            Some(Progress::Ready(Held { layers, landlock })) => Held { layers: layers | ending(self.notices.is_enclosed()), landlock },
            // It was ended on the way.
            None => Held::default(),
        };
        let went_at = self.shared.get(program::WENT_AT);
        if went_at == 0 {
            return;
        }
        let (user_us, system_us, max_rss_kb) = kernel::children_usage();
        let (status, ended_at) = self.end.unwrap_or_default();
        let wall_us = ended_at.saturating_sub(went_at) / 1000;
        let usage = TreeUsage { user_us, system_us, max_rss_kb, wall_us };
        report(&Report::Ended { cause, status, usage, held, denied: self.notices.denied() });
    }
}

/// The layers that nothing is left by.
pub const fn ending(is_enclosed: bool) -> u64 {
    if is_enclosed { layer::TREE_KILL | layer::NAMESPACE_KILL } else { layer::TREE_KILL }
}

/// In the place of a descriptor that there is none of.
const NONE: i32 = -1;
