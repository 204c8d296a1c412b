//! What it takes to be inside an enclosure: mounts, namespaces, users, capabilities, sockets, notices of refused calls.
//!
//! Guarantees and does as the module above says: a failed call is an [`Errno`], and nothing is decided here.

use alloc::{ffi::CString, vec::Vec};
use core::ffi::{CStr, c_char};

use super::{
    AT_EMPTY_PATH, EINTR, EINVAL, Errno, FilterStep, O_CLOEXEC, SIGCHLD, at,
    call::{Number, call},
    layout::{Filter, InternetAddress, MountAttributes, Notice, NoticeAnswer, RouteRequest},
    number, plain, small,
};

// ---- Mounts --------------------------------------------------------------------------------------------------------------

/// How a mount differs from the one that it is a copy of.
pub struct Change {
    /// Nothing can be written through it.
    pub read_only: bool,
    /// The user namespace by whose map it shows owners.
    pub owners: Option<i32>,
}

/// A copy of the mount at an open directory, attached nowhere, without set-id programs and devices. What is mounted on one of the two later
/// does not show in the other.
pub fn clone_mount(directory: i32, change: &Change) -> Result<i32, Errno> {
    const CLONE: usize = 1;
    const READ_ONLY: u64 = 1;
    const NO_SET_ID: u64 = 2;
    const NO_DEVICES: u64 = 4;
    const OWNERS: u64 = 0x10_0000;
    const PRIVATE: u64 = 1 << 18;
    let empty = at(c"".as_ptr());
    // SAFETY: the path ends with NUL.
    let tree = unsafe { call(Number::OpenTree, [number(directory), empty, AT_EMPTY_PATH | CLONE | O_CLOEXEC]) }?;
    let set = NO_SET_ID
        | NO_DEVICES
        | if change.read_only { READ_ONLY } else { 0 }
        | if change.owners.is_some() { OWNERS } else { 0 };
    let user_namespace = u64::from(change.owners.unwrap_or_default().cast_unsigned());
    let attributes = MountAttributes { set, clear: 0, propagation: PRIVATE, user_namespace };
    let given = [tree, empty, AT_EMPTY_PATH, at(&raw const attributes), size_of::<MountAttributes>()];
    // SAFETY: the path ends with NUL; the structure is as large as it says and lives through the call.
    unsafe { call(Number::MountSetattr, given) }?;
    Ok(small(tree))
}

/// Attaches such a mount to a path.
pub fn attach(mount: i32, path: &CStr) -> Result<(), Errno> {
    const FROM_EMPTY_PATH: usize = 4;
    const CURRENT: i32 = -100;
    let given = [number(mount), at(c"".as_ptr()), number(CURRENT), at(path.as_ptr()), FROM_EMPTY_PATH];
    // SAFETY: both paths end with NUL.
    unsafe { call(Number::MoveMount, given) }.map(drop)
}

/// Puts an empty directory in the place of one, as far as this namespace sees it.
///
/// One that is not there needs none, nor one that cannot be reached: whoever covers it passes every directory of its own user, open or closed, and of
/// others' those that are open, which is all that the tool could.
pub fn cover(path: &CStr) -> Result<(), Errno> {
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const READ_ONLY_FOR_NOTHING: usize = 1 | 2 | 4 | 8;
    let kind = at(c"tmpfs".as_ptr());
    let options = at(c"mode=0,size=4k".as_ptr());
    // SAFETY: every string ends with NUL.
    match unsafe { call(Number::Mount, [kind, at(path.as_ptr()), kind, READ_ONLY_FOR_NOTHING, options]) } {
        Err(Errno(ENOENT | EACCES)) => Ok(()),
        covered => covered.map(drop),
    }
}

/// Mounts memory for files over a directory. Nobody else's user can enter it, and nothing in it can be executed.
pub fn mount_memory(path: &CStr) -> Result<(), Errno> {
    let kind = at(c"tmpfs".as_ptr());
    let options = at(c"mode=700,size=32m".as_ptr());
    // SAFETY: every string ends with NUL.
    unsafe { call(Number::Mount, [kind, at(path.as_ptr()), kind, FOR_READING, options]) }.map(drop)
}

/// Shows a file in the place of another one, to be read.
pub fn bind_read_only(file: &CStr, path: &CStr) -> Result<(), Errno> {
    // SAFETY: both paths end with NUL.
    unsafe { call(Number::Mount, [at(file.as_ptr()), at(path.as_ptr()), 0, BIND]) }?;
    make_read_only(path)
}

