//! The system calls that an enclosure refuses: the table below, compiled to what the kernel takes.
//!
//! Guarantees: what is refused is refused by every interface of the machine: programs for another architecture are killed at their first
//! call, and the third interface of x86_64 does not exist for them. No file can be left behind that runs as its owner.
//! Does not: list what is allowed. A tool is any program, so the list is of what none of them needs and attacks begin with.

use std::{collections::BTreeMap, fmt::Write};

use palyra_types::digest::Sha256Digest;
use seccompiler::{
    BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::plan::UnixSockets;

/// The filters of an enclosure, as the kernel takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filters {
    /// Those that answer by themselves.
    pub silent: Vec<Vec<u8>>,
    /// The one whose refusals are heard of.
    pub noticed: Vec<u8>,
    /// The same for a kernel that tells nobody.
    pub unnoticed: Vec<u8>,
    /// The digest of all of them.
    pub digest: Sha256Digest,
}

/// What the calls of the filter that is heard of fail with.
pub const NOTICED_ERROR: u64 = libc::EPERM as u64;

impl Filters {
    /// The filters, for tools that may use Unix sockets or may not.
    ///
    /// # Errors
    /// When the table makes no filter, which is a broken build.
    pub fn new(unix_sockets: UnixSockets) -> Result<Self, seccompiler::BackendError> {
        let absent = compile(&[ABSENT], libc::ENOSYS)?;
        let families = compile(&[families(unix_sockets)], libc::EAFNOSUPPORT)?;
        let refused = compile(&[REFUSED, OLD], libc::EPERM)?;
        let silent = vec![bytes(&without_third_interface(absent)), bytes(&families)];
        let (noticed, unnoticed) = (bytes(&heard_of(&refused)), bytes(&refused));
        let digest = Sha256Digest::of(&[silent.concat(), unnoticed.clone()].concat());
        Ok(Self { silent, noticed, unnoticed, digest })
    }
}

/// The name of a call that is heard of, by its number.
#[must_use]
pub fn name_of(number: u32) -> String {
    let found = REFUSED.iter().chain(OLD).find(|refused| refused.number == i64::from(number));
    found.map_or_else(|| format!("system call {number}"), |refused| refused.name.to_owned())
}

/// The table in words, one line for each call, for people and for a test that holds it.
#[must_use]
pub fn described(unix_sockets: UnixSockets) -> String {
    let mut text = String::new();
    let all = [("EPERM", REFUSED), ("EPERM", OLD), ("ENOSYS", ABSENT), ("EAFNOSUPPORT", families(unix_sockets))];
    for (error, calls) in all {
        for Call { name, when, .. } in calls {
            let _ = write!(text, "{error} {name}");
            for (at, all) in when.iter().enumerate() {
                let _ = write!(text, "{}", if at == 0 { " when " } else { " or " });
                let each: Vec<String> = all.iter().map(ToString::to_string).collect();
                let _ = write!(text, "{}", each.join(" and "));
            }
            text.push('\n');
        }
    }
    text
}

/// A call that is refused: always, or when all conditions of one of its rows hold.
struct Call {
    name: &'static str,
    number: i64,
    when: &'static [&'static [When]],
}

/// A condition on one argument, of which the kernel looks at 32 bits unless said otherwise.
#[derive(Clone, Copy)]
enum When {
    /// It is this.
    Is(u8, u32),
    /// It is not this.
    Not(u8, u32),
    /// All of these bits are set.
    Has(u8, u32),
    /// It is an address, of which the kernel looks at all bits, and not zero.
    Given(u8),
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(argument, value) => write!(f, "argument {argument} is {value:#x}"),
            Self::Not(argument, value) => write!(f, "argument {argument} is not {value:#x}"),
            Self::Has(argument, bits) => write!(f, "argument {argument} has {bits:#x}"),
            Self::Given(argument) => write!(f, "argument {argument} is given"),
        }
    }
}

impl When {
    fn condition(self) -> Result<SeccompCondition, seccompiler::BackendError> {
        let (argument, operator, value) = match self {
            Self::Is(argument, value) => (argument, SeccompCmpOp::Eq, value),
            Self::Not(argument, value) => (argument, SeccompCmpOp::Ne, value),
            Self::Has(argument, bits) => (argument, SeccompCmpOp::MaskedEq(bits.into()), bits),
            Self::Given(argument) => return SeccompCondition::new(argument, Qword, SeccompCmpOp::Ne, 0),
        };
        SeccompCondition::new(argument, Dword, operator, value.into())
    }
}

