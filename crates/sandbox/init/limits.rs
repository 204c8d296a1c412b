//! Resource limits of the program, each lowered to what the init itself may have.
//!
//! Guarantees: a limit is never raised, and one that cannot be set stops the start. No core files are written.
//! Does not: bound the tree as a whole, except in its number of processes. The others count for each process on its own.

use core::time::Duration;

use crate::{
    kernel::{self, Errno, Open, Shared},
    program,
    protocol::{Order, layer},
    tree,
};

/// The hard limits of this process, above which none of the program's can lie.
pub struct Hard([u64; 6]);

impl Hard {
    pub fn of_this_process() -> Result<Self, Errno> {
        let mut hard = [0; 6];
        for (limit, resource) in hard.iter_mut().zip(RESOURCES) {
            *limit = kernel::hard_limit(resource)?;
        }
        Ok(Self(hard))
    }

    /// Sees to it that no core is left of anything. Before the filters, which keep it so.
    pub fn leave_no_core(&self) -> Result<(), Errno> {
        let [most, ..] = self.0;
        kernel::set_limit(CORE, NO_CORE.min(most), NO_CORE.min(most))
    }

    /// Sets every limit of the order and returns the layers that are active for it.
    pub fn lower(&self, order: &Order, tasks: Option<u64>) -> Result<u64, Errno> {
        // The kernel counts every task of the user, the desktop's included, so a plain number would either stop the first fork or
        // nothing. All tasks of the machine are an upper bound of the user's that costs one read: the program gets at least what
        // it was given and at most as many more as other users have.
        let processes = tasks.map(|tasks| tasks.saturating_add(order.processes));
        let wanted = [
            None,
            Some(order.cpu_seconds),
            Some(order.address_space),
            Some(order.file_size),
            Some(order.open_files),
            processes,
        ];
        for ((wanted, resource), most) in wanted.into_iter().zip(RESOURCES).zip(self.0) {
            let Some(soft) = wanted else { continue };
            // SIGXCPU first, which a program may handle to leave something behind; SIGKILL a second later.
            let hard = if resource == CPU { soft.saturating_add(1) } else { soft };
            kernel::set_limit(resource, soft.min(most), hard.min(most))?;
        }
        let held = match processes {
            None => 0,
            Some(_) if ProcessWatch::is_needed() => layer::PROCESS_WATCH,
            Some(_) => layer::PROCESS_LIMIT,
        };
        Ok(layer::LIMITS | held)
    }
}

/// Counts processes where the kernel does not: it holds root to no limit.
pub struct ProcessWatch {
    most: u64,
    /// The fewest tasks that the machine was seen with.
    fewest: u64,
    count: TaskCount,
    looks: u64,
}

impl ProcessWatch {
    /// How often to look.
    pub const EVERY: Duration = Duration::from_millis(50);

    /// A watch for what the process said about itself before it became the program.
    pub fn new(shared: Shared) -> Option<Self> {
        let fewest = shared.get(program::TASKS).checked_sub(1)?;
        Some(Self { most: shared.get(program::PROCESSES), fewest, count: TaskCount::open()?, looks: 0 })
    }

    /// Whether the tree has more processes than it may. The tree is counted when the machine as a whole has grown by as many, and
    /// now and then in any case: something else may have shrunk.
    pub fn is_exceeded(&mut self) -> bool {
        let tasks = self.count.read().unwrap_or(u64::MAX);
        self.fewest = self.fewest.min(tasks);
        self.looks += 1;
        (tasks - self.fewest > self.most || self.looks.is_multiple_of(20)) && tree::size() > self.most
    }

    /// Whether there is need for one.
    pub fn is_needed() -> bool {
        kernel::user_id() == 0
    }
}

/// How many tasks there are on this machine.
pub struct TaskCount {
    file: i32,
}

impl TaskCount {
    pub fn open() -> Option<Self> {
        kernel::open(c"/proc/loadavg", Open::Read).ok().map(|file| Self { file })
    }

    /// The second number of the fourth field of `/proc/loadavg`.
    pub fn read(&self) -> Option<u64> {
        let mut text = [0; 64];
        let read = kernel::read_at(self.file, 0, &mut text).ok()?;
        let text = core::str::from_utf8(text.get(..read)?).ok()?;
        text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
    }
}

/// Less than any core file has, so there is none. Zero would still have the kernel hand a core to a program, on a machine that is set up so, and
/// that program is root's; one byte is what it takes for "to nobody".
const NO_CORE: u64 = 1;

const RESOURCES: [i32; 6] = [CORE, CPU, ADDRESS_SPACE, FILE_SIZE, OPEN_FILES, PROCESSES];

const CPU: i32 = 0;
const FILE_SIZE: i32 = 1;
const CORE: i32 = 4;
const PROCESSES: i32 = 6;
const OPEN_FILES: i32 = 7;
const ADDRESS_SPACE: i32 = 9;