/// Nothing can be written any more through the mount at this path.
pub fn make_read_only(path: &CStr) -> Result<(), Errno> {
    const READ_ONLY: usize = 1;
    const REMOUNT: usize = 0x20;
    let how = BIND | REMOUNT | READ_ONLY | FOR_READING;
    // SAFETY: the path ends with NUL.
    unsafe { call(Number::Mount, [0, at(path.as_ptr()), 0, how]) }.map(drop)
}

/// Takes the mount at this path away. What was bound from it stays where it is.
pub fn unmount(path: &CStr) -> Result<(), Errno> {
    const DETACH: usize = 2;
    // SAFETY: the path ends with NUL.
    unsafe { call(Number::Umount2, [at(path.as_ptr()), DETACH]) }.map(drop)
}

/// No set-id programs, no devices, no programs at all.
const FOR_READING: usize = 2 | 4 | 8;
const BIND: usize = 0x1000;

/// Mounts pseudo-terminals of one's own. Not as many as there can be on the machine, which all share.
pub fn mount_terminals(path: &CStr) -> Result<(), Errno> {
    const NO_SET_ID_NO_EXEC: usize = 2 | 8;
    let kind = at(c"devpts".as_ptr());
    let options = at(c"newinstance,ptmxmode=0666,mode=600,max=64".as_ptr());
    // SAFETY: every string ends with NUL.
    unsafe { call(Number::Mount, [kind, at(path.as_ptr()), kind, NO_SET_ID_NO_EXEC, options]) }.map(drop)
}

// ---- Namespaces and users ------------------------------------------------------------------------------------------------

/// The number of a namespace of the caller, from what `/proc/self/ns/…` is a link to: `net:[4026531840]`.
pub fn namespace(link: &CStr) -> Option<u64> {
    const CURRENT: i32 = -100;
    let mut text = [0_u8; 64];
    let given = [number(CURRENT), at(link.as_ptr()), at(text.as_mut_ptr()), text.len()];
    // SAFETY: the path ends with NUL; the kernel writes at most the buffer's length.
    let length = unsafe { call(Number::Readlinkat, given) }.ok()?;
    let text = core::str::from_utf8(text.get(..length)?).ok()?;
    text.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// Forks into a new user namespace.
pub fn new_user_namespace() -> Result<i32, Errno> {
    const NEW_USER: usize = 0x1000_0000;
    plain(Number::Clone, [NEW_USER | number(SIGCHLD)]).map(small)
}

/// Leaves the keys behind that whoever started this has. Where the kernel has no keys, or lets nobody at them, there are none to leave.
pub fn leave_keys() -> Result<(), Errno> {
    const JOIN_SESSION: usize = 1;
    const EPERM: i32 = 1;
    const ENOSYS: i32 = 38;
    match plain(Number::Keyctl, [JOIN_SESSION, 0]) {
        Err(Errno(EPERM | ENOSYS)) => Ok(()),
        joined => joined.map(drop),
    }
}

/// Becomes an ordinary user, for good, with no group but its own.
pub fn become_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (user as usize, group as usize);
    plain(Number::Setgroups, [0, 0])?;
    plain(Number::Setresgid, [group; 3])?;
    plain(Number::Setresuid, [user; 3]).map(drop)
}

