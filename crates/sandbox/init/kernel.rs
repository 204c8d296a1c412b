//! The init's contact with the kernel: every `unsafe` block of it is here and below, behind functions that are safe to call.
//!
//! Guarantees: a failed call is an [`Errno`], never a panic; no function keeps a pointer beyond its call.
//! Does not: decide anything.

mod call;
mod enclosing;
mod layout;
mod memory;
mod probing;

use alloc::{ffi::CString, vec::Vec};
use core::{
    ffi::{CStr, c_char},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

pub use self::{
    enclosing::{
        Change, Socket, answer_notice, attach, become_user, bind_local, bind_read_only, clone_mount, cover,
        drop_all_capabilities, filter_with_notices, leave_keys, make_read_only, mount_memory, mount_terminals, namespace,
        new_user_namespace, receive_notice, replace_program, route_to_loopback, unmount,
    },
    layout::FilterStep,
    probing::{Attempt, attempt},
};
use self::{
    call::{Number, call},
    layout::{Control, Filter, IoVec, Message, PathBeneath, PollFd, Rusage, Statx, StatxTime},
};
use crate::protocol::Stamp;

/// The kernel's reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Whether the kernel had no memory or descriptors to give, which says nothing about what was asked for.
    pub const fn is_shortage(self) -> bool {
        const ENOMEM: i32 = 12;
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        matches!(self.0, ENOMEM | ENFILE | EMFILE)
    }
}

pub const EPERM: i32 = 1;
pub const EINTR: i32 = 4;
pub const EINVAL: i32 = 22;
pub const ESTALE: i32 = 116;

pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;

/// Where the kernel starts the init.
extern "C" fn entry(stack: *const usize) -> ! {
    // SAFETY: the kernel puts the number of arguments there, then a pointer to each, which end with NUL and stay.
    let mode = unsafe {
        match *stack {
            2.. => Some(CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(*stack.add(2)))),
            _ => None,
        }
    };
    crate::main(mode.unwrap_or_default().to_bytes());
    exit(0)
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    crate::tree::leave_nothing();
    exit(101)
}

// Nothing unwinds, but some of what comes with the compiler was made for programs that do, and names these.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(101)
}

// ---- Processes -----------------------------------------------------------------------------------------------------------

/// Starts a session of which the caller is the leader.
pub fn setsid() -> Result<(), Errno> {
    plain(Number::Setsid, []).map(drop)
}

/// `prctl` with one number.
pub fn prctl(option: Prctl, value: usize) -> Result<(), Errno> {
    // None of the options in `Prctl` takes a pointer.
    plain(Number::Prctl, [option as usize, value]).map(drop)
}

/// The `prctl` options in use, none of which takes a pointer.
#[derive(Debug, Clone, Copy)]
pub enum Prctl {
    SetParentDeathSignal = 1,
    SetDumpable = 4,
    SetChildSubreaper = 36,
    SetNoNewPrivs = 38,
}

/// Sets the name that process listings show.
pub fn set_name(name: &CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies at most 16 bytes of the string and stops at its NUL.
    let _ = unsafe { call(Number::Prctl, [PR_SET_NAME, at(name.as_ptr())]) };
}

/// Forks. The caller must have one thread only, which the init has.
pub fn fork() -> Result<i32, Errno> {
    plain(Number::Clone, [number(SIGCHLD)]).map(small)
}

/// Ends the process at once.
pub fn exit(code: i32) -> ! {
    loop {
        let _ = plain(Number::ExitGroup, [number(code)]);
    }
}

pub fn own_pid() -> i32 {
    plain(Number::Getpid, []).map_or(0, small)
}

pub fn parent_pid() -> i32 {
    plain(Number::Getppid, []).map_or(0, small)
}

pub fn user_id() -> u32 {
    plain(Number::Getuid, []).map_or(0, small).cast_unsigned()
}

/// One child that ended, if one is waiting to be collected; an error when there are no children at all.
pub fn collect_child() -> Result<Option<(i32, i32)>, Errno> {
    const ANY: usize = usize::MAX;
    const WNOHANG: usize = 1;
    let mut status = 0_i32;
    // SAFETY: `status` lives through the call.
    let pid = unsafe { call(Number::Wait4, [ANY, at(&raw mut status), WNOHANG]) }.map(small)?;
    Ok((pid != 0).then_some((pid, status)))
}

