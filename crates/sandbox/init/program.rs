//! The way to the program: what the process does to itself, before its order and after it, until it becomes the program.
//!
//! What does not depend on the order is done while there is none, and what does not depend on the word to go before that comes, so that a
//! call does not wait for it.
//! Guarantees: the program starts with every layer that the report names, and after the word to go, or does not start. The socket of the
//! order closes on exec, and so says when.
//! Does not: choose anything. The order does.

use alloc::{ffi::CString, vec, vec::Vec};
use core::{convert::Infallible, time::Duration};

use crate::{
    blueprint::Blueprint,
    enclosure, filter,
    kernel::{self, Again, Errno, Open, Prctl, Shared},
    landlock::Landlock,
    limits::{Hard, ProcessWatch, TaskCount},
    probe,
    protocol::{self, Held, Order, Report, Step, Unchanged, layer},
    supervisor,
};

/// When the word to go came, in nanoseconds; in what the process shares with the init.
pub const WENT_AT: usize = 0;
/// How many processes the order allows.
pub const PROCESSES: usize = 1;
/// How many tasks the machine had then, plus one; zero if that is not known.
pub const TASKS: usize = 2;
/// How far it has come, and what holds it then: see [`Progress`].
const PROGRESS: [usize; 3] = [3, 4, 5];

/// How far the process has come with its order.
pub enum Progress {
    /// Every layer is set up; the program comes next.
    Ready(Held),
    /// A step failed, as the daemon knows by now.
    Failed,
}

impl Progress {
    /// What was told last, if anything was.
    pub fn of(shared: Shared) -> Option<Self> {
        match PROGRESS.map(|place| shared.get(place)) {
            [1, layers, landlock] => Some(Self::Ready(Held { layers, landlock: u32::try_from(landlock).ok()? })),
            [2, ..] => Some(Self::Failed),
            _ => None,
        }
    }

    fn tell(&self, shared: Shared) {
        let [kind, layers, landlock] = PROGRESS;
        match *self {
            Self::Ready(held) => {
                shared.set(layers, held.layers);
                shared.set(landlock, u64::from(held.landlock));
                shared.set(kind, 1);
            }
            Self::Failed => shared.set(kind, 2),
        }
    }
}

/// What wakes the init up, which shares them.
#[derive(Clone, Copy)]
pub struct Timers {
    /// When the time is up.
    pub wall: i32,
    /// When it is time to count processes.
    pub look: i32,
}

impl Timers {
    /// Two that are not set.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { wall: kernel::timer()?, look: kernel::timer()? })
    }

    fn set(self, wall_ms: u64) -> Result<(), Errno> {
        kernel::set_timer(self.wall, Duration::from_millis(wall_ms), Again::Never)?;
        if ProcessWatch::is_needed() {
            kernel::set_timer(self.look, ProcessWatch::EVERY, Again::Always)?;
        }
        Ok(())
    }
}

/// What the process was given when it was forked.
pub struct Program<'a> {
    /// Where the order comes from.
    pub orders: i32,
    /// What wakes the init.
    pub timers: Timers,
    /// The process that forked it.
    pub init: i32,
    /// Where to tell the progress.
    pub shared: Shared,
    /// What is around it.
    pub enclosure: Option<&'a Blueprint>,
    /// Where to tell the init of an enclosure how refused calls are heard of.
    pub told: i32,
}

/// What was prepared before the order.
struct Prepared {
    hard: Hard,
    tasks: Option<TaskCount>,
    landlock: Landlock,
    /// The layers that are up.
    layers: u64,
}

