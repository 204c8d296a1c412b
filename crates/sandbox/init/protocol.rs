//! What the daemon and the init say to each other, over two stream sockets. Both sides compile this file.
//!
//! The daemon sends one [`Order`] to the process that becomes the tool, which gets everything ready, and then [`GO`], before which nothing of
//! the program runs. That process says nothing if all goes well: its socket ends when the program runs, and so the daemon hears of that
//! from the kernel, without anybody else having to wake up. Otherwise it says what it [`Report::Refused`]. Where the order wants it, it says what it is
//! [`Report::Holding`] right before. On the other socket, the init's, there is a [`Report::Waiting`], then perhaps one [`STOP`] byte of the daemon,
//! then a [`Report::Ended`]. The end of this one in one direction means that the other side is gone.
//! Guarantees: reading never panics and never allocates more than the bytes that arrived.
//! Does not: version itself. Both sides come from the same build.

use alloc::{vec, vec::Vec};

/// The byte behind an order that lets the program start. An order for no program does without it.
pub const GO: u8 = b'>';

/// The byte that asks the init to end the tree early.
pub const STOP: u8 = b'!';

/// Longest order that is read. The kernel's own limit for arguments and environment is lower.
pub const MAX_ORDER: usize = 16 << 20;

/// How long a tree has between SIGTERM and SIGKILL.
pub const GRACE_MS: u64 = 200;

/// The length of a report.
pub const REPORT_LENGTH: usize = 8 * REPORT_NUMBERS;

/// The numbers that a report consists of.
const REPORT_NUMBERS: usize = 9 + Denied::NUMBERS;

/// What is to be run. The working directory, standard output, standard error, the program's file and, if given, Landlock's rules
/// and standard input travel beside it as descriptors, in this order; into an enclosure, where directory and program are found by
/// [`Inside`], only the streams. An order without arguments and descriptors asks for a rehearsal that sets every layer up and runs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// The arguments, the program's own name first.
    pub args: Vec<Vec<u8>>,
    /// The environment as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// Directories to hide, resolved and absolute.
    pub hidden: Vec<Vec<u8>>,
    /// Files that must be as they were.
    pub unchanged: Vec<Unchanged>,
    /// For an enclosure: where program and working directory are in it.
    pub inside: Option<Inside>,
    /// Milliseconds until the tree is ended.
    pub wall_ms: u64,
    /// Seconds of processor time for each process.
    pub cpu_seconds: u64,
    /// Bytes of address space for each process.
    pub address_space: u64,
    /// Processes and threads beyond those that exist.
    pub processes: u64,
    /// Bytes of the longest file that may be written.
    pub file_size: u64,
    /// Descriptors for each process.
    pub open_files: u64,
    /// Whether standard input comes along.
    pub has_stdin: bool,
    /// Whether rules that hide the directories come along.
    pub has_walls: bool,
    /// Whether such rules are all that is wanted: they come back as a descriptor, and nothing runs.
    pub is_for_walls: bool,
    /// Whether the enclosure is to be looked at from inside, and nothing runs.
    pub is_probe: bool,
    /// Whether to say what holds the program before it starts, and not only when it has ended.
    pub tells_holding: bool,
}