fn compile(calls: &[&[Call]], error: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules = BTreeMap::new();
    for call in calls.iter().copied().flatten() {
        let rows = call
            .when
            .iter()
            .map(|row| SeccompRule::new(row.iter().map(|when| when.condition()).collect::<Result<_, _>>()?));
        rules.insert(call.number, rows.collect::<Result<Vec<_>, _>>()?);
    }
    let refuse = SeccompAction::Errno(error.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, ARCHITECTURE)?.try_into()
}

/// The same, asking whoever listens instead of answering.
fn heard_of(program: &[sock_filter]) -> BpfProgram {
    const ANSWER: u16 = 0x06;
    const NOT_PERMITTED: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();
    const ASK: u32 = 0x7fc0_0000;
    let asks = |step: &sock_filter| match (step.code, step.k) {
        (ANSWER, NOT_PERMITTED) => sock_filter { k: ASK, ..step.clone() },
        _ => step.clone(),
    };
    program.iter().map(asks).collect()
}

/// The same, behind a check that the calls of the third interface of x86_64, which otherwise look native, do not exist.
fn without_third_interface(program: BpfProgram) -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    const THIRD: u32 = 0x4000_0000;
    let no_such_call = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
    let mut checked = vec![step(0x20, 0, 0, 0), step(0x35, 0, 1, THIRD), step(0x06, 0, 0, no_such_call)];
    if cfg!(target_arch = "x86_64") {
        checked.extend(program);
        return checked;
    }
    program
}

fn bytes(program: &[sock_filter]) -> Vec<u8> {
    let step = |step: &sock_filter| {
        let [c, o] = step.code.to_le_bytes();
        let [k, kk, kkk, kkkk] = step.k.to_le_bytes();
        [c, o, step.jt, step.jf, k, kk, kkk, kkkk]
    };
    program.iter().flat_map(step).collect()
}

const ARCHITECTURE: TargetArch = if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 };

/// The number of the init within its enclosure.
const INIT: u32 = 1;
/// That a single process is meant, not a group or all of a user, as two of the calls say it.
const A_PROCESS: u32 = 0;
const A_PROCESS_OF_BLOCKS: u32 = 1;

/// The bits by which a file runs as its owner, or as its group.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// The flags with which opening makes a file.
const CREATE: u32 = libc::O_CREAT.unsigned_abs();
/// Without the bit for directories that belongs to `O_TMPFILE`.
const UNNAMED: u32 = 0o20_000_000;

macro_rules! calls {
    ($($name:ident $(when $([$($when:expr),+])or+)?,)+) => {
        &[$(Call { name: stringify!($name), number: number::$name, when: &[$($(&[$($when),+]),+)?] },)+]
    };
}

use When::{Given, Has, Is, Not};

/// Refused with `EPERM`, and heard of.
const REFUSED: &[Call] = calls! {
    // Mounts and namespaces.
    mount, umount2, pivot_root, chroot, setns, unshare,
    clone when
        [Has(0, 0x0002_0000)] or [Has(0, 0x0200_0000)] or [Has(0, 0x0400_0000)] or [Has(0, 0x0800_0000)] or
        [Has(0, 0x1000_0000)] or [Has(0, 0x2000_0000)] or [Has(0, 0x4000_0000)],
    // Other processes.
    ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd, process_madvise, move_pages, migrate_pages,
    prlimit64 when [Not(0, 0), Given(2)],
    // SECURITY: the init, which is the first process, runs as the same user. Without processor time it could not end the tree.
    setpriority when [Not(0, A_PROCESS)] or [Is(1, INIT)],
    ioprio_set when [Not(0, A_PROCESS_OF_BLOCKS)] or [Is(1, INIT)],
    sched_setscheduler when [Is(0, INIT)],
    sched_setparam when [Is(0, INIT)],
    sched_setattr when [Is(0, INIT)],
    sched_setaffinity when [Is(0, INIT)],
    // Files by other ways than their paths.
    open_by_handle_at, name_to_handle_at, fanotify_init, lookup_dcookie, quotactl, quotactl_fd,
    // Parts of the kernel that attacks begin with.
    bpf, perf_event_open, userfaultfd, io_uring_setup, io_uring_enter, io_uring_register, keyctl, add_key, request_key,
    kexec_load, kexec_file_load, init_module, finit_module, delete_module, vhangup,
    // The machine as a whole.
    reboot, swapon, swapoff, acct, syslog, settimeofday, clock_settime, clock_adjtime, adjtimex, sethostname,
    setdomainname,
    personality when [Not(0, 0), Not(0, 0xffff_ffff), Not(0, 0x0004_0000)],
    // Keys pressed for somebody else, line disciplines.
    ioctl when [Is(1, 0x5412)] or [Is(1, 0x541c)] or [Is(1, 0x5423)],
    // SECURITY: files belong to the owner of the workspace, who may be root. One that runs as its owner would be a way out.
    fchmod when [Has(1, SET_USER)] or [Has(1, SET_GROUP)],
    fchmodat when [Has(2, SET_USER)] or [Has(2, SET_GROUP)],
    fchmodat2 when [Has(2, SET_USER)] or [Has(2, SET_GROUP)],
    mknodat when [Has(2, SET_USER)] or [Has(2, SET_GROUP)],
    openat when
        [Has(2, CREATE), Has(3, SET_USER)] or [Has(2, CREATE), Has(3, SET_GROUP)] or
        [Has(2, UNNAMED), Has(3, SET_USER)] or [Has(2, UNNAMED), Has(3, SET_GROUP)],
};