impl Program<'_> {
    /// Becomes the program, or tells why not.
    pub fn run(&self) -> ! {
        let (step, Errno(errno)) = match self.prepare().and_then(|prepared| self.obey(&prepared)) {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        Progress::Failed.tell(self.shared);
        let _ = kernel::write_all(self.orders, &Report::Refused { step, errno }.encode());
        kernel::exit(127)
    }

    /// What is the same for every order.
    fn prepare(&self) -> Result<Prepared, (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        kernel::prctl(Prctl::SetParentDeathSignal, kernel::SIGKILL as usize).map_err(at(Step::Session))?;
        if kernel::parent_pid() != self.init {
            kernel::exit(127);
        }
        kernel::setsid().map_err(at(Step::Session))?;
        // Standard input is still the init's socket here.
        supervisor::report(&Report::Waiting { pid: kernel::own_pid().cast_unsigned() });
        let nothing = kernel::open(c"/dev/null", Open::Read).map_err(at(Step::Streams))?;
        kernel::duplicate(nothing, STDIN).map_err(at(Step::Streams))?;
        kernel::prctl(Prctl::SetNoNewPrivs, 1).map_err(at(Step::Privileges))?;
        // They stay blocked until the program starts.
        kernel::forget_signal_actions();
        let hard = Hard::of_this_process().map_err(at(Step::Limits))?;
        if !self.is_unlimited() {
            hard.leave_no_core().map_err(at(Step::Limits))?;
        }
        let landlock = Landlock::of_this_kernel();
        match self.enclosure {
            Some(blueprint) => {
                let layers = self.close_in(blueprint, &landlock)?;
                Ok(Prepared { hard, tasks: None, landlock, layers })
            }
            None => {
                let layers = filter::keep_limits_of_others();
                Ok(Prepared { hard, tasks: TaskCount::open(), landlock, layers })
            }
        }
    }

    /// The walls of an enclosure, which are the same for every order. From here on this process can do what the tool can, and no more.
    fn close_in(&self, blueprint: &Blueprint, landlock: &Landlock) -> Result<u64, (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        let walls = landlock.enclose(blueprint).map_err(at(Step::Landlock))?;
        let dropped = give_up_capabilities(blueprint).map_err(at(Step::Capabilities))?;
        let (filtered, notices) = filter::install(blueprint).map_err(at(Step::Filter))?;
        if let Some(notices) = notices {
            kernel::send(self.told, &[0], &[notices]).map_err(at(Step::Filter))?;
            kernel::close(notices);
        }
        kernel::close(self.told);
        Ok(walls | filtered | dropped)
    }

    /// Whether limits are switched off for a test.
    const fn is_unlimited(&self) -> bool {
        #[cfg(weak)]
        if let Some(blueprint) = self.enclosure {
            return blueprint.is_without(crate::blueprint::weakness::LIMITS);
        }
        false
    }

    /// Waits for the order and carries it out. Returns only when a step fails.
    fn obey(&self, prepared: &Prepared) -> Result<Infallible, (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        let Ordered { order, fds, go } = read_order(self.orders).map_err(at(Step::Order))?;
        if order.is_for_walls {
            self.start_clock(&order)?;
            let walls = prepared.landlock.build(&order.hidden).map_err(at(Step::Landlock))?;
            kernel::send(self.orders, &[0], &[walls]).map_err(at(Step::Landlock))?;
            kernel::exit(0);
        }
        let broken = || (Step::Order, Errno(kernel::EINVAL));
        let given = Given::with(&order, &fds).ok_or_else(broken)?;
        let args = c_strings(&order.args).ok_or_else(broken)?;
        let env = c_strings(&order.env).ok_or_else(broken)?;
        let (held, program) = self.set_up(&order, given, prepared)?;
        if order.is_probe {
            let report = Report::Probed { passed: probe::look(), held };
            kernel::write_all(self.orders, &report.encode()).map_err(at(Step::Execute))?;
            kernel::exit(0);
        }
        let Some(program) = program else {
            self.start_clock(&order)?;
            Progress::Ready(held).tell(self.shared);
            kernel::exit(0);
        };
        if !go {
            await_go(self.orders).map_err(at(Step::Order))?;
        }
        self.start_clock(&order)?;
        kernel::release_signals();
        compare(&order.unchanged, program).map_err(at(Step::Unchanged))?;
        Progress::Ready(held).tell(self.shared);
        if order.tells_holding {
            let ending = supervisor::ending(self.enclosure.is_some());
            let held = Held { layers: held.layers | ending, ..held };
            kernel::write_all(self.orders, &Report::Holding { held }.encode()).map_err(at(Step::Execute))?;
        }
        Err((Step::Execute, kernel::execute(program, &args, &env)))
    }

    fn start_clock(&self, order: &Order) -> Result<(), (Step, Errno)> {
        self.shared.set(WENT_AT, kernel::now());
        self.timers.set(order.wall_ms).map_err(|errno| (Step::Supervise, errno))
    }

    /// Returns what holds the process then, and the program, unless there is none.
    fn set_up(
        &self,
        order: &Order,
        given: Given,
        prepared: &Prepared,
    ) -> Result<(Held, Option<i32>), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        if let Some([stdout, stderr]) = given.output {
            kernel::duplicate(stdout, STDOUT).map_err(at(Step::Streams))?;
            kernel::duplicate(stderr, STDERR).map_err(at(Step::Streams))?;
        }
        // Without one, the null device is there already.
        given.stdin.map_or(Ok(()), |stdin| kernel::duplicate(stdin, STDIN)).map_err(at(Step::Streams))?;
        let (directory, program) = match &order.inside {
            // SECURITY: by their paths, as this process sees them: a directory of the machine would lead out of the enclosure.
            Some(inside) => (
                Some(enclosure::find(&inside.directory).map_err(at(Step::Directory))?),
                Some(enclosure::find(&inside.program).map_err(at(Step::Program))?),
            ),
            None => (given.directory, given.program),
        };
        directory.map_or(Ok(()), kernel::enter).map_err(at(Step::Directory))?;
        let walls = match self.enclosure {
            Some(_) => 0,
            None => prepared.landlock.restrict(&order.hidden, given.walls).map_err(at(Step::Landlock))?,
        };
        // Limits come after Landlock, which may open files, and before the descriptors are closed.
        let tasks = match self.enclosure {
            // The kernel counts the processes of its namespace there, of which two are not the tool's.
            Some(_) => Some(2),
            None => prepared.tasks.as_ref().and_then(TaskCount::read),
        };
        self.shared.set(PROCESSES, order.processes);
        self.shared.set(TASKS, tasks.map_or(0, |tasks| tasks.saturating_add(1)));
        let limits =
            if self.is_unlimited() { 0 } else { prepared.hard.lower(order, tasks).map_err(at(Step::Limits))? };
        let closed = self.enclosure.map_or_else(|| kernel::close_on_exec_from(3), enclosure::close_descriptors);
        closed.map_err(at(Step::Descriptors))?;
        let always = layer::SESSION | layer::NO_NEW_PRIVS | layer::CLOSED_FDS | layer::CLEARED_ENVIRONMENT;
        #[cfg(weak)]
        let always = match self.enclosure {
            Some(blueprint) if blueprint.is_without(crate::blueprint::weakness::CLOSE_RANGE) => always & !layer::CLOSED_FDS,
            _ => always,
        };
        let layers = always | walls | limits | prepared.layers;
        Ok((Held { layers, landlock: prepared.landlock.version() }, program))
    }
}

