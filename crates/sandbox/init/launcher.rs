//! The launcher: what has to be done outside of an enclosure and by root, if the daemon is root, before bubblewrap builds it.
//!
//! It reads one [`Launch`], joins the cgroups, makes the mounts that only root can make, becomes an ordinary user and then bubblewrap, which
//! starts the init inside.
//! Guarantees: bubblewrap never runs as root; no descriptor goes along but the two sockets, the init itself and the mounts.
//! Does not: outlive a failed step. The daemon hears of it.

use alloc::{ffi::CString, format, vec, vec::Vec};
use core::time::Duration;

use crate::{
    blueprint::{IMAGE, LONGEST, Launch, MOUNTS, Mount, SOCKETS},
    kernel::{self, Change, Errno, Open, Prctl},
    protocol::{Report, Step},
};

/// Becomes bubblewrap, or says why not.
pub fn launch() -> Result<(), (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    let broken = || (Step::Order, Errno(kernel::EINVAL));
    // Out of the daemon's process group: Ctrl-C on its terminal is for the daemon to handle.
    kernel::setsid().map_err(at(Step::Session))?;
    let (bytes, fds) = read_message(ORDERS).map_err(at(Step::Order))?;
    let launch = Launch::decode(&bytes).ok_or_else(broken)?;
    let cgroups = usize::try_from(launch.cgroups).map_err(|_| broken())?;
    let (cgroups, directories) = fds.split_at_checked(cgroups).ok_or_else(broken)?;
    if directories.len() != launch.mounts.len() {
        return Err(broken());
    }
    for &processes in cgroups {
        // Zero is whoever writes it.
        kernel::write_all(processes, b"0").map_err(at(Step::Cgroup))?;
    }
    // Before the user changes: what shows a process to itself belongs to root afterwards.
    let image = kernel::open(c"/proc/self/exe", Open::Read).map_err(at(Step::Descriptors))?;
    let mounts = make_mounts(&launch, directories).map_err(at(Step::Mount))?;
    let [control, orders] = [CONTROL, ORDERS].map(kernel::copy_aside);
    let [control, orders] = [control.map_err(at(Step::Descriptors))?, orders.map_err(at(Step::Descriptors))?];
    place(&[(control, SOCKETS[0]), (orders, SOCKETS[1]), (image, IMAGE)], &mounts).map_err(at(Step::Descriptors))?;
    // From here on the daemon is to be reached elsewhere.
    let (step, Errno(errno)) = become_bubblewrap(launch);
    let _ = kernel::write_all(SOCKETS[0], &Report::Refused { step, errno }.encode());
    Ok(())
}

/// Returns only when that fails.
fn become_bubblewrap(launch: Launch) -> (Step, Errno) {
    let broken = (Step::Order, Errno(kernel::EINVAL));
    if let Some([user, group]) = launch.user {
        let (Ok(user), Ok(group)) = (u32::try_from(user), u32::try_from(group)) else { return broken };
        if let Err(errno) = kernel::become_user(user, group) {
            return (Step::User, errno);
        }
    }
    if let Err(errno) = kernel::leave_keys() {
        return (Step::User, errno);
    }
    #[cfg(weak)]
    let is_held = launch.weaknesses & crate::blueprint::weakness::USER == 0;
    #[cfg(not(weak))]
    let is_held = true;
    if is_held && kernel::user_id() == 0 {
        // SECURITY: what root owns in `/proc` follows the user, not capabilities. An enclosure of root is none.
        return (Step::User, Errno(kernel::EPERM));
    }
    let args: Option<Vec<CString>> = launch.args.into_iter().map(|arg| CString::new(arg).ok()).collect();
    let (Ok(program), Some(args)) = (CString::new(launch.program), args) else { return broken };
    (Step::Execute, kernel::replace_program(&program, &args, &[]))
}

