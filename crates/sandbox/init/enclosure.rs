//! The first process of an enclosure: finishes what bubblewrap has begun, and then supervises like any init.
//!
//! Guarantees: the network holds nothing but what the blueprint names; the sockets that lead out of it are in the daemon's hands only; when
//! this process ends, the kernel ends every other one of the enclosure.
//! Refuses: to stand where a step failed. Does not: hold the tool. The process that becomes the tool does that to itself.

use alloc::{ffi::CString, vec::Vec};

use crate::{
    blueprint::{Blueprint, MOUNTS, Network, SOCKETS},
    files,
    kernel::{self, Errno, Open, Prctl, Socket},
    launcher::read_message,
    protocol::{Report, Step},
    supervisor::{CONTROL, ORDERS},
};

/// Builds what is missing, tells the daemon, and returns what the process that becomes the tool needs to know.
pub fn build() -> Result<Blueprint, (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    let broken = || (Step::Order, Errno(kernel::EINVAL));
    // Bubblewrap's own process holds the standard streams for as long as it lives, so the sockets come elsewhere.
    for (from, to) in SOCKETS.into_iter().zip([CONTROL, ORDERS]) {
        kernel::duplicate(from, to).map_err(at(Step::Supervise))?;
        kernel::close(from);
    }
    // When bubblewrap is killed, nobody would collect this process.
    kernel::prctl(Prctl::SetParentDeathSignal, kernel::SIGKILL as usize).map_err(at(Step::Supervise))?;
    let (mut bytes, _) = read_message(ORDERS).map_err(at(Step::Order))?;
    let mut blueprint = Blueprint::decode(&bytes).ok_or_else(broken)?;
    if !blueprint.secrets.is_empty() {
        files::forget(&mut bytes);
    }
    drop(bytes);
    close_descriptors(&blueprint).map_err(at(Step::Descriptors))?;
    for (path, mount) in blueprint.mounts.iter().zip(MOUNTS..) {
        let path = CString::new(path.as_slice()).map_err(|_| broken())?;
        kernel::attach(mount, &path).map_err(at(Step::Mount))?;
        kernel::close(mount);
    }
    // SECURITY: bubblewrap binds by paths, and a tool of another call may have put a link where one of them leads through its workspace.
    for root in &blueprint.roots {
        let found = find(root).map_err(at(Step::Mount))?;
        kernel::close(found);
    }
    // SECURITY: Landlock hides what files hold. Their modes could still be changed by whoever owns them, and that is the tool: a key of the
    // daemon could be made everybody's to read. Under a cover there are no files.
    for path in &blueprint.hidden {
        let path = CString::new(path.as_slice()).map_err(|_| broken())?;
        kernel::cover(&path).map_err(at(Step::Mount))?;
    }
    files::add_to(&blueprint.added_to, &blueprint.added).map_err(at(Step::Mount))?;
    files::put_secrets(&mut blueprint.secrets).map_err(at(Step::Mount))?;
    kernel::mount_terminals(c"/dev/pts").map_err(at(Step::Mount))?;
    let sockets = blueprint.network.as_ref().map_or(Ok(Vec::new()), open_sockets).map_err(at(Step::Network))?;
    let report = Report::Enclosed { namespaces: NAMESPACES.map(|link| kernel::namespace(link).unwrap_or(0)) };
    kernel::send(CONTROL, &report.encode(), &sockets).map_err(at(Step::Network))?;
    sockets.into_iter().for_each(kernel::close);
    Ok(blueprint)
}

/// Leaves the tool none but the standard streams.
pub fn close_descriptors(_blueprint: &Blueprint) -> Result<(), Errno> {
    #[cfg(weak)]
    if _blueprint.is_without(crate::blueprint::weakness::CLOSE_RANGE) {
        return Ok(());
    }
    kernel::close_on_exec_from(3)
}

/// What is left to give up once the tool's process is forked.
pub fn settle() -> Result<(), (Step, Errno)> {
    kernel::drop_all_capabilities().map_err(|errno| (Step::Capabilities, errno))
}

/// The sockets of the network: for names, for the proxy, and one for each port.
fn open_sockets(network: &Network) -> Result<Vec<i32>, Errno> {
    let Network { addresses: (address, fixed), proxy, ports } = network;
    kernel::route_to_loopback(*address, *fixed)?;
    let mut sockets = Vec::new();
    sockets.push(kernel::bind_local(Socket::Datagram, LOOPBACK, NAMES)?);
    sockets.push(kernel::bind_local(Socket::Stream, LOOPBACK, *proxy)?);
    for &port in ports {
        sockets.push(kernel::bind_local(Socket::Stream, EVERY, port)?);
    }
    Ok(sockets)
}

/// Opens what the order names, and looks whether it is what was meant.
pub fn find(named: &crate::protocol::Named) -> Result<i32, Errno> {
    let path = CString::new(named.path.as_slice()).map_err(|_| Errno(kernel::EINVAL))?;
    let found = kernel::open(&path, Open::Place)?;
    let stamp = kernel::stamp(found, c"")?;
    if (stamp.device, stamp.inode) == (named.device, named.inode) { Ok(found) } else { Err(Errno(kernel::ESTALE)) }
}

const NAMESPACES: [&core::ffi::CStr; 7] = [
    c"/proc/self/ns/user",
    c"/proc/self/ns/mnt",
    c"/proc/self/ns/pid",
    c"/proc/self/ns/ipc",
    c"/proc/self/ns/uts",
    c"/proc/self/ns/cgroup",
    c"/proc/self/ns/net",
];

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const EVERY: [u8; 4] = [0, 0, 0, 0];
/// The port at which names are asked for.
const NAMES: u16 = 53;