/// Waits for the end of one child.
pub fn wait_for(child: i32) -> Result<(), Errno> {
    plain(Number::Wait4, [number(child)]).map(drop)
}

/// What all collected children used: user and system time in microseconds, largest resident set in kilobytes.
pub fn children_usage() -> (u64, u64, u64) {
    const RUSAGE_CHILDREN: usize = usize::MAX;
    let mut usage = Rusage::default();
    // SAFETY: `usage` has the kernel's layout and lives through the call.
    let _ = unsafe { call(Number::Getrusage, [RUSAGE_CHILDREN, at(&raw mut usage)]) };
    let microseconds = |[seconds, micros]: [i64; 2]| (seconds * 1_000_000 + micros).cast_unsigned();
    (microseconds(usage.user), microseconds(usage.system), usage.max_rss.cast_unsigned())
}

/// Sends a signal to a process, or to a group when negative.
pub fn kill(pid: i32, signal: i32) {
    let _ = plain(Number::Kill, [number(pid), number(signal)]);
}

/// A descriptor that keeps meaning this process even when its number is used again.
pub fn pidfd_open(pid: i32) -> Result<i32, Errno> {
    plain(Number::PidfdOpen, [number(pid)]).map(small)
}

pub fn pidfd_send_signal(pidfd: i32, signal: i32) {
    // Without more about the signal, the kernel fills that in.
    let _ = plain(Number::PidfdSendSignal, [number(pidfd), number(signal)]);
}

/// Becomes the program in an open file, whatever its name leads to by now. Returns only when that fails.
///
/// The kernel refuses a script that is given this way, as its interpreter could not open it. Before Linux 6.14 it shows the number of
/// the descriptor as the program's name in listings.
pub fn execute(program: i32, args: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    let given = [number(program), at(c"".as_ptr()), at(args.as_ptr()), at(env.as_ptr()), AT_EMPTY_PATH];
    // SAFETY: both lists end with a null pointer, and every string in them with NUL.
    unsafe { call(Number::Execveat, given) }.err().unwrap_or(Errno(EINVAL))
}

// ---- Signals -------------------------------------------------------------------------------------------------------------

/// Blocks every signal that can be blocked, and returns a descriptor that is readable when a child has changed.
pub fn take_signals() -> Result<i32, Errno> {
    const NONBLOCK_CLOEXEC: usize = 0o2_004_000;
    block(u64::MAX)?;
    let child = 1_u64 << (SIGCHLD - 1);
    let given = [usize::MAX, at(&raw const child), SIGNAL_SET, NONBLOCK_CLOEXEC];
    // SAFETY: the set is as large as it says, and lives through the call.
    unsafe { call(Number::Signalfd4, given) }.map(small)
}

/// Gives every signal its default action, as a program expects them.
pub fn forget_signal_actions() {
    // Handler, flags, restorer and mask; all zero is the default action.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: the structure is as large as the kernel's and lives through the call; the old one is not asked for.
        let _ = unsafe { call(Number::RtSigaction, [signal, at(default.as_ptr()), 0, SIGNAL_SET]) };
    }
}

/// Blocks no signal any more.
pub fn release_signals() {
    let _ = block(0);
}

fn block(set: u64) -> Result<(), Errno> {
    const SIG_SETMASK: usize = 2;
    // SAFETY: the set is as large as it says, and lives through the call; the old one is not asked for.
    unsafe { call(Number::RtSigprocmask, [SIG_SETMASK, at(&raw const set), 0, SIGNAL_SET]) }.map(drop)
}

// ---- What processes share ------------------------------------------------------------------------------------------------

