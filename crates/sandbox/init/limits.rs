//! Resource limits of the program, each lowered to what the init itself may have.
//!
//! Guarantees: a limit is never raised, and one that cannot be set stops the start. No core files are written.
//! Does not: bound the tree as a whole, except in its number of processes. The others count for each process on its own.

use std::time::Duration;

use crate::{
    kernel::{self, Errno},
    protocol::{Order, layer},
    tree,
};

/// Sets every limit of the order and returns the layers that are active for it.
pub fn set(order: &Order) -> Result<u64, Errno> {
    lower(CORE, 0, 0)?;
    // SIGXCPU first, which a program may handle to leave something behind; SIGKILL a second later.
    lower(CPU, order.cpu_seconds, order.cpu_seconds.saturating_add(1))?;
    lower(ADDRESS_SPACE, order.address_space, order.address_space)?;
    lower(FILE_SIZE, order.file_size, order.file_size)?;
    lower(OPEN_FILES, order.open_files, order.open_files)?;
    let Some(tasks) = tasks_on_this_machine() else { return Ok(layer::LIMITS) };
    // The kernel counts every task of the user, the desktop's included, so a plain number would either stop the first fork or
    // nothing. All tasks of the machine are an upper bound of the user's that costs one read: the program gets at least what it
    // was given and at most as many more as other users have.
    let processes = tasks.saturating_add(order.processes);
    lower(PROCESSES, processes, processes)?;
    let held = if ProcessWatch::is_needed() { layer::PROCESS_WATCH } else { layer::PROCESS_LIMIT };
    Ok(layer::LIMITS | held)
}

/// Counts processes where the kernel does not: it holds root to no limit.
pub struct ProcessWatch {
    most: u64,
    /// The fewest tasks that the machine was seen with.
    fewest: u64,
    looks: u64,
}

impl ProcessWatch {
    /// How often to look.
    pub const EVERY: Duration = Duration::from_millis(50);

    /// A watch for an order, if there is need for one.
    pub fn new(order: &Order) -> Option<Self> {
        let fewest = tasks_on_this_machine().filter(|_| Self::is_needed())?;
        Some(Self { most: order.processes, fewest, looks: 0 })
    }

    /// Whether the tree has more processes than it may. The tree is counted when the machine as a whole has grown by as many, and
    /// now and then in any case: something else may have shrunk.
    pub fn is_exceeded(&mut self) -> bool {
        let tasks = tasks_on_this_machine().unwrap_or(u64::MAX);
        self.fewest = self.fewest.min(tasks);
        self.looks += 1;
        (tasks - self.fewest > self.most || self.looks.is_multiple_of(20)) && tree::size() > self.most
    }

    fn is_needed() -> bool {
        kernel::user_id() == 0
    }
}

fn lower(resource: i32, soft: u64, hard: u64) -> Result<(), Errno> {
    let most = kernel::hard_limit(resource)?;
    kernel::set_limit(resource, soft.min(most), hard.min(most))
}

/// The second number of the fourth field of `/proc/loadavg`.
fn tasks_on_this_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

const CPU: i32 = 0;
const FILE_SIZE: i32 = 1;
const CORE: i32 = 4;
const PROCESSES: i32 = 6;
const OPEN_FILES: i32 = 7;
const ADDRESS_SPACE: i32 = 9;