/// Reads one message, its length first, and what comes with it. Not a byte more: what follows is for others.
pub fn read_message(socket: i32) -> Result<(Vec<u8>, Vec<i32>), Errno> {
    let mut fds = Vec::new();
    let mut prefix = [0; 4];
    read_exactly(socket, &mut prefix, &mut fds)?;
    let length = u32::from_le_bytes(prefix) as usize;
    if length > LONGEST {
        return Err(Errno(kernel::EINVAL));
    }
    let mut bytes = vec![0; length];
    read_exactly(socket, &mut bytes, &mut fds)?;
    Ok((bytes, fds))
}

fn read_exactly(socket: i32, bytes: &mut [u8], fds: &mut Vec<i32>) -> Result<(), Errno> {
    let mut have = 0;
    while let Some(room) = bytes.get_mut(have..).filter(|room| !room.is_empty()) {
        match kernel::receive(socket, room, fds)? {
            0 => return Err(Errno(kernel::EINVAL)),
            received => have += received,
        }
    }
    Ok(())
}

/// The mounts, attached nowhere yet.
fn make_mounts(launch: &Launch, directories: &[i32]) -> Result<Vec<i32>, Errno> {
    let mut made = Vec::new();
    for (&Mount { owner, read_only }, &directory) in launch.mounts.iter().zip(directories) {
        let user = launch.user.ok_or(Errno(kernel::EINVAL))?;
        // What can only be read shows everybody's files as they are; its permissions decide.
        let owners = if read_only { None } else { Some(map_owner(owner, user)?) };
        made.push(kernel::clone_mount(directory, &Change { read_only, owners })?);
        owners.into_iter().for_each(kernel::close);
    }
    Ok(made)
}

/// A user namespace in which files of one owner belong to the user of the enclosure, and files of everybody else to nobody.
fn map_owner(owner: [u64; 2], user: [u64; 2]) -> Result<i32, Errno> {
    let holder = kernel::new_user_namespace()?;
    if holder == 0 {
        let _ = kernel::prctl(Prctl::SetParentDeathSignal, kernel::SIGKILL as usize);
        loop {
            kernel::poll([], Some(Duration::from_secs(3600)));
        }
    }
    let ([on_disk, group_on_disk], [user, group]) = (owner, user);
    let file = |name: &str| CString::new(format!("/proc/{holder}/{name}")).map_err(|_| Errno(kernel::EINVAL));
    let mapped = || {
        kernel::write_file(&file("uid_map")?, format!("{on_disk} {user} 1").as_bytes())?;
        kernel::write_file(&file("gid_map")?, format!("{group_on_disk} {group} 1").as_bytes())?;
        kernel::open(&file("ns/user")?, Open::Read)
    };
    let namespace = mapped();
    kernel::kill(holder, kernel::SIGKILL);
    while matches!(kernel::wait_for(holder), Err(Errno(kernel::EINTR))) {}
    namespace
}

/// Puts descriptors where the init expects them, and nothing into the standard streams.
fn place(fixed: &[(i32, i32)], mounts: &[i32]) -> Result<(), Errno> {
    // None of them may be overwritten before it is copied.
    let above = |fd: i32| kernel::copy_above(fd, ABOVE);
    let mounts = mounts.iter().zip(MOUNTS..).map(|(&mount, to)| (mount, to));
    let all: Result<Vec<(i32, i32)>, Errno> =
        fixed.iter().copied().chain(mounts).map(|(from, to)| Ok((above(from)?, to))).collect();
    for (from, to) in all? {
        kernel::duplicate(from, to)?;
    }
    let nothing = kernel::open(c"/dev/null", Open::Read)?;
    kernel::duplicate(nothing, CONTROL)?;
    kernel::duplicate(nothing, ORDERS)
}

/// The control socket and the socket of the orders, as the daemon hands them over.
const CONTROL: i32 = 0;
const ORDERS: i32 = 1;

/// Above everything that the init expects to find.
const ABOVE: i32 = 300;