/// Some numbers that a process shares with those it forks.
#[derive(Clone, Copy)]
pub struct Shared(&'static [AtomicU64; Self::PLACES]);

impl Shared {
    /// How many numbers there are.
    const PLACES: usize = 32;

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
    const READ_WRITE: usize = 3;
    const SHARED_ANONYMOUS: usize = 0x21;
    const NO_FILE: usize = usize::MAX;
    let size = size_of::<[AtomicU64; Shared::PLACES]>();
    // SAFETY: the kernel chooses the place, so nothing that exists is touched.
    let place = unsafe { call(Number::Mmap, [0, size, READ_WRITE, SHARED_ANONYMOUS, NO_FILE]) }?;
    let place: *const [AtomicU64; Shared::PLACES] = ptr::with_exposed_provenance(place);
    // SAFETY: the place is zeroed, large enough, aligned to a page and never given back; atomics may be shared by processes.
    Ok(Shared(unsafe { &*place }))
}

// ---- Time ----------------------------------------------------------------------------------------------------------------

/// The time since some moment in the past, in nanoseconds.
pub fn now() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the structure is two 64-bit numbers and lives through the call.
    let _ = unsafe { call(Number::ClockGettime, [MONOTONIC, at(time.as_mut_ptr())]) };
    let [seconds, nanoseconds] = time.map(i64::cast_unsigned);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// A descriptor that becomes readable when its time has come. Whoever shares it can set the time, and wakes nobody by that.
pub fn timer() -> Result<i32, Errno> {
    plain(Number::TimerfdCreate, [MONOTONIC, O_CLOEXEC]).map(small)
}

/// Sets the time, from now on: once, or ever again.
pub fn set_timer(timer: i32, after: Duration, again: Again) -> Result<(), Errno> {
    // One so far away that the clock cannot say it is never; none at all would turn it off.
    let after = after.clamp(Duration::from_nanos(1), Duration::from_secs(365 * 24 * 3600));
    let time = [after.as_secs(), u64::from(after.subsec_nanos())];
    let [interval, first] = [if again == Again::Always { time } else { [0, 0] }, time];
    let both = [interval, first];
    // SAFETY: the structure is two pairs of 64-bit numbers, interval and time, and lives through the call.
    unsafe { call(Number::TimerfdSettime, [number(timer), 0, at(both.as_ptr())]) }.map(drop)
}

/// Whether a timer goes off more than once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Never,
    Always,
}

/// Which descriptors are readable or closed by the other side, or may be, after at most this long, or whenever that may be.
pub fn poll<const N: usize>(fds: [i32; N], longest: Option<Duration>) -> [bool; N] {
    const POLLIN: i16 = 1;
    let mut polled = fds.map(|fd| PollFd { fd, events: POLLIN, revents: 0 });
    let longest = longest.map(|longest| [longest.as_secs(), u64::from(longest.subsec_nanos())]);
    let timeout = longest.as_ref().map_or(0, |longest| at(longest.as_ptr()));
    // SAFETY: the array has N entries and lives through the call, as the time does; negative descriptors are skipped.
    let answer = unsafe { call(Number::Ppoll, [at(polled.as_mut_ptr()), N, timeout]) };
    // A kernel that does not say, as for too many descriptors, must not leave the caller waiting for ever.
    let unknown = answer.is_err_and(|errno| errno != Errno(EINTR));
    polled.map(|entry| unknown || entry.revents != 0)
}

/// Whether there is something to read now.
pub fn has_input(fd: i32) -> bool {
    const POLLIN: i16 = 1;
    let mut polled = [PollFd { fd, events: POLLIN, revents: 0 }];
    let at_once = [0_u64; 2];
    // SAFETY: there is one entry, which lives through the call, as the time does.
    let _ = unsafe { call(Number::Ppoll, [at(polled.as_mut_ptr()), 1, at(at_once.as_ptr())]) };
    polled[0].revents & POLLIN != 0
}

// ---- Descriptors ---------------------------------------------------------------------------------------------------------

pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: the kernel writes at most the buffer's length.
        match unsafe { call(Number::Read, [number(fd), at(buffer.as_mut_ptr()), buffer.len()]) } {
            Err(Errno(EINTR)) => {}
            other => return other,
        }
    }
}

/// Reads from this place in a file, wherever its position is.
pub fn read_at(fd: i32, place: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the buffer's length.
    unsafe { call(Number::Pread64, [number(fd), at(buffer.as_mut_ptr()), buffer.len(), place]) }
}