impl Order {
    /// The order as bytes, its own length first.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        for number in self.numbers() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for list in [&self.args, &self.env, &self.hidden] {
            put_list(&mut out, list);
        }
        out.extend_from_slice(&length(self.unchanged.len()));
        for Unchanged { path, stamp } in &self.unchanged {
            put(&mut out, path);
            for number in stamp.numbers() {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(&length(usize::from(self.inside.is_some())));
        for Named { path, device, inode } in self.inside.iter().flat_map(|inside| [&inside.program, &inside.directory])
        {
            put(&mut out, path);
            out.extend_from_slice(&device.to_le_bytes());
            out.extend_from_slice(&inode.to_le_bytes());
        }
        let body = length(out.len().saturating_sub(4));
        out.iter_mut().zip(body).for_each(|(place, byte)| *place = byte);
        out
    }

    /// Reads what [`Order::encode`] wrote, without the leading length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut order = Self {
            wall_ms: number(&mut rest)?,
            cpu_seconds: number(&mut rest)?,
            address_space: number(&mut rest)?,
            processes: number(&mut rest)?,
            file_size: number(&mut rest)?,
            open_files: number(&mut rest)?,
            has_stdin: number(&mut rest)? == 1,
            has_walls: number(&mut rest)? == 1,
            is_for_walls: number(&mut rest)? == 1,
            is_probe: number(&mut rest)? == 1,
            tells_holding: number(&mut rest)? == 1,
            ..Self::default()
        };
        for items in [&mut order.args, &mut order.env, &mut order.hidden] {
            *items = list(&mut rest)?;
        }
        for _ in 0..count(&mut rest)? {
            let path = take(&mut rest)?;
            let stamp = Stamp {
                device: number(&mut rest)?,
                inode: number(&mut rest)?,
                size: number(&mut rest)?,
                changed: [number(&mut rest)?, number(&mut rest)?],
                modified: [number(&mut rest)?, number(&mut rest)?],
            };
            order.unchanged.push(Unchanged { path, stamp });
        }
        if count(&mut rest)? > 0 {
            order.inside = Some(Inside { program: named(&mut rest)?, directory: named(&mut rest)? });
        }
        rest.is_empty().then_some(order)
    }

    fn numbers(&self) -> [u64; 11] {
        [
            self.wall_ms,
            self.cpu_seconds,
            self.address_space,
            self.processes,
            self.file_size,
            self.open_files,
            u64::from(self.has_stdin),
            u64::from(self.has_walls),
            u64::from(self.is_for_walls),
            u64::from(self.is_probe),
            u64::from(self.tells_holding),
        ]
    }
}

/// Where program and working directory are, for a process that sees other mounts than whoever wrote the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The program.
    pub program: Named,
    /// The working directory.
    pub directory: Named,
}

/// A file or directory by its path, and which one that must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its path.
    pub path: Vec<u8>,
    /// The file system, as in [`Stamp`].
    pub device: u64,
    /// The number within it.
    pub inode: u64,
}

/// A file that must be as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchanged {
    /// Its path, with links followed; empty for the program's file, which has a descriptor.
    pub path: Vec<u8>,
    /// What it was.
    pub stamp: Stamp,
}

/// Which file it is, how long it is and when it was last written to: with the kernel's own time, which nobody can set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The file system's major number in the upper half, its minor number in the lower.
    pub device: u64,
    /// The number within the file system.
    pub inode: u64,
    /// The length in bytes.
    pub size: u64,
    /// When anything about it changed, in seconds and nanoseconds.
    pub changed: [u64; 2],
    /// When its content changed, as far as its owner does not say otherwise.
    pub modified: [u64; 2],
}

impl Stamp {
    fn numbers(self) -> [u64; 7] {
        let Self { device, inode, size, changed: [changed, changed_ns], modified: [modified, modified_ns] } = self;
        [device, inode, size, changed, changed_ns, modified, modified_ns]
    }
}

/// What the init has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The program was not started; nothing is left of the attempt.
    Refused {
        /// The step that failed.
        step: Step,
        /// The kernel's reason.
        errno: i32,
    },
    /// There is a process that waits for the order.
    Waiting {
        /// Its process id, which is also its session.
        pid: u32,
    },
    /// An enclosure stands. Its sockets travel beside this, in the order of its blueprint.
    Enclosed {
        /// The numbers of its namespaces: user, mount, process, message, name, cgroup, network.
        namespaces: [u64; 7],
    },
    /// An enclosure was looked at from inside.
    Probed {
        /// The checks that passed, as [`probe`] bits.
        passed: u64,
        /// What holds it.
        held: Held,
    },
    /// The program starts next, if the kernel takes it.
    Holding {
        /// What holds it.
        held: Held,
    },
    /// Nothing of the tree is left.
    Ended {
        /// Why it ended.
        cause: Cause,
        /// The program's wait status.
        status: i32,
        /// What the whole tree used.
        usage: TreeUsage,
        /// What held it.
        held: Held,
        /// The system calls that it was refused.
        denied: Denied,
    },
}

