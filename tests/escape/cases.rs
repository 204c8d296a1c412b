//! The table of attacks: what is tried, how it is refused, and what holds it back.
//!
//! A refusal is what the attack prints; `|` separates those that will do, and `*` at the end stands for anything. Words in braces are filled in.

use crate::escape::bench::{Identity, Ran};

/// One attack.
pub struct Case {
    pub name: &'static str,
    pub attempt: Attempt,
    /// How it is refused: to whom root runs the daemon for, and to whom an ordinary user does.
    pub refusal: [&'static str; 2],
    /// What else must hold of what came of it.
    pub also: Option<fn(&Ran) -> bool>,
    /// What holds it back, if that is not what holds its kind.
    held: [Option<Held>; 2],
    /// What the receipt says about it.
    pub receipt: Receipt,
}

/// What is tried.
pub enum Attempt {
    /// By the program of the attacks.
    Attack(&'static [&'static str]),
    /// By a shell.
    Shell(&'static str),
}

/// What holds an attack back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// These defences, which can be switched off. With all of them off, the case fails.
    By(&'static str),
    /// Nothing that can be switched off here, and why.
    Unshown(&'static str),
}

/// What the receipt of an attack says about its refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing that a case has to look at.
    Any,
    /// A refused system call.
    SystemCall,
    /// A refusal of this kind to connect.
    Connection(&'static str),
}

/// Attacks of one kind.
pub struct Kind {
    /// What holds them back.
    held: Held,
    pub cases: &'static [Case],
}

impl Kind {
    /// What holds one of them back, for a daemon of root or of an ordinary user.
    pub fn held(&self, case: &Case, identity: Identity) -> Held {
        case.held[usize::from(identity == Identity::Ordinary)].unwrap_or(self.held)
    }
}

/// The attack of this name.
pub fn named(name: &str) -> &'static Case {
    let all = KINDS.iter().chain([&HOSTS]).flat_map(|kind| kind.cases);
    all.into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no attack `{name}`"))
}

/// Every attack on a daemon that lists no host.
pub const KINDS: &[Kind] = &[
    Kind { held: Held::By("mounts,landlock"), cases: FILES },
    Kind { held: Held::By("seccomp"), cases: SET_ID },
    Kind { held: Held::By("seccomp"), cases: PROCESSES },
    Kind { held: Held::By("seccomp"), cases: CALLS },
    Kind { held: Held::By("seccomp"), cases: SOCKETS },
    Kind { held: Held::By("network"), cases: NETWORK },
];

/// Attacks on a daemon that lists the hosts of a laboratory.
pub const HOSTS: Kind = Kind { held: Held::By("host_rules"), cases: LISTED };

const fn case(name: &'static str, attempt: Attempt, refusal: &'static str) -> Case {
    Case { name, attempt, refusal: [refusal; 2], also: None, held: [None; 2], receipt: Receipt::Any }
}

const fn attack(name: &'static str, args: &'static [&'static str], refusal: &'static str) -> Case {
    case(name, Attempt::Attack(args), refusal)
}

const fn shell(name: &'static str, line: &'static str, refusal: &'static str) -> Case {
    case(name, Attempt::Shell(line), refusal)
}

/// A call of the kernel, which has the name of the attack. The receipt tells of it where the call exists at all.
const fn call(name: &'static str, refusal: &'static str) -> Case {
    let case = case(name, Attempt::Attack(&[]), refusal);
    if matches!(refusal.as_bytes(), b"REFUSED EPERM") { case.told() } else { case }
}

/// A question to the proxy, and the kind of its refusal.
const fn asked(name: &'static str, args: &'static [&'static str], refusal: &'static str, kind: &'static str) -> Case {
    let mut case = attack(name, args, refusal);
    case.receipt = Receipt::Connection(kind);
    case
}

/// A line of the shell that asks the proxy for something.
const fn asked_by_shell(name: &'static str, line: &'static str, refusal: &'static str, kind: &'static str) -> Case {
    let mut case = shell(name, line, refusal);
    case.receipt = Receipt::Connection(kind);
    case
}

impl Case {
    const fn and(mut self, also: fn(&Ran) -> bool) -> Self {
        self.also = Some(also);
        self
    }

    const fn of_ordinary_user(mut self, refusal: &'static str) -> Self {
        self.refusal[1] = refusal;
        self
    }

    const fn by(mut self, defences: &'static str) -> Self {
        self.held = [Some(Held::By(defences)); 2];
        self
    }

    const fn unshown(mut self, why: &'static str) -> Self {
        self.held = [Some(Held::Unshown(why)); 2];
        self
    }

    /// With a daemon of root by these, which an ordinary user's does not have or need: there it is never root that runs anything.
    const fn by_of_root(mut self, defences: &'static str) -> Self {
        self.held = [Some(Held::By(defences)), Some(Held::Unshown(NEVER_ROOT))];
        self
    }

    const fn told(mut self) -> Self {
        self.receipt = Receipt::SystemCall;
        self
    }
}

const NEVER_ROOT: &str = "the kernel asks for root, which an ordinary user's daemon never is";
const NO_SUCH_USER: &str = "there is no other user in a user namespace with one";
const FIRST_PROCESS: &str = "the init is the first process of its namespace, or there is no enclosure";
const NO_CAPABILITY: &str = "the kernel asks for a capability that is not among those that the init is given";
const NOT_EVERYWHERE: &str = "not every kernel has it, and this one may not";
const NO_REQUEST: &str = "no request holds such bytes, whoever reads the host";
const SENDS: &str = "without it something would be sent to the address";

/// Whether the receipt says that no more processes could be started. Only cgroups tell.
fn tells_of_processes(ran: &Ran) -> bool {
    let held = ran.call.receipt.as_ref().map(|receipt| receipt.attestation["sandbox_enforcement"].to_string());
    let is_counted = held.is_some_and(|layers| layers.contains("cgroup_pids"));
    !is_counted || ran.reasons().iter().any(|reason| reason["reason"] == "processes")
}

/// Paths, links, what `/proc` and `/dev` hold, and how much room there is.
const FILES: &[Case] = &[
    attack("climbing by ../ to a file outside", &["climb", "outside/secret"], "REFUSED ENOENT"),
    attack("climbing by ../ to the passwords", &["climb", "etc/shadow"], "REFUSED ENOENT"),
    attack("the passwords by their path", &["open", "/etc/shadow", "read"], "REFUSED ENOENT"),
    attack("the home of root", &["open", "/root", "list"], "REFUSED ENOENT"),
    attack("homes of others", &["open", "/home", "list"], "REFUSED ENOENT"),
    // Spelled so that policy, which reads arguments, does not see what it is.
    shell("the state directory", "cd {above} && {workspace}/attacks open st''ate list", "REFUSED ENOENT"),
    shell(
        "the owner's credential",
        "{workspace}/attacks open {above}/st''ate/identity/device.json read",
        "REFUSED ENOENT",
    ),
    attack("a file outside by its path", &["open", "{outside}/secret", "read"], "REFUSED ENOENT"),
    // It may be a temporary file of the enclosure's own, if the workspace lies among those. The machine has no such file then.
    attack(
        "a file beside the workspace",
        &["open", "{workspace}/../beside", "leave"],
        "REFUSED EACCES | REFUSED EROFS | SUCCEEDED *",
    )
    .by_of_root("mounts,landlock,user"),
    attack("reading through a link", &["open", "way-out/secret", "read"], "REFUSED ENOENT"),
    attack("writing through a link", &["open", "way-out/target", "write"], "REFUSED ENOENT"),
    attack("creating through a link", &["open", "way-out/new", "create"], "REFUSED ENOENT | REFUSED EACCES"),
    attack("a link at bubblewrap's old root", &["open", "oldroot/etc/shadow", "read"], "REFUSED ENOENT")
        .unshown("bubblewrap has left it behind before anything runs"),
    attack("a link at bubblewrap's new root", &["open", "newroot/etc/shadow", "read"], "REFUSED ENOENT")
        .unshown("bubblewrap has left it behind before anything runs"),
    attack("a hard link to a file outside", &["hard-link", "{outside}/secret"], "REFUSED ENOENT"),
    attack("a hard link to a program of the machine", &["hard-link", "/usr/bin/env"], "REFUSED EXDEV | REFUSED EACCES")
        .unshown("no link leads from one mount to another"),
    shell("a hard link by an open file", "exec 7</usr/bin/env; ./attacks magic-link /proc/self/fd/7", "REFUSED EXDEV")
        .unshown("no link leads from one mount to another"),
    attack("the top by /proc/self/root", &["open", "/proc/self/root/etc/shadow", "read"], "REFUSED ENOENT"),
    attack("the top of the init", &["open", "/proc/1/root/etc/shadow", "read"], "REFUSED EACCES").by("init,landlock"),
    attack("where the init works", &["open", "/proc/1/cwd", "list"], "REFUSED EACCES").by("init,landlock"),
    attack("the descriptors of the init", &["open", "/proc/1/fd", "list"], "REFUSED EACCES").by("init,landlock"),
    attack("the environment of the init", &["open", "/proc/1/environ", "read"], "REFUSED EACCES").by("init,landlock"),
    attack("the memory of the init", &["read-init"], "REFUSED EACCES").by("init,landlock"),
    attack("whatever others have open", &["look-at-others"], "REFUSED everything").by("init,landlock"),
    attack("descriptors that leaked", &["descriptors"], "REFUSED 0 1 2").by("close_range"),
    attack("what the kernel runs at a crash", &["open", "/proc/sys/kernel/core_pattern", "write"], "REFUSED EACCES")
        .by_of_root("user,landlock"),
    attack("the name of the machine", &["open", "/proc/sys/kernel/hostname", "write"], "REFUSED EACCES")
        .by_of_root("user,landlock"),
    attack(
        "what the kernel runs for modules",
        &["open", "/proc/sys/kernel/modprobe", "write"],
        "REFUSED EACCES | REFUSED ENOENT",
    )
    .unshown(NOT_EVERYWHERE),
    attack("keys for the kernel", &["open", "/proc/sysrq-trigger", "write"], "REFUSED EACCES | REFUSED ENOENT")
        .unshown(NOT_EVERYWHERE),
    attack("its own name", &["open", "/proc/self/comm", "write"], "REFUSED EACCES").by("landlock"),
    attack("its own memory as a file", &["open", "/proc/self/mem", "write"], "REFUSED EACCES").by("landlock"),
    attack("its own map of users", &["open", "/proc/self/uid_map", "write"], "REFUSED EACCES").by("landlock"),
    attack("memory of the kernel", &["open", "/proc/kcore", "read"], "REFUSED EACCES | REFUSED ENOENT | REFUSED EPERM")
        .unshown(NO_CAPABILITY),
    attack("there is no /sys", &["open", "/sys", "list"], "REFUSED ENOENT"),
    attack("there is no /run", &["open", "/run", "list"], "REFUSED ENOENT"),
    attack(
        "what /dev holds",
        &["names", "/dev"],
        "HOLDS fd full null ptmx pts random shm stderr stdin stdout urandom zero",
    ),
    attack("what the top holds", &["names", "/"], "HOLDS *").and(|ran| {
        !["root", "home", "run", "sys", "boot", "mnt"].iter().any(|name| ran.line.split(' ').any(|one| one == *name))
    }),
    attack("a device of one's own", &["make-device"], "REFUSED EACCES").by("landlock"),
    attack("writing among the programs", &["open", "/usr/bin/escape", "create"], "REFUSED EACCES | REFUSED EROFS")
        .by_of_root("mounts,landlock,user"),
    attack("changing a program", &["open", "/usr/bin/env", "write"], "REFUSED EACCES | REFUSED EROFS")
        .by_of_root("mounts,landlock,user"),
    attack("writing at the top", &["open", "/escape", "create"], "REFUSED EACCES | REFUSED EROFS")
        .by_of_root("mounts,landlock,user"),
    attack("writing to /etc", &["open", "/etc/passwd", "write"], "REFUSED EACCES | REFUSED EROFS")
        .by_of_root("mounts,landlock,user"),
    shell("the mode of a file in /etc", "chmod $(stat -c %a /etc/passwd) /etc/passwd 2>&1 || echo refused", "refused")
        .by_of_root("mounts,landlock,user"),
    shell("the mode of a program", "chmod $(stat -c %a /usr/bin/env) /usr/bin/env 2>&1 || echo refused", "refused")
        .by_of_root("mounts,landlock,user"),
    shell("the mode of a device", "chmod $(stat -c %a /dev/null) /dev/null 2>&1 || echo refused", "refused")
        .by_of_root("mounts,landlock,user"),
    attack("a file of root", &["give-away"], "REFUSED EINVAL | REFUSED EPERM").unshown(NO_SUCH_USER),
    attack("filling the temporary files", &["fill", "/tmp", "64"], "REFUSED ENOSPC after *")
        .by("limits")
        .and(|ran| (8..=16).contains(&ran.number_after("after"))),
    attack("filling the shared memory", &["fill", "/dev/shm", "64"], "REFUSED ENOSPC after *")
        .by("limits")
        .and(|ran| (8..=16).contains(&ran.number_after("after"))),
    attack("a file longer than the limit", &["fill", ".", "64"], "REFUSED EFBIG after 32 MiB").by("limits"),
    attack("a sparse file longer than the limit", &["sparse", "1099511627776"], "REFUSED EFBIG").by("limits"),
];

/// Files that would run as their owner, who may be root.
const SET_ID: &[Case] = &[
    attack("set-id by chmod", &["set-id", "chmod"], "REFUSED EPERM"),
    attack("set-id by chmod, for the group", &["set-id", "chmod", "2755"], "REFUSED EPERM"),
    attack("set-id by chmod with more bits", &["set-id", "chmod-high-bits"], "REFUSED EPERM"),
    attack("set-id by chmod of a descriptor", &["set-id", "chmod-descriptor"], "REFUSED EPERM"),
    attack("set-id by fchmod", &["set-id", "fchmod"], "REFUSED EPERM"),
    attack("set-id by fchmodat", &["set-id", "fchmodat"], "REFUSED EPERM"),
    attack("set-id by fchmodat2", &["set-id", "fchmodat2"], "REFUSED EPERM"),
    attack("set-id by fchmodat2 without a path", &["set-id", "fchmodat2-empty", "6755"], "REFUSED EPERM"),
    attack("set-id by open", &["set-id", "open"], "REFUSED EPERM"),
    attack("set-id by openat", &["set-id", "openat", "2755"], "REFUSED EPERM"),
    attack("set-id by openat with more bits", &["set-id", "openat-high-bits"], "REFUSED EPERM"),
    attack("set-id by openat2", &["set-id", "openat2"], "REFUSED ENOSYS"),
    attack("set-id by O_TMPFILE", &["set-id", "tmpfile"], "REFUSED EPERM"),
    attack("set-id by creat", &["set-id", "creat"], "REFUSED EPERM"),
    attack("set-id by mknod", &["set-id", "mknod"], "REFUSED EPERM"),
    attack("set-id by mknodat", &["set-id", "mknodat"], "REFUSED EPERM"),
    attack("set-id by mkdir", &["set-id", "mkdir", "6755"], "REFUSED without the bits")
        .unshown("the kernel makes no directory with these bits"),
    shell("set-id by install", "install -m 4755 attacks installed; stat -c %a installed", "600 | 755"),
    shell("set-id by cp", "cp attacks a; chmod 4755 a; cp -p a copied; stat -c %a copied", "755 | 700"),
    shell(
        "set-id by tar",
        "mkdir -p /tmp/a && cp attacks /tmp/a/x && tar -C /tmp/a --mode=4755 -cf /tmp/a.tar x && tar -xpf /tmp/a.tar; stat -c %a x",
        "755 | 700 | 600",
    ),
    attack("a capability of a file", &["capability-of-file"], "REFUSED EPERM").unshown(NO_CAPABILITY),
    shell(
        "a capability of a file by setcap",
        "/usr/sbin/setcap cap_sys_admin+ep attacks 2>&1 || echo refused",
        "refused",
    )
    .unshown(NO_CAPABILITY),
];

/// Other processes, more privileges, more of the machine.
const PROCESSES: &[Case] = &[
    attack("a fork bomb", &["fork-bomb", "2000"], "REFUSED EAGAIN after *")
        .by("limits")
        .and(|ran| ran.number_after("after") <= 66 && tells_of_processes(ran)),
    attack("a bomb of threads", &["thread-bomb", "2000"], "REFUSED EAGAIN after *")
        .by("limits")
        .and(|ran| ran.number_after("after") <= 66),
    attack("a memory bomb", &["memory-bomb", "1024"], " signal 9")
        .by("limits")
        .of_ordinary_user("REFUSED ENOMEM after *"),
    attack("processes that nobody descends to", &["leave-behind", "8"], "LEFT").unshown(FIRST_PROCESS),
    attack("tracing a sibling", &["trace-sibling"], "REFUSED EPERM").told(),
    attack("signals to the init", &["signal-init"], "REFUSED without effect | REFUSED each").unshown(FIRST_PROCESS),
    attack("a signal to everybody", &["kill-all"], "REFUSED nobody outside | REFUSED ESRCH").unshown(FIRST_PROCESS),
    attack("a signal to the daemon", &["kill", "{daemon}"], "REFUSED ESRCH").unshown(FIRST_PROCESS),
    attack("a limit of the init", &["limit-init"], "REFUSED EPERM").told(),
    attack("less processor time for the init", &["starve-init"], "REFUSED EPERM").told(),
    attack("being always first", &["real-time"], "REFUSED EACCES | REFUSED EPERM")
        .unshown("the machine lets no ordinary user do this"),
    attack("a higher limit", &["raise-limit"], "REFUSED EPERM").by("limits"),
    attack("all capabilities", &["capabilities"], "REFUSED EPERM").unshown(NO_CAPABILITY),
    shell("no capability is left", "grep -c '^Cap...:\\s*0000000000000000$' /proc/self/status", "5").by("capabilities"),
    shell("a set-id program of the machine", "su -c 'id -u' 2>/dev/null || echo refused", "refused")
        .unshown("no new privileges are to be had, once and for all"),
    shell("whom set-id programs run as", "cp /usr/bin/id /tmp/x; chmod 4755 /tmp/x 2>/dev/null; /tmp/x -u", "1000")
        .unshown(NO_SUCH_USER),
    attack("a core file", &["crash"], "CRASHES signal 11").unshown("the machine may write none in any case"),
    // One byte is what keeps the kernel from handing a core to a program of root.
    shell(
        "a core for a program of root",
        "grep -o 'core file size *1 *1' /proc/self/limits | tr -s ' '",
        "core file size 1 1",
    )
    .by("limits"),
    shell(
        "a core for it after all",
        "/usr/bin/python3 -c 'import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))' 2>&1 | tail -n 1",
        "OSError: [Errno 38] *",
    ),
    shell("whom memory is taken from first", "cat /proc/self/oom_score_adj", "500")
        .unshown("a daemon that is worse off itself keeps its programs so"),
    attack("a call of the 32-bit interface", &["old-interface"], "TRIES signal 31"),
    attack("a 32-bit program", &["old-program"], "REFUSED killed by SIGSYS"),
    attack(
        "a 32-bit program among the temporary files",
        &["old-program", "/tmp/program32"],
        "REFUSED killed by SIGSYS",
    ),
    attack("a program without a name", &["from-memory"], "REFUSED three things"),
    shell(
        "a program by way of the loader",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/chmod 4755 attacks 2>&1 | grep -o 'not permitted'",
        "not permitted",
    ),
    attack("a key on standard input", &["push-key"], "REFUSED EPERM"),
    attack("a key on its own terminal", &["push-key-on-own"], "REFUSED EPERM"),
    attack("a key on its own terminal, with more bits", &["push-key-on-own", "more"], "REFUSED EPERM"),
    attack("a user namespace by clone", &["clone", "10000000"], "REFUSED EPERM").told(),
    attack("a mount namespace by clone", &["clone", "20000"], "REFUSED EPERM").told(),
    attack("a cgroup namespace by clone", &["clone", "2000000"], "REFUSED EPERM").told(),
    attack("a host name of its own by clone", &["clone", "4000000"], "REFUSED EPERM").told(),
    attack("shared memory of its own by clone", &["clone", "8000000"], "REFUSED EPERM").told(),
    attack("a process namespace by clone", &["clone", "20000000"], "REFUSED EPERM").told(),
    attack("a network by clone", &["clone", "40000000"], "REFUSED EPERM").told(),
    attack("joining a namespace", &["setns"], "REFUSED EPERM").told(),
];

/// Calls of the kernel that are refused by their number. Their names are the attacks'.
const CALLS: &[Case] = &[
    call("unshare-user", "REFUSED EPERM"),
    call("unshare-mount", "REFUSED EPERM"),
    call("unshare-network", "REFUSED EPERM"),
    call("unshare-cgroup", "REFUSED EPERM"),
    call("unshare-time", "REFUSED EPERM"),
    call("clone3", "REFUSED ENOSYS"),
    call("io-uring-setup", "REFUSED EPERM"),
    call("io-uring-enter", "REFUSED EPERM"),
    call("io-uring-register", "REFUSED EPERM"),
    call("bpf", "REFUSED EPERM"),
    call("perf-event-open", "REFUSED EPERM"),
    call("userfaultfd", "REFUSED EPERM"),
    call("keyctl", "REFUSED EPERM"),
    call("add-key", "REFUSED EPERM"),
    call("request-key", "REFUSED EPERM"),
    call("mount", "REFUSED EPERM"),
    call("remount", "REFUSED EPERM"),
    call("bind-mount", "REFUSED EPERM"),
    call("umount", "REFUSED EPERM"),
    call("pivot-root", "REFUSED EPERM"),
    call("chroot", "REFUSED EPERM"),
    call("open-tree", "REFUSED ENOSYS"),
    call("move-mount", "REFUSED ENOSYS"),
    call("fsopen", "REFUSED ENOSYS"),
    call("fspick", "REFUSED ENOSYS"),
    call("mount-setattr", "REFUSED ENOSYS"),
    call("statmount", "REFUSED ENOSYS"),
    call("open-tree-attr", "REFUSED ENOSYS"),
    call("kexec-load", "REFUSED EPERM"),
    call("kexec-file-load", "REFUSED EPERM"),
    call("init-module", "REFUSED EPERM"),
    call("finit-module", "REFUSED EPERM"),
    call("delete-module", "REFUSED EPERM"),
    call("reboot", "REFUSED EPERM"),
    call("swapon", "REFUSED EPERM"),
    call("acct", "REFUSED EPERM"),
    call("syslog", "REFUSED EPERM"),
    call("settimeofday", "REFUSED EPERM"),
    call("clock-settime", "REFUSED EPERM"),
    call("sethostname", "REFUSED EPERM"),
    call("personality", "REFUSED EPERM"),
    call("modify-ldt", "REFUSED EPERM"),
    call("iopl", "REFUSED EPERM"),
    call("ioperm", "REFUSED EPERM"),
    call("open-by-handle", "REFUSED EPERM"),
    call("fanotify", "REFUSED EPERM"),
    call("quotactl", "REFUSED EPERM"),
    call("memfd-secret", "REFUSED ENOSYS"),
    call("process-vm-readv", "REFUSED EPERM"),
    call("process-vm-writev", "REFUSED EPERM"),
    call("pidfd-getfd", "REFUSED EPERM"),
    call("ptrace-init", "REFUSED EPERM"),
    call("ptrace-traceme", "REFUSED EPERM"),
    call("setuid-root", "REFUSED EINVAL").unshown(NO_SUCH_USER),
    call("setgid-root", "REFUSED EINVAL").unshown(NO_SUCH_USER),
    attack("setgroups", &["setgroups"], "REFUSED EPERM").unshown(NO_CAPABILITY),
    call("x32-getpid", "REFUSED ENOSYS").unshown(NOT_EVERYWHERE),
    call("x32-unshare", "REFUSED ENOSYS").unshown(NOT_EVERYWHERE),
    call("x32-open-tree", "REFUSED ENOSYS").unshown(NOT_EVERYWHERE),
];

/// Sockets that are no way anywhere.
const SOCKETS: &[Case] = &[
    attack("a Unix socket", &["socket", "1", "1", "0"], "REFUSED EAFNOSUPPORT"),
    attack("a Unix socket of the machine in the workspace", &["connect-unix", "stream.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a Unix socket without a file", &["connect-unix", "@{mark}"], "REFUSED EAFNOSUPPORT"),
    attack("a message from one of a pair", &["send-from-pair", "datagrams.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a connection from one of a pair", &["send-from-pair", "stream.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a pair of another family", &["pair", "30", "1"], "REFUSED EAFNOSUPPORT").unshown(NOT_EVERYWHERE),
    attack("a socket to the hypervisor", &["socket", "40", "1", "0"], "REFUSED EAFNOSUPPORT"),
    attack("packets", &["socket", "17", "3", "768"], "REFUSED EAFNOSUPPORT"),
    attack("the kernel's cryptography", &["socket", "38", "5", "0"], "REFUSED EAFNOSUPPORT").unshown(NOT_EVERYWHERE),
    attack("Bluetooth", &["socket", "31", "3", "1"], "REFUSED EAFNOSUPPORT").unshown(NOT_EVERYWHERE),
    attack("express data paths", &["socket", "44", "3", "0"], "REFUSED EAFNOSUPPORT"),
    attack("netfilter", &["socket", "16", "3", "12"], "REFUSED EAFNOSUPPORT"),
    attack("events of the kernel", &["socket", "16", "2", "15"], "REFUSED EAFNOSUPPORT"),
    attack("audit", &["socket", "16", "3", "9"], "REFUSED EAFNOSUPPORT"),
    attack("generic netlink", &["socket", "16", "3", "16"], "REFUSED EAFNOSUPPORT"),
    attack("a raw socket", &["socket", "2", "3", "1"], "REFUSED EPERM").unshown(NO_CAPABILITY),
    attack("a raw socket of version 6", &["socket", "10", "3", "58"], "REFUSED EPERM").unshown(NO_CAPABILITY),
    attack("a ping", &["socket", "2", "2", "1"], "REFUSED EACCES").unshown("the machine lets no ordinary user do this"),
];

/// Whom sockets would reach.
const NETWORK: &[Case] = &[
    attack("an interface of its own", &["add-interface"], "REFUSED EPERM").by("capabilities"),
    shell(
        "no interface but its own",
        "ls /proc/self/net >/dev/null; tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' \\n'",
        "lo",
    ),
    shell("no route", "tail -n +2 /proc/self/net/route | wc -l", "0"),
    attack("a service of the machine", &["reach", "127.0.0.1", "{service}"], "REFUSED ECONNREFUSED"),
    attack("the daemon's local listener", &["reach", "127.0.0.1", "{local}"], "REFUSED ECONNREFUSED"),
    attack("the daemon's control listener", &["reach", "127.0.0.1", "{control}"], "REFUSED ECONNREFUSED"),
    attack("the machine by version 6", &["reach6", "fe80::1", "{local}"], "REFUSED EINVAL | REFUSED ENETUNREACH")
        .unshown(SENDS),
    attack("a public address", &["reach", "192.0.2.1", "443"], "REFUSED ENETUNREACH").unshown(SENDS),
    attack("a public address by messages", &["reach", "192.0.2.1", "53", "udp"], "REFUSED ENETUNREACH").unshown(SENDS),
    attack("a private address", &["reach", "10.0.0.1", "80"], "REFUSED ENETUNREACH").unshown(SENDS),
    attack("the address of metadata", &["reach", "169.254.169.254", "80"], "REFUSED ENETUNREACH").unshown(SENDS),
    attack(
        "a public address of version 6",
        &["reach6", "2001:db8::1", "443"],
        "REFUSED ENETUNREACH | REFUSED EADDRNOTAVAIL",
    )
    .unshown(SENDS),
    attack("the proxy reaches nobody", &["ask-proxy", "example.org:443"], "REFUSED 403"),
];

/// Hosts, and what is named in their place, where some are listed. `{service}` and `{listed}` are ports of this machine.
const LISTED: &[Case] = &[
    asked("a host that nobody listed", &["ask-proxy", "example.org:{service}"], "REFUSED 403", "not_listed"),
    asked(
        "a host whose beginning is a listed one's",
        &["ask-proxy", "listed.lab.test.evil.com:{service}"],
        "REFUSED 403",
        "not_listed",
    ),
    asked("a host whose end is a listed one's", &["ask-proxy", "unlisted.lab.test:{service}"], "REFUSED 403", "not_listed"),
    asked("the domain of a wildcard", &["ask-proxy", "wild.lab.test:{service}"], "REFUSED 403", "not_listed"),
    asked("a host beside a wildcard", &["ask-proxy", "evilwild.lab.test:{service}"], "REFUSED 403", "not_listed"),
    asked("another port of a listed host", &["ask-proxy", "private.lab.test:{listed}"], "REFUSED 403", "port_not_listed"),
    asked("loopback", &["ask-proxy", "127.0.0.1:{service}"], "REFUSED 403", "not_listed"),
    asked("loopback of version 6", &["ask-proxy", "[::1]:{service}"], "REFUSED 403", "not_listed"),
    asked("loopback in version 6", &["ask-proxy", "[::ffff:127.0.0.1]:{service}"], "REFUSED 403", "not_listed"),
    asked("any address", &["ask-proxy", "0.0.0.0:{service}"], "REFUSED 403", "not_listed"),
    asked("the proxy itself", &["ask-proxy", "127.0.0.1:3128"], "REFUSED 403", "own_listener").by("own_listeners"),
    asked("the proxy by its name", &["ask-proxy", "localhost:3128"], "REFUSED 403", "own_listener").by("own_listeners"),
    asked("by SOCKS: a host that nobody listed", &["ask-proxy", "example.org", "socks"], "REFUSED by SOCKS", "not_listed"),
    asked("by SOCKS: loopback", &["ask-proxy", "127.0.0.1", "socks"], "REFUSED by SOCKS", "not_listed"),
    asked("metadata", &["ask-proxy", "169.254.169.254:443"], "REFUSED 403", "not_listed").unshown(SENDS),
    asked("metadata by NAT64", &["ask-proxy", "[64:ff9b::a9fe:a9fe]:443"], "REFUSED 403", "not_listed").unshown(SENDS),
    asked("a private address that nobody listed", &["ask-proxy", "10.0.0.1:443"], "REFUSED 403", "not_listed").unshown(SENDS),
    shell("a name that nobody listed is asked of nobody", "getent hosts secret-data.example.org || echo none", "none"),
    // Each of these is a listed host, or this machine, to one program or another.
    asked("loopback as one number", &["ask-proxy", "2130706433:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("loopback in hexadecimal", &["ask-proxy", "0x7f000001:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("loopback in octal", &["ask-proxy", "0177.0.0.1:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("loopback cut short", &["ask-proxy", "127.1:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("loopback with a dot at the end", &["ask-proxy", "127.0.0.1.:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("a zone", &["ask-proxy", "[::1%25lo]:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("somebody's name before the host", &["ask-proxy", "evil.com@listed.lab.test:{service}"], "REFUSED 403", "not_a_host")
        .by("host_parser"),
    asked("a dot at the end", &["ask-proxy", "listed.lab.test.:{service}"], "REFUSED 403", "not_a_host").by("host_parser"),
    asked("an encoded NUL", &["ask-proxy", "listed.lab.test%00.evil.com:{service}"], "REFUSED 400", "bad_request").unshown(NO_REQUEST),
    asked("by SOCKS: a NUL", &["ask-proxy", "listed.lab.test\\0.evil.com", "socks"], "REFUSED by SOCKS", "not_a_host")
        .by("host_parser"),
    asked("port 0", &["ask-proxy", "listed.lab.test:0"], "REFUSED 403", "bad_request").unshown("no connection has such a port"),
    attack(
        "a NUL in a request",
        &["say-to-proxy", "CONNECT listed.lab.test\\0.evil.com:{service} HTTP/1.1\\r\\n\\r\\n"],
        "REFUSED 400 | REFUSED nothing was said",
    )
    .unshown(NO_REQUEST),
    attack(
        "a line in a request",
        &["say-to-proxy", "CONNECT listed.lab.test:{service}\\r\\nX: HTTP/1.1\\r\\n\\r\\n"],
        "REFUSED 400 | REFUSED nothing was said",
    )
    .unshown(NO_REQUEST),
    attack("by SOCKS: waiting for somebody outside", &["socks-command", "2"], "REFUSED no such command").unshown("there is none"),
    attack("by SOCKS: messages", &["socks-command", "3"], "REFUSED no such command").unshown("there is none"),
    // Hosts that may be reached, if they were where they claim to be.
    asked("a listed name that leads to this machine", &["ask-proxy", "private.lab.test:{service}"], "REFUSED 403", "private_address")
        .by("private_addresses"),
    asked("one that leads there by version 6", &["ask-proxy", "mapped.lab.test:{service}"], "REFUSED 403", "private_address")
        .by("private_addresses"),
    asked("one that may be private and leads to metadata", &["ask-proxy", "metadata.lab.test:{service}"], "REFUSED 403", "private_address")
        .unshown(SENDS),
    asked("one that leads to metadata by NAT64", &["ask-proxy", "nat64.lab.test:{service}"], "REFUSED 403", "private_address")
        .unshown(SENDS),
    asked_by_shell(
        "a listed host that sends on to one",
        "curl -s -L --max-time 8 -o /dev/null -w '%{http_code}' http://listed.lab.test:{listed}/",
        "403",
        "private_address",
    )
    .by("private_addresses"),
    asked("the daemon's local listener by a listed name", &["ask-proxy", "listed.lab.test:{local}"], "REFUSED 403", "own_listener")
        .by("own_listeners"),
    asked("the daemon's control listener by a listed name", &["ask-proxy", "listed.lab.test:{control}"], "REFUSED 403", "own_listener")
        .by("own_listeners"),
    asked_by_shell(
        "another name inside TLS",
        "curl -sk --max-time 8 --connect-to other.lab.test:443:sni.lab.test:{listed} https://other.lab.test/ || echo refused",
        "refused",
        "wrong_server_name",
    )
    .by("opening"),
    asked_by_shell(
        "no TLS at all",
        "curl -s --max-time 8 --proxytunnel http://sni.lab.test:{listed}/ || echo failed",
        "Palyra refused this connection: *",
        "no_tls",
    )
    .by("opening"),
];