/// Writes everything, or fails. A closed socket or pipe is an error here: the init has SIGPIPE blocked.
pub fn write_all(fd: i32, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: the kernel reads at most the slice's length.
        match unsafe { call(Number::Write, [number(fd), at(bytes.as_ptr()), bytes.len()]) } {
            Err(Errno(EINTR)) => {}
            Err(errno) => return Err(errno),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Receives bytes and descriptors, which close on exec.
pub fn receive(socket: i32, buffer: &mut [u8], fds: &mut Vec<i32>) -> Result<usize, Errno> {
    const CMSG_CLOEXEC: usize = 0x4000_0000;
    let mut control = Control::default();
    let mut part = IoVec { base: buffer.as_mut_ptr().cast(), length: buffer.len() };
    let mut message = message(&mut part, &mut control, size_of::<Control>());
    // SAFETY: every pointer in the message is to a local or to `buffer`, with its true length.
    let received = unsafe { call(Number::Recvmsg, [number(socket), at(&raw mut message), CMSG_CLOEXEC]) }?;
    if (control.level, control.kind) == Control::RIGHTS && message.control_length > 0 {
        let count = control.length.saturating_sub(Control::HEADER) / size_of::<i32>();
        fds.extend(control.fds.iter().take(count));
    }
    Ok(received)
}

/// Sends bytes and some descriptors, as one message.
pub fn send(socket: i32, bytes: &[u8], descriptors: &[i32]) -> Result<(), Errno> {
    let (level, kind) = Control::RIGHTS;
    let length = Control::HEADER + size_of_val(descriptors);
    let mut control = Control { length, level, kind, ..Control::default() };
    let room = control.fds.get_mut(..descriptors.len()).ok_or(Errno(EINVAL))?;
    room.copy_from_slice(descriptors);
    let mut part = IoVec { base: bytes.as_ptr().cast_mut().cast(), length: bytes.len() };
    // With what aligns a next header; none at all without descriptors.
    let control_length = if descriptors.is_empty() { 0 } else { length.next_multiple_of(size_of::<usize>()) };
    let message = message(&mut part, &mut control, control_length);
    // SAFETY: every pointer in the message is to a local or to `bytes`, which the kernel reads, with its true length.
    unsafe { call(Number::Sendmsg, [number(socket), at(&raw const message), 0]) }.map(drop)
}

fn message(part: &mut IoVec, control: &mut Control, control_length: usize) -> Message {
    Message {
        name: ptr::null_mut(),
        name_length: 0,
        parts: part,
        part_count: 1,
        control: (&raw mut *control).cast(),
        control_length,
        flags: 0,
    }
}

/// Writes to a file that exists, all at once.
pub fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = open(path, Open::Write)?;
    let written = write_all(file, bytes);
    close(file);
    written
}

/// Makes `to` a copy of `from`, which is another one, that stays open on exec.
pub fn duplicate(from: i32, to: i32) -> Result<(), Errno> {
    plain(Number::Dup3, [number(from), number(to)]).map(drop)
}

/// A copy that is none of the standard streams and closes on exec.
pub fn copy_aside(fd: i32) -> Result<i32, Errno> {
    copy_above(fd, 3)
}

/// A copy that is at least this one and closes on exec.
pub fn copy_above(fd: i32, least: i32) -> Result<i32, Errno> {
    const DUPFD_CLOEXEC: usize = 1030;
    plain(Number::Fcntl, [number(fd), DUPFD_CLOEXEC, number(least)]).map(small)
}

/// Two sockets, connected to each other, that close on exec.
pub fn socket_pair() -> Result<[i32; 2], Errno> {
    const UNIX: usize = 1;
    const STREAM: usize = 1;
    let mut pair = [0_i32; 2];
    // SAFETY: the kernel writes two descriptors, for which there is room.
    unsafe { call(Number::Socketpair, [UNIX, STREAM | O_CLOEXEC, 0, at(pair.as_mut_ptr())]) }?;
    Ok(pair)
}

pub fn close(fd: i32) {
    let _ = plain(Number::Close, [number(fd)]);
}

/// Marks every descriptor from `first` on to be closed on exec.
pub fn close_on_exec_from(first: i32) -> Result<(), Errno> {
    const LAST: usize = u32::MAX as usize;
    const CLOSE_RANGE_CLOEXEC: usize = 4;
    plain(Number::CloseRange, [number(first), LAST, CLOSE_RANGE_CLOEXEC]).map(drop)
}

// ---- Files ---------------------------------------------------------------------------------------------------------------

/// A descriptor that names a file without opening it, or the file itself for reading.
pub fn open(path: &CStr, how: Open) -> Result<i32, Errno> {
    const CURRENT: i32 = -100;
    // SAFETY: the path ends with NUL.
    unsafe { call(Number::Openat, [number(CURRENT), at(path.as_ptr()), how as usize]) }.map(small)
}

/// Makes a file that is not there yet, to be written.
pub fn create(path: &CStr, mode: u32) -> Result<i32, Errno> {
    const CURRENT: i32 = -100;
    const NEW: usize = 0o100 | 0o200;
    let how = O_CLOEXEC | O_WRONLY | NEW;
    // SAFETY: the path ends with NUL.
    unsafe { call(Number::Openat, [number(CURRENT), at(path.as_ptr()), how, mode as usize]) }.map(small)
}

/// Changes who may use a file.
pub fn change_mode(path: &CStr, mode: u32) -> Result<(), Errno> {
    const CURRENT: i32 = -100;
    // SAFETY: the path ends with NUL.
    unsafe { call(Number::Fchmodat, [number(CURRENT), at(path.as_ptr()), mode as usize]) }.map(drop)
}

/// The ways in which the init opens files; all close on exec.
#[derive(Debug, Clone, Copy)]
pub enum Open {
    /// For reading.
    Read = O_CLOEXEC as isize,
    /// For writing.
    Write = (O_CLOEXEC | O_WRONLY) as isize,
    /// As a name only, with links followed.
    Place = (O_CLOEXEC | O_PATH) as isize,
    /// As a name only, of the file itself and not of what a link points to.
    Name = (O_CLOEXEC | O_PATH | O_NOFOLLOW) as isize,
}

/// Reads the next entries of an open directory, as the kernel writes them; none when there are no more.
pub fn read_entries<'a>(directory: i32, buffer: &'a mut [u64]) -> Result<impl Iterator<Item = Entry<'a>>, Errno> {
    let given = [number(directory), at(buffer.as_mut_ptr()), size_of_val(buffer)];
    // SAFETY: the kernel writes at most the buffer's length.
    let read = unsafe { call(Number::Getdents64, given) }?;
    // SAFETY: the bytes are those of the buffer, which is longer, and is borrowed as long as they are.
    let mut rest = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), read) };
    Ok(core::iter::from_fn(move || {
        // Inode and offset, the length of the whole, the kind, and a name that ends with NUL.
        let length = usize::from(u16::from_ne_bytes(rest.get(16..18)?.try_into().ok()?));
        let kind = *rest.get(18)?;
        let (entry, after) = rest.split_at_checked(length)?;
        rest = after;
        let name = CStr::from_bytes_until_nul(entry.get(19..)?).ok()?;
        Some(Entry { name: name.to_bytes(), kind })
    }))
}