/// Gives up every capability for good, and returns the layer that this is.
fn give_up_capabilities(_blueprint: &Blueprint) -> Result<u64, Errno> {
    #[cfg(weak)]
    if _blueprint.is_without(crate::blueprint::weakness::CAPABILITIES) {
        return Ok(0);
    }
    kernel::drop_all_capabilities().map(|()| layer::NO_CAPABILITIES)
}

/// The descriptors that came with an order. There are none with a rehearsal.
#[derive(Clone, Copy, Default)]
struct Given {
    output: Option<[i32; 2]>,
    /// Both are named in the order instead, where there is an enclosure.
    directory: Option<i32>,
    program: Option<i32>,
    walls: Option<i32>,
    stdin: Option<i32>,
}

impl Given {
    fn with(order: &Order, fds: &[i32]) -> Option<Self> {
        let (given, rest) = match *fds {
            [stdout, stderr, ref rest @ ..] if order.inside.is_some() => {
                (Self { output: Some([stdout, stderr]), ..Self::default() }, rest)
            }
            [directory, stdout, stderr, program, ref rest @ ..] if order.inside.is_none() => {
                let (directory, program) = (Some(directory), Some(program));
                (Self { output: Some([stdout, stderr]), directory, program, ..Self::default() }, rest)
            }
            // SECURITY: descriptors that find no room here get lost, and a call must not pass for a rehearsal then.
            [] if order.args.is_empty() => (Self::default(), [].as_slice()),
            _ => return None,
        };
        let mut rest = rest.iter().copied();
        let mut next_if = |given: bool| if given { rest.next().map(Some) } else { Some(None) };
        Some(Self { walls: next_if(order.has_walls)?, stdin: next_if(order.has_stdin)?, ..given })
    }
}

