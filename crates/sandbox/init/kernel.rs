//! The init's contact with the kernel: every `unsafe` block of it is here, behind functions that are safe to call.
//!
//! Guarantees: a failed call is an [`Errno`], never a panic; no function keeps a pointer beyond its call.
//! Does not: decide anything. Linux with 64-bit words only, as the layouts below are.

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void},
    mem, ptr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::protocol::Stamp;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the structures of this module are those of 64-bit Linux");

/// The kernel's reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub const EINTR: i32 = 4;
pub const EINVAL: i32 = 22;
pub const ESTALE: i32 = 116;

pub const SIGKILL: c_int = 9;
pub const SIGTERM: c_int = 15;
pub const SIGCHLD: c_int = 17;

/// Starts a session of which the caller is the leader.
pub fn setsid() -> Result<(), Errno> {
    // SAFETY: takes no pointers.
    check(unsafe { ffi::setsid() }).map(drop)
}

/// `prctl` with one number.
pub fn prctl(option: Prctl, value: usize) -> Result<(), Errno> {
    // SAFETY: none of the options in `Prctl` takes a pointer.
    check(unsafe { ffi::prctl(option as c_int, value as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) }).map(drop)
}

/// Sets the name that process listings show.
pub fn set_name(name: &CStr) {
    const PR_SET_NAME: c_int = 15;
    // SAFETY: the kernel copies at most 16 bytes of the string and stops at its NUL.
    unsafe { ffi::prctl(PR_SET_NAME, name.as_ptr(), 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) };
}

/// The `prctl` options in use, none of which takes a pointer.
#[derive(Debug, Clone, Copy)]
pub enum Prctl {
    SetParentDeathSignal = 1,
    SetDumpable = 4,
    SetChildSubreaper = 36,
    SetNoNewPrivs = 38,
}

/// Blocks every signal that can be blocked, and returns a descriptor that is readable when a child has changed.
pub fn take_signals() -> Result<c_int, Errno> {
    const SIG_SETMASK: c_int = 2;
    const SFD_NONBLOCK_CLOEXEC: c_int = 0o2_004_000;
    let mut all = ffi::SigSet([u64::MAX; 16]);
    let child = ffi::SigSet::only(SIGCHLD);
    // SAFETY: both sets are as large as the C library's and live through the calls.
    unsafe {
        check(ffi::sigprocmask(SIG_SETMASK, &raw mut all, ptr::null_mut()))?;
        check(ffi::signalfd(-1, &raw const child, SFD_NONBLOCK_CLOEXEC))
    }
}

/// Gives every signal its default action, as a program expects them.
///
/// Asks the kernel directly: the C library keeps two signals for itself, which its `posix_spawn` leaves ignored.
pub fn forget_signal_actions() {
    #[cfg(target_arch = "x86_64")]
    const SYS_RT_SIGACTION: c_long = 13;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_RT_SIGACTION: c_long = 134;
    // Handler, flags, restorer and mask; all zero is the default action.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: the structure is as large as the kernel's and lives through the call; the old one is not asked for.
        unsafe { ffi::syscall(SYS_RT_SIGACTION, signal, default.as_ptr(), ptr::null::<c_void>(), 8_usize) };
    }
}

/// Blocks no signal any more.
pub fn release_signals() {
    const SIG_SETMASK: c_int = 2;
    let mut none = ffi::SigSet([0; 16]);
    // SAFETY: the set is as large as the C library's and lives through the call.
    unsafe { ffi::sigprocmask(SIG_SETMASK, &raw mut none, ptr::null_mut()) };
}

/// Some numbers that a process shares with those it forks.
#[derive(Clone, Copy)]
pub struct Shared(&'static [AtomicU64; 8]);

impl Shared {
    pub fn get(self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |number| number.load(Ordering::Acquire))
    }

    pub fn set(self, place: usize, number: u64) {
        if let Some(shared) = self.0.get(place) {
            shared.store(number, Ordering::Release);
        }
    }
}