/// Gives up every capability, in every set.
pub fn drop_all_capabilities() -> Result<(), Errno> {
    const AMBIENT: usize = 47;
    const CLEAR_ALL: usize = 4;
    const VERSION_3: u32 = 0x2008_0522;
    const DROP_FROM_BOUNDING_SET: usize = 24;
    plain(Number::Prctl, [AMBIENT, CLEAR_ALL])?;
    // As many as the kernel has, of which it says when there are no more.
    for capability in 0..64 {
        match plain(Number::Prctl, [DROP_FROM_BOUNDING_SET, capability]) {
            Ok(_) => {}
            Err(Errno(EINVAL)) if capability > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    // SAFETY: the header and the six numbers of this version have the kernel's layout and live through the call.
    unsafe { call(Number::Capset, [at(header.as_ptr()), at(none.as_ptr())]) }.map(drop)
}

/// Becomes another program. Returns only when that fails.
pub fn replace_program(path: &CStr, args: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([core::ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both lists end with a null pointer, and every string in them with NUL.
    unsafe { call(Number::Execve, [at(path.as_ptr()), at(args.as_ptr()), at(env.as_ptr())]) }
        .err()
        .unwrap_or(Errno(EINVAL))
}

// ---- The network ---------------------------------------------------------------------------------------------------------

/// Makes a range of addresses lead to this machine itself: `length` bits of them are fixed.
pub fn route_to_loopback(address: [u8; 4], length: u8) -> Result<(), Errno> {
    const NETLINK: usize = 16;
    const RAW: usize = 3;
    const NEW_ROUTE: u16 = 24;
    const REQUEST_ACK_CREATE: u16 = 1 | 4 | 0x400;
    const LOOPBACK: u32 = 1;
    let socket = plain(Number::Socket, [NETLINK, RAW | O_CLOEXEC, 0]).map(small)?;
    let request = RouteRequest {
        length: u32::try_from(size_of::<RouteRequest>()).unwrap_or_default(),
        kind: NEW_ROUTE,
        flags: REQUEST_ACK_CREATE,
        sequence: 1,
        port: 0,
        // Internet, the length; the local table, of the kernel, for this host, a local route.
        route: [2, length, 0, 0, 255, 2, 254, 2],
        route_flags: 0,
        destination_header: [8, 1],
        destination: address,
        device_header: [8, 4],
        device: LOOPBACK,
    };
    let given = [number(socket), at(&raw const request), size_of::<RouteRequest>()];
    // SAFETY: the kernel reads the message, which is as long as it says.
    unsafe { call(Number::Sendto, given) }?;
    let mut answer = [0_u32; 32];
    let room = [number(socket), at(answer.as_mut_ptr()), size_of_val(&answer)];
    // SAFETY: the kernel writes at most the buffer's length.
    let received = unsafe { call(Number::Recvfrom, room) };
    super::close(socket);
    // After the header comes the error, negative, or zero.
    match (received?, answer[4].cast_signed()) {
        (20.., 0) => Ok(()),
        (20.., error) => Err(Errno(-error)),
        _ => Err(Errno(EINVAL)),
    }
}

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// Connections come to it.
    Stream,
    /// Messages come to it.
    Datagram,
}

/// A socket at an address of this machine. One for connections waits for them.
pub fn bind_local(kind: Socket, address: [u8; 4], port: u16) -> Result<i32, Errno> {
    const INTERNET: usize = 2;
    const BACKLOG: usize = 1024;
    let raw = match kind {
        Socket::Stream => 1,
        Socket::Datagram => 2,
    };
    let socket = plain(Number::Socket, [INTERNET, raw | O_CLOEXEC, 0]).map(small)?;
    let bound = InternetAddress { family: 2, port: port.to_be_bytes(), address, zero: [0; 8] };
    // SAFETY: the address is as long as it says and lives through the call.
    unsafe { call(Number::Bind, [number(socket), at(&raw const bound), size_of::<InternetAddress>()]) }?;
    if kind == Socket::Stream {
        plain(Number::Listen, [number(socket), BACKLOG])?;
    }
    Ok(socket)
}

// ---- Notices of refused calls --------------------------------------------------------------------------------------------

/// Puts the calling process under a filter whose refusals can be heard of by whoever has the returned descriptor, and answers them.
pub fn filter_with_notices(steps: &[FilterStep]) -> Result<i32, Errno> {
    const SET_MODE_FILTER: usize = 1;
    const SPEC_ALLOW: usize = 4;
    const NEW_LISTENER: usize = 8;
    let filter = Filter { count: u16::try_from(steps.len()).unwrap_or(0), steps: steps.as_ptr() };
    let given = [SET_MODE_FILTER, SPEC_ALLOW | NEW_LISTENER, at(&raw const filter)];
    // SAFETY: the structure has the kernel's layout, with the true number of steps, which the kernel copies and checks.
    unsafe { call(Number::Seccomp, given) }.map(small)
}

/// The next refused call: what to answer it by, and its number. Nothing if whoever made it is gone.
pub fn receive_notice(notices: i32) -> Option<(u64, i32)> {
    const RECEIVE: usize = 0xc050_2100;
    let mut notice = Notice::default();
    loop {
        // SAFETY: the structure is as large as the number of the call says, all zero, and lives through the call.
        match unsafe { call(Number::Ioctl, [number(notices), RECEIVE, at(&raw mut notice)]) } {
            Ok(_) => return Some((notice.id, notice.number)),
            Err(Errno(EINTR)) => notice = Notice::default(),
            Err(_) => return None,
        }
    }
}

/// Lets a refused call fail with this error.
pub fn answer_notice(notices: i32, id: u64, error: i32) {
    const SEND: usize = 0xc018_2101;
    let answer = NoticeAnswer { id, value: 0, error: -error, flags: 0 };
    // SAFETY: the structure is as large as the number of the call says and lives through the call.
    let _ = unsafe { call(Number::Ioctl, [number(notices), SEND, at(&raw const answer)]) };
}
