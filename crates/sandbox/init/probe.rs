//! Looks at an enclosure from inside: tries what must not work, and says what held.
//!
//! It is the very process that would become a tool, behind all of a tool's walls.
//! Guarantees: a check counts as passed only if the kernel refused in the way that the layer refuses.

use crate::{
    kernel::{self, Attempt, Errno},
    protocol::probe,
};

/// The checks that passed, as [`probe`] bits.
pub fn look() -> u64 {
    let mut passed = 0;
    let mut check = |bit: u64, held: bool| passed |= if held { bit } else { 0 };
    let refused = |what: Attempt<'_>, errors: &[i32]| {
        kernel::attempt(what).is_some_and(|Errno(errno)| errors.contains(&errno))
    };
    check(probe::NAMESPACES, refused(Attempt::NewNamespace, &[EPERM]));
    check(probe::TRACING, refused(Attempt::Trace, &[EPERM]));
    check(probe::MOUNTING, refused(Attempt::Mount, &[EPERM]));
    check(probe::KEYS, refused(Attempt::Keys, &[EPERM]));
    check(probe::KERNEL_PROGRAMS, refused(Attempt::KernelProgram, &[EPERM]));
    check(probe::RINGS, refused(Attempt::Ring, &[EPERM]));
    check(probe::NEWER_FORK, refused(Attempt::NewerFork, &[ENOSYS]));
    check(probe::UNIX_SOCKETS, refused(Attempt::UnixSocket, &[EAFNOSUPPORT]));
    check(probe::SET_USER, refused(Attempt::SetUser, &[EPERM]));
    check(probe::CORE_PATTERN, refused(Attempt::Write(c"/proc/sys/kernel/core_pattern"), &[EACCES, EPERM, EROFS]));
    // It belongs to the process, so nothing but Landlock keeps it from being written to.
    check(probe::LANDLOCK, refused(Attempt::Write(c"/proc/self/comm"), &[EACCES]));
    check(probe::NETWORK, refused(Attempt::Reach([192, 0, 2, 1]), &[ENETUNREACH, EHOSTUNREACH]));
    check(probe::STATUS, has_nothing_left() == Some(true));
    check(probe::NOT_ROOT, is_nobody() == Some(true));
    passed
}

/// Whether the kernel says that there are no capabilities, none to be gained, and a filter.
fn has_nothing_left() -> Option<bool> {
    let text = read(c"/proc/self/status")?;
    let text = core::str::from_utf8(&text).ok()?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_zero = |name: &str| value(name).is_some_and(|value| value.bytes().all(|byte| byte == b'0'));
    let empty = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].into_iter().all(is_zero);
    Some(empty && value("NoNewPrivs:") == Some("1") && value("Seccomp:") == Some("2"))
}

/// Whether the user is an ordinary one, inside and outside.
fn is_nobody() -> Option<bool> {
    let text = read(c"/proc/self/uid_map")?;
    let mut numbers = core::str::from_utf8(&text).ok()?.split_ascii_whitespace();
    let (inside, outside, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(inside != "0" && outside != "0" && count == "1" && kernel::user_id() != 0)
}

fn read(path: &core::ffi::CStr) -> Option<alloc::vec::Vec<u8>> {
    let file = kernel::open(path, kernel::Open::Read).ok()?;
    let mut text = alloc::vec![0; 4096];
    let read = kernel::read(file, &mut text).ok()?;
    kernel::close(file);
    text.truncate(read);
    Some(text)
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;
const ENETUNREACH: i32 = 101;
const EHOSTUNREACH: i32 = 113;