/// What came from the daemon.
struct Ordered {
    order: Order,
    fds: Vec<i32>,
    /// Whether the word to go came along.
    go: bool,
}

/// Reads the order and the descriptors that come with it.
fn read_order(socket: i32) -> Result<Ordered, Errno> {
    let broken = || Errno(kernel::EINVAL);
    let mut fds = Vec::new();
    let mut bytes = vec![0; 16 << 10];
    let mut have = 0;
    let whole = loop {
        let room = bytes.get_mut(have..).ok_or_else(broken)?;
        match kernel::receive(socket, room, &mut fds)? {
            0 => return Err(broken()),
            received => have += received,
        }
        let Some(prefix) = bytes.first_chunk::<4>().filter(|_| have >= 4) else { continue };
        let whole = 4 + u32::from_le_bytes(*prefix) as usize;
        if whole > protocol::MAX_ORDER {
            return Err(broken());
        }
        if have >= whole {
            break whole;
        }
        bytes.resize(whole, 0);
    };
    let order = bytes.get(4..whole).and_then(Order::decode).ok_or_else(broken)?;
    let go = match bytes.get(whole..have) {
        Some([]) => false,
        Some([protocol::GO]) => true,
        _ => return Err(broken()),
    };
    Ok(Ordered { order, fds, go })
}

/// Waits for the word to go. Without a daemon there is none, and the process ends.
fn await_go(socket: i32) -> Result<(), Errno> {
    let mut word = [0];
    match kernel::read(socket, &mut word)? {
        0 => kernel::exit(127),
        _ if word == [protocol::GO] => Ok(()),
        _ => Err(Errno(kernel::EINVAL)),
    }
}

/// Looks once more at the files that were compared with a decision. The later this is, the less time there is to change one.
fn compare(files: &[Unchanged], program: i32) -> Result<(), Errno> {
    for Unchanged { path, stamp } in files {
        let file = if path.is_empty() { program } else { NO_DIRECTORY };
        let path = CString::new(path.as_slice()).map_err(|_| Errno(kernel::EINVAL))?;
        if kernel::stamp(file, &path)? != *stamp {
            return Err(Errno(kernel::ESTALE));
        }
    }
    Ok(())
}

fn c_strings(list: &[Vec<u8>]) -> Option<Vec<CString>> {
    list.iter().map(|bytes| CString::new(bytes.as_slice()).ok()).collect()
}

const STDIN: i32 = 0;
const STDOUT: i32 = 1;
const STDERR: i32 = 2;

/// In the place of a directory, for paths that are absolute.
const NO_DIRECTORY: i32 = -1;