/// An entry of a directory.
pub struct Entry<'a> {
    pub name: &'a [u8],
    kind: u8,
}

impl Entry<'_> {
    pub fn is_directory(&self) -> bool {
        self.kind == 4
    }

    pub fn is_link(&self) -> bool {
        self.kind == 10
    }

    /// Whether the file system says of its entries what they are.
    pub fn is_known(&self) -> bool {
        self.kind != 0
    }
}

pub fn enter(directory: i32) -> Result<(), Errno> {
    plain(Number::Fchdir, [number(directory)]).map(drop)
}

/// Which file it is, how long it is and when it was written to: one behind a path, or with an empty path that of a descriptor.
pub fn stamp(file: i32, path: &CStr) -> Result<Stamp, Errno> {
    let found = status(file, path, AT_EMPTY_PATH)?;
    let time = |time: &StatxTime| [time.seconds.cast_unsigned(), u64::from(time.nanoseconds)];
    Ok(Stamp {
        device: u64::from(found.device_major) << 32 | u64::from(found.device_minor),
        inode: found.inode,
        size: found.size,
        changed: time(&found.changed),
        modified: time(&found.modified),
    })
}

/// The type of a file, as the upper bits of its mode. Links are not followed.
pub fn file_type(file: i32) -> Result<u64, Errno> {
    status(file, c"", AT_EMPTY_PATH).map(|found| found.head[3] >> 32 & 0o170_000)
}

fn status(file: i32, path: &CStr, flags: usize) -> Result<Statx, Errno> {
    const BASIC_STATS: usize = 0x7ff;
    let mut found = Statx::default();
    let given = [number(file), at(path.as_ptr()), flags, BASIC_STATS, at(&raw mut found)];
    // SAFETY: the path ends with NUL; the structure is as large as the kernel's and lives through the call.
    unsafe { call(Number::Statx, given) }?;
    Ok(found)
}