/// System calls that a tree was refused, of those that are worth a notice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Denied {
    /// A bit for the number of each.
    pub numbers: [u64; 8],
    /// How often any of them was.
    pub count: u64,
}

impl Denied {
    /// How many numbers it travels as.
    const NUMBERS: usize = 9;

    /// The numbers of the calls.
    pub fn calls(&self) -> impl Iterator<Item = u32> {
        let numbers = self.numbers;
        (0..u32::try_from(64 * numbers.len()).unwrap_or(0))
            .filter(move |call| numbers.get(*call as usize / 64).is_some_and(|word| word >> (call % 64) & 1 == 1))
    }
}

/// What really held a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// The layers that were active, as [`layer`] bits.
    pub layers: u64,
    /// The version of Landlock, zero without it.
    pub landlock: u32,
}

/// What a tree used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// The largest resident set of one process, in kilobytes.
    pub max_rss_kb: u64,
    /// From the start of the program to its end, in microseconds.
    pub wall_us: u64,
}

impl Report {
    /// The report as [`REPORT_LENGTH`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut numbers = [0_u64; REPORT_NUMBERS];
        let mut put = |given: &[u64]| numbers.iter_mut().zip(given).for_each(|(place, number)| *place = *number);
        match *self {
            Self::Refused { step, errno } => put(&[0, step as u64, u64::from(errno.cast_unsigned())]),
            Self::Waiting { pid } => put(&[1, u64::from(pid)]),
            Self::Enclosed { namespaces: [user, mount, process, message, name, cgroup, network] } => {
                put(&[3, user, mount, process, message, name, cgroup, network]);
            }
            Self::Probed { passed, held: Held { layers, landlock } } => put(&[4, passed, layers, u64::from(landlock)]),
            Self::Holding { held: Held { layers, landlock } } => put(&[5, layers, u64::from(landlock)]),
            Self::Ended { cause, status, usage, held: Held { layers, landlock }, denied } => {
                let TreeUsage { user_us, system_us, max_rss_kb, wall_us } = usage;
                let (status, landlock) = (u64::from(status.cast_unsigned()), u64::from(landlock));
                let [a, b, c, d, e, f, g, h] = denied.numbers;
                put(&[
                    2,
                    cause as u64,
                    status,
                    user_us,
                    system_us,
                    max_rss_kb,
                    wall_us,
                    layers,
                    landlock,
                    a,
                    b,
                    c,
                    d,
                    e,
                    f,
                    g,
                    h,
                    denied.count,
                ]);
            }
        }
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads what [`Report::encode`] wrote.
    pub fn decode(bytes: &[u8; REPORT_LENGTH]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let tag = number(&mut rest)?;
        let first = number(&mut rest)?;
        let second = number(&mut rest)?;
        match tag {
            0 => Some(Self::Refused { step: Step::from_code(first)?, errno: signed(second)? }),
            1 => Some(Self::Waiting { pid: u32::try_from(first).ok()? }),
            2 => Some(Self::Ended {
                cause: Cause::from_code(first)?,
                status: signed(second)?,
                usage: TreeUsage {
                    user_us: number(&mut rest)?,
                    system_us: number(&mut rest)?,
                    max_rss_kb: number(&mut rest)?,
                    wall_us: number(&mut rest)?,
                },
                held: Held { layers: number(&mut rest)?, landlock: u32::try_from(number(&mut rest)?).ok()? },
                denied: Denied { numbers: some(&mut rest)?, count: number(&mut rest)? },
            }),
            3 => {
                let [process, message, name, cgroup, network] = some(&mut rest)?;
                Some(Self::Enclosed { namespaces: [first, second, process, message, name, cgroup, network] })
            }
            4 => {
                let held = Held { layers: second, landlock: u32::try_from(number(&mut rest)?).ok()? };
                Some(Self::Probed { passed: first, held })
            }
            5 => Some(Self::Holding { held: Held { layers: first, landlock: u32::try_from(second).ok()? } }),
            _ => None,
        }
    }
}

/// Declares an enum that travels as a number.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// The value that has this number.
            pub fn from_code(code: u64) -> Option<Self> {
                [$(Self::$variant,)+].into_iter().find(|value| *value as u64 == code)
            }
        }
    };
}