/// As [`REFUSED`]: calls that newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLD: &[Call] = calls! {
    iopl, ioperm, modify_ldt, uselib, ustat, sysfs, _sysctl, nfsservctl,
    chmod when [Has(1, SET_USER)] or [Has(1, SET_GROUP)],
    creat when [Has(1, SET_USER)] or [Has(1, SET_GROUP)],
    mknod when [Has(1, SET_USER)] or [Has(1, SET_GROUP)],
    open when
        [Has(1, CREATE), Has(2, SET_USER)] or [Has(1, CREATE), Has(2, SET_GROUP)] or
        [Has(1, UNNAMED), Has(2, SET_USER)] or [Has(1, UNNAMED), Has(2, SET_GROUP)],
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[Call] = &[];

/// Refused with `ENOSYS`, as by a kernel that does not have them: programs do something else then.
const ABSENT: &[Call] = calls! {
    // Their arguments are in memory, where no filter can see them.
    clone3, openat2,
    open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, statmount, listmount, open_tree_attr,
    memfd_secret,
    // SECURITY: the limit for cores is such that the kernel hands none to a program of root. It can be made less, and then that program is started.
    prlimit64 when [Is(1, CORE), Given(2)],
    setrlimit when [Is(0, CORE)],
};

/// The limit for the size of cores.
const CORE: u32 = 4;

const fn families(unix_sockets: UnixSockets) -> &'static [Call] {
    match unix_sockets {
        UnixSockets::Refuse => INTERNET,
        UnixSockets::Allow => INTERNET_AND_UNIX,
    }
}

/// Families of sockets other than these are refused with `EAFNOSUPPORT`, and the kernel is asked about the network only. Pairs of Unix sockets
/// stay, but those for messages.
const INTERNET: &[Call] = calls! {
    socket when [Not(0, INET), Not(0, INET6), Not(0, NETLINK)] or [Is(0, NETLINK), Not(2, 0)],
    // SECURITY: one of a pair that is for messages can send to any path, and so reach whoever listens in the workspace. One that is for
    // connections has its own for good.
    socketpair when [Not(0, UNIX)] or [Has(1, MESSAGES)],
};

/// The same, and sockets with a path.
const INTERNET_AND_UNIX: &[Call] = calls! {
    socket when [Not(0, INET), Not(0, INET6), Not(0, NETLINK), Not(0, UNIX)] or [Is(0, NETLINK), Not(2, 0)],
    socketpair when [Not(0, UNIX)],
};

const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;

/// The bit that the kinds `SOCK_DGRAM` and `SOCK_RAW` have, which are the same for Unix sockets, and neither `SOCK_STREAM` nor `SOCK_SEQPACKET`.
const MESSAGES: u32 = 2;