/// Makes place for shared numbers, all zero.
pub fn share() -> Result<Shared, Errno> {
    const READ_WRITE: c_int = 3;
    const SHARED_ANONYMOUS: c_int = 0x21;
    const SIZE: usize = 4096;
    // SAFETY: the kernel chooses the place, so nothing that exists is touched.
    let place = unsafe { ffi::mmap(ptr::null_mut(), SIZE, READ_WRITE, SHARED_ANONYMOUS, -1, 0) };
    if place.addr() == usize::MAX {
        return Err(last_error());
    }
    // SAFETY: the place is zeroed, large enough, aligned to a page and never given back; atomics may be shared by processes.
    Ok(Shared(unsafe { &*place.cast::<[AtomicU64; 8]>() }))
}

/// The time since some moment in the past, in nanoseconds.
pub fn now() -> u64 {
    const MONOTONIC: c_int = 1;
    let mut time = [0_i64; 2];
    // SAFETY: the structure is two 64-bit numbers and lives through the call.
    unsafe { ffi::clock_gettime(MONOTONIC, time.as_mut_ptr()) };
    let [seconds, nanoseconds] = time.map(i64::cast_unsigned);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// A descriptor that becomes readable when its time has come. Whoever shares it can set the time, and wakes nobody by that.
pub fn timer() -> Result<c_int, Errno> {
    const MONOTONIC: c_int = 1;
    // SAFETY: takes no pointers.
    check(unsafe { ffi::timerfd_create(MONOTONIC, O_CLOEXEC) })
}

/// Sets the time, from now on. One so far away that the clock cannot say it is never.
pub fn set_timer(timer: c_int, milliseconds: u64) -> Result<(), Errno> {
    const YEAR: u64 = 365 * 24 * 3600 * 1000;
    // None at all would turn it off.
    let milliseconds = milliseconds.clamp(1, YEAR);
    let once = [0, 0, milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    // SAFETY: the structure is two pairs of 64-bit numbers, interval and time, and lives through the call.
    check(unsafe { ffi::timerfd_settime(timer, 0, once.as_ptr(), ptr::null_mut()) }).map(drop)
}

/// Forks. The caller must have one thread only, which the init has.
pub fn fork() -> Result<c_int, Errno> {
    // SAFETY: with a single thread no lock can be held by anybody else in the child.
    check(unsafe { ffi::fork() })
}

/// Ends the process at once.
pub fn exit(code: c_int) -> ! {
    // SAFETY: does not return and runs no handlers.
    unsafe { ffi::_exit(code) }
}

pub fn own_pid() -> c_int {
    // SAFETY: takes nothing, cannot fail.
    unsafe { ffi::getpid() }
}

pub fn parent_pid() -> c_int {
    // SAFETY: takes nothing, cannot fail.
    unsafe { ffi::getppid() }
}

pub fn user_id() -> c_uint {
    // SAFETY: takes nothing, cannot fail.
    unsafe { ffi::getuid() }
}

/// One child that ended, if one is waiting to be collected; an error when there are no children at all.
pub fn collect_child() -> Result<Option<(c_int, c_int)>, Errno> {
    const WNOHANG: c_int = 1;
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let pid = check(unsafe { ffi::waitpid(-1, &raw mut status, WNOHANG) })?;
    Ok((pid != 0).then_some((pid, status)))
}

/// What all collected children used: user and system time in microseconds, largest resident set in kilobytes.
pub fn children_usage() -> (u64, u64, u64) {
    const RUSAGE_CHILDREN: c_int = -1;
    let mut usage = ffi::Rusage::default();
    // SAFETY: `usage` has the kernel's layout and lives through the call.
    unsafe { ffi::getrusage(RUSAGE_CHILDREN, &raw mut usage) };
    let microseconds = |[seconds, micros]: [i64; 2]| (seconds * 1_000_000 + micros).cast_unsigned();
    (microseconds(usage.user), microseconds(usage.system), usage.max_rss.cast_unsigned())
}

/// Sends a signal to a process, or to a group when negative.
pub fn kill(pid: c_int, signal: c_int) {
    // SAFETY: takes no pointers.
    unsafe { ffi::kill(pid, signal) };
}

/// A descriptor that keeps meaning this process even when its number is used again.
pub fn pidfd_open(pid: c_int) -> Result<c_int, Errno> {
    const SYS_PIDFD_OPEN: c_long = 434;
    // SAFETY: takes no pointers.
    check_long(unsafe { ffi::syscall(SYS_PIDFD_OPEN, pid, 0) })
}

pub fn pidfd_send_signal(pidfd: c_int, signal: c_int) {
    const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
    // SAFETY: a null siginfo asks the kernel to fill it in.
    unsafe { ffi::syscall(SYS_PIDFD_SEND_SIGNAL, pidfd, signal, ptr::null::<c_void>(), 0) };
}

/// Which descriptors are readable or closed by the other side, after at most this long, or whenever that may be.
pub fn poll<const N: usize>(fds: [c_int; N], longest: Option<Duration>) -> [bool; N] {
    const POLLIN: i16 = 1;
    let mut polled = fds.map(|fd| ffi::PollFd { fd, events: POLLIN, revents: 0 });
    // Rounded up: a timeout that is rounded down to zero would spin.
    let milliseconds = |longest: Duration| c_int::try_from(longest.as_millis().saturating_add(1)).unwrap_or(c_int::MAX);
    // SAFETY: the array has N entries and lives through the call; negative descriptors are skipped by the kernel.
    unsafe { ffi::poll(polled.as_mut_ptr(), N as c_ulong, longest.map_or(-1, milliseconds)) };
    polled.map(|entry| entry.revents != 0)
}

pub fn pipe() -> Result<[c_int; 2], Errno> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { ffi::pipe2(fds.as_mut_ptr(), O_CLOEXEC) })?;
    Ok(fds)
}

