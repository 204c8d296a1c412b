//! Things that must not work inside an enclosure, tried for real.
//!
//! Guarantees: what is tried changes nothing, even where it works.

use core::ffi::CStr;

use super::{
    Errno, O_CLOEXEC, O_WRONLY, at,
    call::{Number, call},
    layout::InternetAddress,
    number, plain, small,
};

/// What is tried.
#[derive(Clone, Copy)]
pub enum Attempt<'a> {
    /// A user namespace of one's own.
    NewNamespace,
    /// To be traced.
    Trace,
    /// To mount.
    Mount,
    /// To read a key ring.
    Keys,
    /// To load a program into the kernel.
    KernelProgram,
    /// To make a ring for input and output.
    Ring,
    /// The newer way to fork, whose arguments no filter can see.
    NewerFork,
    /// A Unix socket.
    UnixSocket,
    /// To open a file for writing.
    Write(&'a CStr),
    /// A file that runs as its owner.
    SetUser,
    /// A way to an address of the world. Nothing is sent.
    Reach([u8; 4]),
}

/// Tries it. Returns why it does not work, or nothing where it does.
pub fn attempt(what: Attempt<'_>) -> Option<Errno> {
    const NEW_USER: usize = 0x1000_0000;
    const DATAGRAM: usize = 2;
    const CURRENT: i32 = -100;
    let answer = match what {
        Attempt::NewNamespace => plain(Number::Unshare, [NEW_USER]),
        Attempt::Trace => plain(Number::Ptrace, [0; 4]),
        // SAFETY: every string ends with NUL.
        Attempt::Mount => unsafe {
            call(Number::Mount, [at(c"none".as_ptr()), at(c"/tmp".as_ptr()), at(c"tmpfs".as_ptr())])
        },
        Attempt::Keys => plain(Number::Keyctl, [0, number(-3), 0]),
        Attempt::KernelProgram => plain(Number::Bpf, [usize::MAX, 0, 0]),
        Attempt::Ring => plain(Number::IoUringSetup, [1, 0]),
        Attempt::NewerFork => plain(Number::Clone3, [0, 0]),
        Attempt::UnixSocket => plain(Number::Socket, [1, 1 | O_CLOEXEC, 0]),
        // SAFETY: the path ends with NUL.
        Attempt::Write(path) => unsafe {
            call(Number::Openat, [number(CURRENT), at(path.as_ptr()), O_CLOEXEC | O_WRONLY])
        },
        // SAFETY: the path ends with NUL. There is no such file, so where this is let through, it does nothing.
        Attempt::SetUser => unsafe {
            call(Number::Fchmodat, [number(CURRENT), at(c"/tmp/none".as_ptr()), 0o4755])
        },
        Attempt::Reach(address) => {
            let to = InternetAddress { family: 2, port: 53_u16.to_be_bytes(), address, zero: [0; 8] };
            plain(Number::Socket, [2, DATAGRAM | O_CLOEXEC, 0]).map(small).and_then(|socket| {
                let given = [number(socket), at(&raw const to), size_of::<InternetAddress>()];
                // SAFETY: the address is as long as it says and lives through the call.
                let reached = unsafe { call(Number::Connect, given) };
                super::close(socket);
                reached
            })
        }
    };
    answer.err()
}