/// The numbers of the calls, those too that the C library has no name for yet.
#[allow(non_upper_case_globals, reason = "calls keep their names")]
mod number {
    pub use libc::{
        SYS_acct as acct, SYS_add_key as add_key, SYS_adjtimex as adjtimex, SYS_bpf as bpf, SYS_chroot as chroot,
        SYS_clock_adjtime as clock_adjtime, SYS_clock_settime as clock_settime, SYS_clone as clone,
        SYS_clone3 as clone3, SYS_delete_module as delete_module, SYS_fanotify_init as fanotify_init,
        SYS_fchmod as fchmod, SYS_fchmodat as fchmodat, SYS_finit_module as finit_module, SYS_fsconfig as fsconfig,
        SYS_fsmount as fsmount, SYS_fsopen as fsopen, SYS_fspick as fspick, SYS_init_module as init_module,
        SYS_io_uring_enter as io_uring_enter, SYS_io_uring_register as io_uring_register,
        SYS_io_uring_setup as io_uring_setup, SYS_ioctl as ioctl, SYS_ioprio_set as ioprio_set, SYS_kcmp as kcmp,
        SYS_kexec_file_load as kexec_file_load, SYS_kexec_load as kexec_load, SYS_keyctl as keyctl,
        SYS_lookup_dcookie as lookup_dcookie, SYS_migrate_pages as migrate_pages, SYS_mknodat as mknodat,
        SYS_mount as mount, SYS_mount_setattr as mount_setattr, SYS_move_mount as move_mount,
        SYS_move_pages as move_pages, SYS_name_to_handle_at as name_to_handle_at,
        SYS_open_by_handle_at as open_by_handle_at, SYS_open_tree as open_tree, SYS_openat as openat,
        SYS_openat2 as openat2, SYS_perf_event_open as perf_event_open, SYS_personality as personality,
        SYS_pidfd_getfd as pidfd_getfd, SYS_pivot_root as pivot_root, SYS_prlimit64 as prlimit64,
        SYS_process_madvise as process_madvise, SYS_process_vm_readv as process_vm_readv,
        SYS_process_vm_writev as process_vm_writev, SYS_ptrace as ptrace, SYS_quotactl as quotactl,
        SYS_reboot as reboot, SYS_request_key as request_key, SYS_sched_setaffinity as sched_setaffinity,
        SYS_sched_setattr as sched_setattr, SYS_sched_setparam as sched_setparam,
        SYS_sched_setscheduler as sched_setscheduler, SYS_setdomainname as setdomainname,
        SYS_sethostname as sethostname, SYS_setns as setns, SYS_setpriority as setpriority, SYS_setrlimit as setrlimit,
        SYS_settimeofday as settimeofday, SYS_socket as socket, SYS_socketpair as socketpair, SYS_swapoff as swapoff,
        SYS_swapon as swapon, SYS_syslog as syslog, SYS_umount2 as umount2, SYS_unshare as unshare,
        SYS_userfaultfd as userfaultfd, SYS_vhangup as vhangup,
    };

    #[cfg(target_arch = "x86_64")]
    pub use libc::{
        SYS__sysctl as _sysctl, SYS_chmod as chmod, SYS_creat as creat, SYS_ioperm as ioperm, SYS_iopl as iopl,
        SYS_mknod as mknod, SYS_modify_ldt as modify_ldt, SYS_nfsservctl as nfsservctl, SYS_open as open,
        SYS_sysfs as sysfs, SYS_uselib as uselib, SYS_ustat as ustat,
    };

    pub const quotactl_fd: i64 = 443;
    pub const memfd_secret: i64 = 447;
    pub const fchmodat2: i64 = 452;
    pub const statmount: i64 = 457;
    pub const listmount: i64 = 458;
    pub const open_tree_attr: i64 = 467;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_is_the_table_that_people_have_looked_at() {
        let told = described(UnixSockets::Refuse);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(told, include_str!("golden/filter.txt"));
        }
        assert_ne!(told, described(UnixSockets::Allow));
    }

    #[test]
    fn both_filters_refuse_the_same_calls_and_one_of_them_is_heard_of() {
        let filters = Filters::new(UnixSockets::Refuse).unwrap();
        assert_eq!(filters.noticed.len(), filters.unnoticed.len());
        assert_ne!(filters.noticed, filters.unnoticed);
        assert_ne!(filters.digest, Filters::new(UnixSockets::Allow).unwrap().digest);
        assert_eq!(filters.digest, Filters::new(UnixSockets::Refuse).unwrap().digest);
    }

    #[test]
    fn calls_have_names() {
        let number = |call: i64| u32::try_from(call).unwrap();
        assert_eq!(name_of(number(libc::SYS_unshare)), "unshare");
        assert_eq!(name_of(9999), "system call 9999");
    }
}