// ---- Limits, filters and Landlock ----------------------------------------------------------------------------------------

/// The hard limit of a resource.
pub fn hard_limit(resource: i32) -> Result<u64, Errno> {
    let mut limit = [0_u64; 2];
    // SAFETY: the kernel's structure is two 64-bit numbers.
    unsafe { call(Number::Prlimit64, [0, number(resource), 0, at(limit.as_mut_ptr())]) }?;
    let [_, hard] = limit;
    Ok(hard)
}

pub fn set_limit(resource: i32, soft: u64, hard: u64) -> Result<(), Errno> {
    let limit = [soft, hard];
    // SAFETY: the kernel's structure is two 64-bit numbers.
    unsafe { call(Number::Prlimit64, [0, number(resource), at(limit.as_ptr())]) }.map(drop)
}

/// Puts the calling process under a filter of system calls, which must have given up gaining privileges.
pub fn filter_calls(steps: &[FilterStep]) -> Result<(), Errno> {
    const SET_MODE_FILTER: usize = 1;
    // Otherwise older kernels slow every program down that has a filter, whatever the filter is for.
    const SPEC_ALLOW: usize = 4;
    let filter = Filter { count: u16::try_from(steps.len()).unwrap_or(0), steps: steps.as_ptr() };
    // SAFETY: the structure has the kernel's layout, with the true number of steps, which the kernel copies and checks.
    unsafe { call(Number::Seccomp, [SET_MODE_FILTER, SPEC_ALLOW, at(&raw const filter)]) }.map(drop)
}

/// The version of Landlock that the kernel has enabled.
pub fn landlock_version() -> Result<u32, Errno> {
    const VERSION: usize = 1;
    // With this flag the kernel takes no structure.
    plain(Number::LandlockCreateRuleset, [0, 0, VERSION]).map(|version| small(version).cast_unsigned())
}

/// A rule set that handles these accesses and scopes.
pub fn landlock_create(access: u64, scoped: u64) -> Result<i32, Errno> {
    let attributes = [access, 0, scoped];
    // A kernel without scopes knows a shorter structure, and refuses a longer one unless its tail is zero.
    let given = [at(attributes.as_ptr()), size_of_val(&attributes), 0];
    // SAFETY: the structure is three 64-bit numbers: file accesses, network accesses, scopes.
    unsafe { call(Number::LandlockCreateRuleset, given) }.map(small)
}

/// Lets these accesses happen beneath a file.
pub fn landlock_allow(ruleset: i32, beneath: i32, access: u64) -> Result<(), Errno> {
    const PATH_BENEATH: usize = 1;
    let rule = PathBeneath { access, parent: beneath };
    let given = [number(ruleset), PATH_BENEATH, at(&raw const rule), 0];
    // SAFETY: the structure is packed as the kernel declares it, and lives through the call.
    unsafe { call(Number::LandlockAddRule, given) }.map(drop)
}

/// Puts the calling process under a rule set.
pub fn landlock_restrict(ruleset: i32) -> Result<(), Errno> {
    plain(Number::LandlockRestrictSelf, [number(ruleset)]).map(drop)
}

/// A call whose arguments are numbers only.
fn plain<const N: usize>(call_number: Number, given: [usize; N]) -> Result<usize, Errno> {
    // SAFETY: no argument is a pointer.
    unsafe { call(call_number, given) }
}

/// An address as the kernel takes it. What lies there may be read and written through it.
fn at<T: ?Sized>(place: *const T) -> usize {
    place.expose_provenance()
}

/// A number as the kernel takes it: with its sign.
const fn number(number: i32) -> usize {
    number as isize as usize
}

/// An answer that is known to be small: a descriptor, a process.
fn small(answer: usize) -> i32 {
    i32::try_from(answer).unwrap_or(i32::MAX)
}

const MONOTONIC: usize = 1;
/// The bytes of a set of signals.
const SIGNAL_SET: usize = 8;
const AT_EMPTY_PATH: usize = 0x1000;
const O_CLOEXEC: usize = 0o2_000_000;
const O_PATH: usize = 0o10_000_000;
const O_WRONLY: usize = 1;
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: usize = 0o100_000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: usize = 0o400_000;