pub fn read(fd: c_int, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: the kernel writes at most the buffer's length.
        let read = unsafe { ffi::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        match check_size(read) {
            Err(Errno(EINTR)) => {}
            other => return other,
        }
    }
}

/// Reads from the beginning of a file, wherever its position is.
pub fn read_start(fd: c_int, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the buffer's length.
    check_size(unsafe { ffi::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) })
}

/// Writes everything, or fails. A closed socket or pipe is an error here: the init has SIGPIPE blocked.
pub fn write_all(fd: c_int, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: the kernel reads at most the slice's length.
        let written = unsafe { ffi::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match check_size(written) {
            Err(Errno(EINTR)) => {}
            Err(errno) => return Err(errno),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Receives bytes and up to six descriptors, which close on exec.
pub fn receive(socket: c_int, buffer: &mut [u8], fds: &mut Vec<c_int>) -> Result<usize, Errno> {
    const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
    const RIGHTS: (c_int, c_int) = (1, 1);
    let mut control = ffi::Control::default();
    let mut part = ffi::IoVec { base: buffer.as_mut_ptr().cast(), length: buffer.len() };
    let mut message = ffi::Message {
        name: ptr::null_mut(),
        name_length: 0,
        parts: &raw mut part,
        part_count: 1,
        control: (&raw mut control).cast(),
        control_length: mem::size_of::<ffi::Control>(),
        flags: 0,
    };
    // SAFETY: every pointer in the message is to a local or to `buffer`, with its true length.
    let received = check_size(unsafe { ffi::recvmsg(socket, &raw mut message, MSG_CMSG_CLOEXEC) })?;
    if (control.level, control.kind) == RIGHTS && message.control_length > 0 {
        let header = mem::size_of::<usize>() + 2 * mem::size_of::<c_int>();
        let count = control.length.saturating_sub(header) / mem::size_of::<c_int>();
        fds.extend(control.fds.iter().take(count));
    }
    Ok(received)
}

/// Sends one byte and a descriptor.
pub fn send_descriptor(socket: c_int, descriptor: c_int) -> Result<(), Errno> {
    const RIGHTS: c_int = 1;
    const SOCKET: c_int = 1;
    let mut byte = 0_u8;
    let header = mem::size_of::<usize>() + 2 * mem::size_of::<c_int>();
    let mut control = ffi::Control {
        length: header + mem::size_of::<c_int>(),
        level: SOCKET,
        kind: RIGHTS,
        fds: [descriptor, 0, 0, 0, 0, 0],
    };
    let mut part = ffi::IoVec { base: (&raw mut byte).cast(), length: 1 };
    let message = ffi::Message {
        name: ptr::null_mut(),
        name_length: 0,
        parts: &raw mut part,
        part_count: 1,
        control: (&raw mut control).cast(),
        // The header, one descriptor, and what aligns the next header.
        control_length: header + mem::size_of::<usize>(),
        flags: 0,
    };
    // SAFETY: every pointer in the message is to a local, with no more than its true length.
    check_size(unsafe { ffi::sendmsg(socket, &raw const message, 0) }).map(drop)
}

/// Makes `to` a copy of `from` that stays open on exec.
pub fn duplicate(from: c_int, to: c_int) -> Result<(), Errno> {
    // SAFETY: takes no pointers.
    check(unsafe { ffi::dup2(from, to) }).map(drop)
}

pub fn close(fd: c_int) {
    // SAFETY: the callers own what they close.
    unsafe { ffi::close(fd) };
}

/// Marks every descriptor from `first` on to be closed on exec.
pub fn close_on_exec_from(first: c_int) -> Result<(), Errno> {
    const SYS_CLOSE_RANGE: c_long = 436;
    const CLOSE_RANGE_CLOEXEC: c_uint = 4;
    // SAFETY: takes no pointers.
    check_long(unsafe { ffi::syscall(SYS_CLOSE_RANGE, first, c_uint::MAX, CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// A descriptor that names a file without opening it, or the file itself for reading.
pub fn open(path: &CStr, how: Open) -> Result<c_int, Errno> {
    // SAFETY: the path ends with NUL.
    check(unsafe { ffi::open(path.as_ptr(), how as c_int) })
}

/// The ways in which the init opens files; all close on exec.
#[derive(Debug, Clone, Copy)]
pub enum Open {
    /// For reading.
    Read = O_CLOEXEC as isize,
    /// As a name only, of the file itself and not of what a link points to.
    Name = (O_CLOEXEC | O_PATH | O_NOFOLLOW) as isize,
}

const O_CLOEXEC: c_int = 0o2_000_000;
const O_PATH: c_int = 0o10_000_000;
#[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
const O_NOFOLLOW: c_int = 0o100_000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
const O_NOFOLLOW: c_int = 0o400_000;

pub fn enter(directory: c_int) -> Result<(), Errno> {
    // SAFETY: takes no pointers.
    check(unsafe { ffi::fchdir(directory) }).map(drop)
}

/// The hard limit of a resource.
pub fn hard_limit(resource: c_int) -> Result<u64, Errno> {
    let mut limit = [0; 2];
    // SAFETY: the kernel's structure is two 64-bit numbers.
    check(unsafe { ffi::getrlimit(resource, limit.as_mut_ptr()) })?;
    let [_, hard] = limit;
    Ok(hard)
}

pub fn set_limit(resource: c_int, soft: u64, hard: u64) -> Result<(), Errno> {
    let limit = [soft, hard];
    // SAFETY: the kernel's structure is two 64-bit numbers.
    check(unsafe { ffi::setrlimit(resource, limit.as_ptr()) }).map(drop)
}

/// The version of Landlock that the kernel has enabled.
pub fn landlock_version() -> Result<u32, Errno> {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the kernel takes no structure.
    let version = unsafe { ffi::syscall(SYS_LANDLOCK_CREATE_RULESET, ptr::null::<c_void>(), 0_usize, VERSION) };
    Ok(check_long(version)?.cast_unsigned())
}

/// A rule set that handles these accesses and scopes.
pub fn landlock_create(access: u64, scoped: u64) -> Result<c_int, Errno> {
    let attributes = [access, 0, scoped];
    // A kernel without scopes knows a shorter structure, and refuses a longer one unless its tail is zero.
    let size = mem::size_of_val(&attributes);
    // SAFETY: the structure is three 64-bit numbers: file accesses, network accesses, scopes.
    check_long(unsafe { ffi::syscall(SYS_LANDLOCK_CREATE_RULESET, attributes.as_ptr(), size, 0) })
}

/// Lets these accesses happen beneath a file.
pub fn landlock_allow(ruleset: c_int, beneath: c_int, access: u64) -> Result<(), Errno> {
    const SYS_LANDLOCK_ADD_RULE: c_long = 445;
    const PATH_BENEATH: c_int = 1;
    let rule = ffi::PathBeneath { access, parent: beneath };
    // SAFETY: the structure is packed as the kernel declares it, and lives through the call.
    check_long(unsafe { ffi::syscall(SYS_LANDLOCK_ADD_RULE, ruleset, PATH_BENEATH, &raw const rule, 0) }).map(drop)
}

/// Puts the calling process under a rule set.
pub fn landlock_restrict(ruleset: c_int) -> Result<(), Errno> {
    const SYS_LANDLOCK_RESTRICT_SELF: c_long = 446;
    // SAFETY: takes no pointers.
    check_long(unsafe { ffi::syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) }).map(drop)
}

/// Which file it is, how long it is and when it was written to: one behind a path, or with an empty path that of a descriptor.
pub fn stamp(file: c_int, path: &CStr) -> Result<Stamp, Errno> {
    #[cfg(target_arch = "x86_64")]
    const SYS_STATX: c_long = 332;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_STATX: c_long = 291;
    const BASIC_STATS: c_uint = 0x7ff;
    let mut found = ffi::Statx::default();
    // SAFETY: the path ends with NUL; the structure is as large as the kernel's and lives through the call.
    let answer = unsafe {
        ffi::syscall(SYS_STATX, file, path.as_ptr(), AT_EMPTY_PATH, BASIC_STATS, (&raw mut found).cast::<c_void>())
    };
    check_long(answer)?;
    let time = |time: &ffi::StatxTime| [time.seconds.cast_unsigned(), u64::from(time.nanoseconds)];
    Ok(Stamp {
        device: u64::from(found.device_major) << 32 | u64::from(found.device_minor),
        inode: found.inode,
        size: found.size,
        changed: time(&found.changed),
        modified: time(&found.modified),
    })
}

/// Becomes the program in an open file, whatever its name leads to by now. Returns only when that fails.
///
/// The kernel refuses a script that is given this way, as its interpreter could not open it.
pub fn execute(program: c_int, args: &[&CStr], env: &[&CStr]) -> Errno {
    #[cfg(target_arch = "x86_64")]
    const SYS_EXECVEAT: c_long = 322;
    #[cfg(not(target_arch = "x86_64"))]
    const SYS_EXECVEAT: c_long = 281;
    let pointers = |strings: &[&CStr]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both lists end with a null pointer, and every string in them with NUL.
    unsafe { ffi::syscall(SYS_EXECVEAT, program, c"".as_ptr(), args.as_ptr(), env.as_ptr(), AT_EMPTY_PATH) };
    last_error()
}

const AT_EMPTY_PATH: c_int = 0x1000;
const SYS_LANDLOCK_CREATE_RULESET: c_long = 444;

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

fn check_long(result: c_long) -> Result<c_int, Errno> {
    c_int::try_from(result).map_err(|_| Errno(EINVAL)).and_then(check)
}

fn check_size(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last_error())
}

fn last_error() -> Errno {
    // SAFETY: the C library's location is valid for the calling thread.
    Errno(unsafe { *ffi::__errno_location() })
}

/// What the C library offers, as its headers say.
mod ffi {
    use super::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

    /// `sigset_t`: 1024 bits, whatever the kernel uses of them.
    #[repr(C)]
    pub struct SigSet(pub [u64; 16]);

    impl SigSet {
        pub fn only(signal: c_int) -> Self {
            let mut set = [0; 16];
            set[0] = 1 << (signal - 1);
            Self(set)
        }
    }

    #[repr(C)]
    pub struct PollFd {
        pub fd: c_int,
        pub events: i16,
        pub revents: i16,
    }

    #[repr(C)]
    pub struct IoVec {
        pub base: *mut c_void,
        pub length: usize,
    }

    #[repr(C)]
    pub struct Message {
        pub name: *mut c_void,
        pub name_length: c_uint,
        pub parts: *mut IoVec,
        pub part_count: usize,
        pub control: *mut c_void,
        pub control_length: usize,
        pub flags: c_int,
    }

    /// `cmsghdr` with room for six descriptors behind it.
    #[repr(C)]
    #[derive(Default)]
    pub struct Control {
        pub length: usize,
        pub level: c_int,
        pub kind: c_int,
        pub fds: [c_int; 6],
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct Rusage {
        pub user: [i64; 2],
        pub system: [i64; 2],
        pub max_rss: i64,
        pub rest: [i64; 13],
    }

    /// `struct statx`, which is the same on every architecture.
    #[repr(C)]
    #[derive(Default)]
    pub struct Statx {
        pub head: [u64; 4],
        pub inode: u64,
        pub size: u64,
        pub blocks_and_attributes: [u64; 2],
        pub accessed: StatxTime,
        pub born: StatxTime,
        pub changed: StatxTime,
        pub modified: StatxTime,
        pub represented: [u32; 2],
        pub device_major: u32,
        pub device_minor: u32,
        pub rest: [u64; 14],
    }

    #[repr(C)]
    #[derive(Default)]
    pub struct StatxTime {
        pub seconds: i64,
        pub nanoseconds: u32,
        pub reserved: i32,
    }

    #[repr(C, packed)]
    pub struct PathBeneath {
        pub access: u64,
        pub parent: c_int,
    }

    unsafe extern "C" {
        pub fn setsid() -> c_int;
        pub fn prctl(option: c_int, ...) -> c_int;
        pub fn sigprocmask(how: c_int, set: *mut SigSet, old: *mut SigSet) -> c_int;
        pub fn signalfd(fd: c_int, mask: *const SigSet, flags: c_int) -> c_int;
        pub fn mmap(at: *mut c_void, size: usize, access: c_int, kind: c_int, fd: c_int, offset: i64) -> *mut c_void;
        pub fn clock_gettime(clock: c_int, time: *mut i64) -> c_int;
        pub fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
        pub fn timerfd_settime(timer: c_int, flags: c_int, new: *const u64, old: *mut u64) -> c_int;
        pub fn fork() -> c_int;
        pub fn _exit(code: c_int) -> !;
        pub fn getpid() -> c_int;
        pub fn getppid() -> c_int;
        pub fn getuid() -> c_uint;
        pub fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        pub fn getrusage(who: c_int, usage: *mut Rusage) -> c_int;
        pub fn kill(pid: c_int, signal: c_int) -> c_int;
        pub fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
        pub fn pipe2(fds: *mut c_int, flags: c_int) -> c_int;
        pub fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
        pub fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize;
        pub fn pread(fd: c_int, buffer: *mut c_void, length: usize, offset: i64) -> isize;
        pub fn sendmsg(socket: c_int, message: *const Message, flags: c_int) -> isize;
        pub fn recvmsg(socket: c_int, message: *mut Message, flags: c_int) -> isize;
        pub fn dup2(from: c_int, to: c_int) -> c_int;
        pub fn close(fd: c_int) -> c_int;
        pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
        pub fn fchdir(fd: c_int) -> c_int;
        pub fn getrlimit(resource: c_int, limit: *mut u64) -> c_int;
        pub fn setrlimit(resource: c_int, limit: *const u64) -> c_int;
        pub fn syscall(number: c_long, ...) -> c_long;
        pub fn __errno_location() -> *mut c_int;
    }
}