codes! {
    /// The steps to a running program.
    Step {
        /// Reading the order.
        Order,
        /// Becoming a supervisor.
        Supervise,
        /// Forking.
        Fork,
        /// Starting a session.
        Session,
        /// Connecting standard input, output and error.
        Streams,
        /// Entering the working directory.
        Directory,
        /// Giving up the gaining of privileges.
        Privileges,
        /// Hiding directories and narrowing signals.
        Landlock,
        /// Setting limits.
        Limits,
        /// Closing descriptors.
        Descriptors,
        /// Looking at the program once more.
        Unchanged,
        /// Executing the program.
        Execute,
        /// Counting the tree to a cgroup.
        Cgroup,
        /// Becoming an ordinary user.
        User,
        /// Mounting a directory.
        Mount,
        /// Opening the sockets of the network.
        Network,
        /// Giving up capabilities.
        Capabilities,
        /// Filtering system calls.
        Filter,
        /// Looking for the program inside.
        Program,
    }
}

codes! {
    /// Why a tree ended.
    Cause {
        /// The program ended by itself.
        Itself,
        /// The wall clock ran out.
        WallClock,
        /// The daemon asked for it, or is gone.
        Asked,
        /// The tree had more processes than it may.
        Processes,
    }
}

/// The layers, as bits of what was really set up.
pub mod layer {
    /// Its own session.
    pub const SESSION: u64 = 1;
    /// Limits on processor time, address space, file size, descriptors; no core files.
    pub const LIMITS: u64 = 1 << 1;
    /// A limit on processes, and a user that the kernel holds to it.
    pub const PROCESS_LIMIT: u64 = 1 << 2;
    /// No descriptor but the three standard ones.
    pub const CLOSED_FDS: u64 = 1 << 3;
    /// No variable but those of the plan.
    pub const CLEARED_ENVIRONMENT: u64 = 1 << 4;
    /// No gaining of privileges by set-id programs.
    pub const NO_NEW_PRIVS: u64 = 1 << 5;
    /// Directories hidden by Landlock.
    pub const HIDDEN_PATHS: u64 = 1 << 6;
    /// No signal leaves the tree.
    pub const SIGNAL_SCOPE: u64 = 1 << 7;
    /// No process outside the tree can be traced.
    pub const NO_TRACE: u64 = 1 << 9;
    /// No limit of another process can be changed.
    pub const OWN_LIMITS: u64 = 1 << 11;
    /// A count of processes, for a user that the kernel holds to no limit.
    pub const PROCESS_WATCH: u64 = 1 << 10;
    /// Orphans come to the init, which ends them.
    pub const TREE_KILL: u64 = 1 << 8;
    /// Files can be used as listed, by Landlock; all others not at all.
    pub const LISTED_PATHS: u64 = 1 << 12;
    /// No abstract socket outside the tree can be reached.
    pub const SOCKET_SCOPE: u64 = 1 << 13;
    /// System calls are filtered.
    pub const CALL_FILTER: u64 = 1 << 14;
    /// Refused calls are heard of.
    pub const NOTICES: u64 = 1 << 15;
    /// No capability is left, and none can be had.
    pub const NO_CAPABILITIES: u64 = 1 << 16;
    /// The init is the first process of a namespace, with which everything in it ends.
    pub const NAMESPACE_KILL: u64 = 1 << 17;
}

/// What is tried from inside an enclosure, as bits of what was refused as it must be.
pub mod probe {
    /// A namespace of one's own.
    pub const NAMESPACES: u64 = 1;
    /// Tracing.
    pub const TRACING: u64 = 1 << 1;
    /// Mounting.
    pub const MOUNTING: u64 = 1 << 2;
    /// Key rings.
    pub const KEYS: u64 = 1 << 3;
    /// Programs for the kernel.
    pub const KERNEL_PROGRAMS: u64 = 1 << 4;
    /// Rings for input and output.
    pub const RINGS: u64 = 1 << 5;
    /// The newer way to fork.
    pub const NEWER_FORK: u64 = 1 << 6;
    /// Unix sockets.
    pub const UNIX_SOCKETS: u64 = 1 << 7;
    /// Files that run as their owner.
    pub const SET_USER: u64 = 1 << 8;
    /// What the kernel runs when a program crashes.
    pub const CORE_PATTERN: u64 = 1 << 9;
    /// A file that only Landlock protects.
    pub const LANDLOCK: u64 = 1 << 10;
    /// The network.
    pub const NETWORK: u64 = 1 << 11;
    /// What the kernel says about the process itself.
    pub const STATUS: u64 = 1 << 12;
    /// Being root, inside or outside.
    pub const NOT_ROOT: u64 = 1 << 13;
}

pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length(bytes.len()));
    out.extend_from_slice(bytes);
}

pub(crate) fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_le_bytes()
}

pub(crate) fn take(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = count(rest)?;
    let (bytes, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(bytes.to_vec())
}

pub(crate) fn count(rest: &mut &[u8]) -> Option<usize> {
    let (bytes, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

pub(crate) fn number(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_le_bytes(*bytes))
}

pub(crate) fn some<const N: usize>(rest: &mut &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for place in &mut numbers {
        *place = number(rest)?;
    }
    Some(numbers)
}

pub(crate) fn list(rest: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    for _ in 0..count(rest)? {
        items.push(take(rest)?);
    }
    Some(items)
}

pub(crate) fn put_list(out: &mut Vec<u8>, items: &[Vec<u8>]) {
    out.extend_from_slice(&length(items.len()));
    items.iter().for_each(|item| put(out, item));
}

fn named(rest: &mut &[u8]) -> Option<Named> {
    Some(Named { path: take(rest)?, device: number(rest)?, inode: number(rest)? })
}

fn signed(number: u64) -> Option<i32> {
    Some(u32::try_from(number).ok()?.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_sent() {
        let stamp = Stamp { device: 1, inode: 2, size: 3, changed: [4, 5], modified: [6, u64::MAX] };
        let order = Order {
            unchanged: vec![
                Unchanged { path: b"/bin/x".to_vec(), stamp },
                Unchanged { path: Vec::new(), stamp: Stamp::default() },
            ],
            args: vec![b"true".to_vec(), Vec::new(), vec![0xff, b'\n']],
            env: vec![b"A=b".to_vec()],
            wall_ms: u64::MAX,
            has_stdin: true,
            is_for_walls: true,
            tells_holding: true,
            inside: Some(Inside {
                program: Named { path: b"/usr/bin/true".to_vec(), device: 1, inode: 2 },
                directory: Named { path: b"/w".to_vec(), device: 3, inode: 4 },
            }),
            ..Order::default()
        };
        let sent = order.encode();
        let (length, body) = sent.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*length) as usize, body.len());
        assert_eq!(Order::decode(body), Some(order));
        for cut in 0..body.len() {
            assert_eq!(Order::decode(&body[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        let usage = TreeUsage { user_us: 1, system_us: 2, max_rss_kb: 3, wall_us: 4 };
        let held = Held { layers: layer::LIMITS | layer::SIGNAL_SCOPE, landlock: 7 };
        let denied = Denied { numbers: [1, 0, 2, 0, 0, 0, 0, 1 << 63], count: 5 };
        assert_eq!(denied.calls().collect::<Vec<_>>(), [0, 129, 511]);
        for report in [
            Report::Refused { step: Step::Execute, errno: 2 },
            Report::Waiting { pid: 77 },
            Report::Enclosed { namespaces: [1, 2, 3, 4, 5, 6, 7] },
            Report::Probed { passed: 3, held },
            Report::Holding { held },
            Report::Ended { cause: Cause::Asked, status: 9, usage, held, denied },
            Report::Ended { cause: Cause::Itself, status: -1, usage, held: Held::default(), denied: Denied::default() },
        ] {
            let sent: [u8; REPORT_LENGTH] = report.encode().try_into().unwrap();
            assert_eq!(Report::decode(&sent), Some(report));
        }
        assert_eq!(Report::decode(&[0xff; REPORT_LENGTH]), None);
    }
}
