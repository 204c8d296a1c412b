//! The table of attacks: what is tried, and how it is refused.
//!
//! A refusal is what the attack prints; `|` separates those that will do, and `*` at the end stands for anything. Words in braces are filled in.

use crate::bench::Ran;

/// One attack.
pub struct Case {
    pub name: &'static str,
    pub attempt: Attempt,
    /// How it is refused: to whom root runs the daemon for, and to whom an ordinary user does.
    pub refusal: [&'static str; 2],
    /// What else must hold of what came of it.
    pub also: Option<fn(&Ran) -> bool>,
}

/// What is tried.
pub enum Attempt {
    /// By the program of the attacks.
    Attack(&'static [&'static str]),
    /// By a shell.
    Shell(&'static str),
}

/// The attack of this name.
pub fn named(name: &str) -> &'static Case {
    all().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no attack `{name}`"))
}

/// Every attack on a daemon whose defences hold.
pub fn all() -> impl Iterator<Item = &'static Case> {
    FILES.iter().chain(SET_ID).chain(PROCESSES).chain(CALLS).chain(NETWORK)
}

const fn attack(name: &'static str, args: &'static [&'static str], refusal: &'static str) -> Case {
    Case { name, attempt: Attempt::Attack(args), refusal: [refusal; 2], also: None }
}

const fn shell(name: &'static str, line: &'static str, refusal: &'static str) -> Case {
    Case { name, attempt: Attempt::Shell(line), refusal: [refusal; 2], also: None }
}

const fn call(name: &'static str, refusal: &'static str) -> Case {
    // The name of the call is the attack's own.
    Case { name, attempt: Attempt::Attack(&[]), refusal: [refusal; 2], also: None }
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
        "{workspace}/attacks open {above}/st''ate/identity/owner.token read",
        "REFUSED ENOENT",
    ),
    attack("a file outside by its path", &["open", "{outside}/secret", "read"], "REFUSED ENOENT"),
    attack(
        "the directory above the workspace",
        &["open", "{workspace}/..", "create"],
        "REFUSED EEXIST | REFUSED EISDIR | REFUSED EACCES",
    ),
    // It may be a temporary file of the enclosure's own, if the workspace lies among those. The machine has no such file then.
    attack(
        "a file beside the workspace",
        &["open", "{workspace}/../beside", "create"],
        "REFUSED EACCES | REFUSED EROFS | SUCCEEDED *",
    ),
    attack("reading through a link", &["open", "way-out/secret", "read"], "REFUSED ENOENT"),
    attack("writing through a link", &["open", "way-out/target", "write"], "REFUSED ENOENT"),
    attack("creating through a link", &["open", "way-out/new", "create"], "REFUSED ENOENT | REFUSED EACCES"),
    attack("a link at bubblewrap's old root", &["open", "oldroot/etc/shadow", "read"], "REFUSED ENOENT"),
    attack("a link at bubblewrap's new root", &["open", "newroot/etc/shadow", "read"], "REFUSED ENOENT"),
    attack("a hard link to a file outside", &["hard-link", "{outside}/secret"], "REFUSED ENOENT"),
    attack("a hard link to a program of the machine", &["hard-link", "/usr/bin/env"], "REFUSED EXDEV | REFUSED EACCES"),
    shell("a hard link by an open file", "exec 7</usr/bin/env; ./attacks magic-link /proc/self/fd/7", "REFUSED EXDEV"),
    attack("the top by /proc/self/root", &["open", "/proc/self/root/etc/shadow", "read"], "REFUSED ENOENT"),
    attack("the top of the init", &["open", "/proc/1/root/etc/shadow", "read"], "REFUSED EACCES"),
    attack("where the init works", &["open", "/proc/1/cwd", "list"], "REFUSED EACCES"),
    attack("the descriptors of the init", &["open", "/proc/1/fd", "list"], "REFUSED EACCES"),
    attack("the environment of the init", &["open", "/proc/1/environ", "read"], "REFUSED EACCES"),
    attack("the memory of the init", &["read-init"], "REFUSED EACCES"),
    attack("whatever others have open", &["look-at-others"], "REFUSED everything"),
    attack("descriptors that leaked", &["descriptors"], "REFUSED 0 1 2"),
    attack("what the kernel runs at a crash", &["open", "/proc/sys/kernel/core_pattern", "write"], "REFUSED EACCES"),
    attack("the name of the machine", &["open", "/proc/sys/kernel/hostname", "write"], "REFUSED EACCES"),
    attack(
        "what the kernel runs for modules",
        &["open", "/proc/sys/kernel/modprobe", "write"],
        "REFUSED EACCES | REFUSED ENOENT",
    ),
    attack("keys for the kernel", &["open", "/proc/sysrq-trigger", "write"], "REFUSED EACCES | REFUSED ENOENT"),
    attack("its own name", &["open", "/proc/self/comm", "write"], "REFUSED EACCES"),
    attack("its own memory as a file", &["open", "/proc/self/mem", "write"], "REFUSED EACCES"),
    attack("its own map of users", &["open", "/proc/self/uid_map", "write"], "REFUSED EACCES"),
    attack("memory of the kernel", &["open", "/proc/kcore", "read"], "REFUSED EACCES | REFUSED ENOENT | REFUSED EPERM"),
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
    attack("a device of one's own", &["make-device"], "REFUSED EACCES"),
    attack("writing among the programs", &["open", "/usr/bin/escape", "create"], "REFUSED EACCES | REFUSED EROFS"),
    attack("changing a program", &["open", "/usr/bin/env", "write"], "REFUSED EACCES | REFUSED EROFS"),
    attack("writing at the top", &["open", "/escape", "create"], "REFUSED EACCES | REFUSED EROFS"),
    attack("writing to /etc", &["open", "/etc/passwd", "write"], "REFUSED EACCES | REFUSED EROFS"),
    shell("the mode of a file in /etc", "chmod 777 /etc/passwd 2>&1 || echo refused", "refused"),
    shell("the mode of a program", "chmod 777 /usr/bin/env 2>&1 || echo refused", "refused"),
    shell("the mode of a device", "chmod 600 /dev/null 2>&1 || echo refused", "refused"),
    attack("a file of root", &["give-away"], "REFUSED EINVAL | REFUSED EPERM"),
    attack("filling the temporary files", &["fill", "/tmp", "64"], "REFUSED ENOSPC after *")
        .and(|ran| (8..=16).contains(&ran.number_after("after"))),
    attack("filling the shared memory", &["fill", "/dev/shm", "64"], "REFUSED ENOSPC after *")
        .and(|ran| (8..=16).contains(&ran.number_after("after"))),
    attack("a file longer than the limit", &["fill", ".", "64"], "REFUSED EFBIG after 32 MiB"),
    attack("a sparse file longer than the limit", &["sparse", "1099511627776"], "REFUSED EFBIG"),
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
    attack("set-id by mkdir", &["set-id", "mkdir", "6755"], "REFUSED without the bits"),
    shell("set-id by install", "install -m 4755 attacks installed; stat -c %a installed", "600 | 755"),
    shell("set-id by cp", "cp -p /usr/bin/su copied; stat -c %a copied", "755 | 700"),
    shell(
        "set-id by tar",
        "mkdir -p /tmp/a && cp attacks /tmp/a/x && tar -C /tmp/a --mode=4755 -cf /tmp/a.tar x && tar -xpf /tmp/a.tar; stat -c %a x",
        "755 | 700 | 600",
    ),
    attack("a capability of a file", &["capability-of-file"], "REFUSED EPERM"),
    shell(
        "a capability of a file by setcap",
        "/usr/sbin/setcap cap_sys_admin+ep attacks 2>&1 || echo refused",
        "refused",
    ),
];

/// Other processes, more privileges, more of the machine.
const PROCESSES: &[Case] = &[
    attack("a fork bomb", &["fork-bomb", "2000"], "REFUSED EAGAIN after *").and(|ran| ran.number_after("after") <= 66),
    attack("a bomb of threads", &["thread-bomb", "2000"], "REFUSED EAGAIN after *")
        .and(|ran| ran.number_after("after") <= 66),
    attack("a memory bomb", &["memory-bomb", "1024"], " signal 9").of_ordinary_user("REFUSED ENOMEM after *"),
    attack("processes that nobody descends to", &["leave-behind", "8"], "LEFT"),
    attack("tracing a sibling", &["trace-sibling"], "REFUSED EPERM"),
    attack("signals to the init", &["signal-init"], "REFUSED without effect | REFUSED each"),
    attack("a signal to everybody", &["kill-all"], "REFUSED nobody outside | REFUSED ESRCH"),
    attack("a signal to the daemon", &["kill", "{daemon}"], "REFUSED ESRCH"),
    attack("a limit of the init", &["limit-init"], "REFUSED EPERM"),
    attack("less processor time for the init", &["starve-init"], "REFUSED EPERM"),
    attack("being always first", &["real-time"], "REFUSED EACCES | REFUSED EPERM"),
    attack("a higher limit", &["raise-limit"], "REFUSED EPERM"),
    attack("all capabilities", &["capabilities"], "REFUSED EPERM"),
    shell("no capability is left", "grep -c '^Cap...:\\s*0000000000000000$' /proc/self/status", "5"),
    shell("a set-id program of the machine", "su -c 'id -u' 2>/dev/null || echo refused", "refused"),
    shell("whom set-id programs run as", "cp /usr/bin/id /tmp/x; chmod 4755 /tmp/x 2>/dev/null; /tmp/x -u", "1000"),
    attack("a core file", &["crash"], "CRASHES signal 11"),
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
    attack("a user namespace by clone", &["clone", "10000000"], "REFUSED EPERM"),
    attack("a mount namespace by clone", &["clone", "20000"], "REFUSED EPERM"),
    attack("a cgroup namespace by clone", &["clone", "2000000"], "REFUSED EPERM"),
    attack("a host name of its own by clone", &["clone", "4000000"], "REFUSED EPERM"),
    attack("shared memory of its own by clone", &["clone", "8000000"], "REFUSED EPERM"),
    attack("a process namespace by clone", &["clone", "20000000"], "REFUSED EPERM"),
    attack("a network by clone", &["clone", "40000000"], "REFUSED EPERM"),
    attack("joining a namespace", &["setns"], "REFUSED EPERM"),
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
    call("setuid-root", "REFUSED EINVAL"),
    call("setgid-root", "REFUSED EINVAL"),
    call("setgroups", "REFUSED EPERM"),
    call("x32-getpid", "REFUSED ENOSYS"),
    call("x32-unshare", "REFUSED ENOSYS"),
    call("x32-open-tree", "REFUSED ENOSYS"),
];

/// Sockets, and whom they would reach.
const NETWORK: &[Case] = &[
    attack("a Unix socket", &["socket", "1", "1", "0"], "REFUSED EAFNOSUPPORT"),
    attack("a Unix socket of the machine in the workspace", &["connect-unix", "stream.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a Unix socket without a file", &["connect-unix", "@{mark}"], "REFUSED EAFNOSUPPORT"),
    attack("a message from one of a pair", &["send-from-pair", "datagrams.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a connection from one of a pair", &["send-from-pair", "stream.sock"], "REFUSED EAFNOSUPPORT"),
    attack("a pair of another family", &["pair", "30", "1"], "REFUSED EAFNOSUPPORT"),
    attack("a socket to the hypervisor", &["socket", "40", "1", "0"], "REFUSED EAFNOSUPPORT"),
    attack("packets", &["socket", "17", "3", "768"], "REFUSED EAFNOSUPPORT"),
    attack("the kernel's cryptography", &["socket", "38", "5", "0"], "REFUSED EAFNOSUPPORT"),
    attack("Bluetooth", &["socket", "31", "3", "1"], "REFUSED EAFNOSUPPORT"),
    attack("express data paths", &["socket", "44", "3", "0"], "REFUSED EAFNOSUPPORT"),
    attack("netfilter", &["socket", "16", "3", "12"], "REFUSED EAFNOSUPPORT"),
    attack("events of the kernel", &["socket", "16", "2", "15"], "REFUSED EAFNOSUPPORT"),
    attack("audit", &["socket", "16", "3", "9"], "REFUSED EAFNOSUPPORT"),
    attack("generic netlink", &["socket", "16", "3", "16"], "REFUSED EAFNOSUPPORT"),
    attack("a raw socket", &["socket", "2", "3", "1"], "REFUSED EPERM"),
    attack("a raw socket of version 6", &["socket", "10", "3", "58"], "REFUSED EPERM"),
    attack("a ping", &["socket", "2", "2", "1"], "REFUSED EACCES"),
    attack("an interface of its own", &["add-interface"], "REFUSED EPERM"),
    shell(
        "no interface but its own",
        "ls /proc/self/net >/dev/null; tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' \\n'",
        "lo",
    ),
    shell("no route", "tail -n +2 /proc/self/net/route | wc -l", "0"),
    attack("a service of the machine", &["reach", "127.0.0.1", "{service}"], "REFUSED ECONNREFUSED"),
    attack("the daemon's local listener", &["reach", "127.0.0.1", "{local}"], "REFUSED ECONNREFUSED"),
    attack("the daemon's control listener", &["reach", "127.0.0.1", "{control}"], "REFUSED ECONNREFUSED"),
    attack("the machine by version 6", &["reach6", "fe80::1", "{local}"], "REFUSED EINVAL | REFUSED ENETUNREACH"),
    attack("a public address", &["reach", "192.0.2.1", "443"], "REFUSED ENETUNREACH"),
    attack("a public address by messages", &["reach", "192.0.2.1", "53", "udp"], "REFUSED ENETUNREACH"),
    attack("a private address", &["reach", "10.0.0.1", "80"], "REFUSED ENETUNREACH"),
    attack("the address of metadata", &["reach", "169.254.169.254", "80"], "REFUSED ENETUNREACH"),
    attack(
        "a public address of version 6",
        &["reach6", "2001:db8::1", "443"],
        "REFUSED ENETUNREACH | REFUSED EADDRNOTAVAIL",
    ),
    attack("through the proxy: a host that nobody listed", &["ask-proxy", "example.org:443"], "REFUSED 403"),
    attack(
        "through the proxy: a host whose end is another's",
        &["ask-proxy", "listed.com.evil.com:443"],
        "REFUSED 403",
    ),
    attack("through the proxy: loopback", &["ask-proxy", "127.0.0.1:{service}"], "REFUSED 403"),
    attack(
        "through the proxy: loopback as one number",
        &["ask-proxy", "2130706433:{service}"],
        "REFUSED 400 | REFUSED 403",
    ),
    attack(
        "through the proxy: loopback in hexadecimal",
        &["ask-proxy", "0x7f000001:{service}"],
        "REFUSED 400 | REFUSED 403",
    ),
    attack("through the proxy: loopback in octal", &["ask-proxy", "0177.0.0.1:{service}"], "REFUSED 400 | REFUSED 403"),
    attack("through the proxy: loopback cut short", &["ask-proxy", "127.1:{service}"], "REFUSED 400 | REFUSED 403"),
    attack("through the proxy: loopback of version 6", &["ask-proxy", "[::1]:{service}"], "REFUSED 403"),
    attack("through the proxy: loopback in version 6", &["ask-proxy", "[::ffff:127.0.0.1]:{service}"], "REFUSED 403"),
    attack("through the proxy: any address", &["ask-proxy", "0.0.0.0:{service}"], "REFUSED 403"),
    attack("through the proxy: the daemon's listener", &["ask-proxy", "127.0.0.1:{local}"], "REFUSED 403"),
    attack("through the proxy: metadata", &["ask-proxy", "169.254.169.254:80"], "REFUSED 403"),
    attack("through the proxy: metadata by NAT64", &["ask-proxy", "[64:ff9b::a9fe:a9fe]:80"], "REFUSED 403"),
    attack("through the proxy: a private address", &["ask-proxy", "10.0.0.1:443"], "REFUSED 403"),
    attack("through the proxy: a zone", &["ask-proxy", "[fe80::1%25lo]:443"], "REFUSED 400 | REFUSED 403"),
    attack(
        "through the proxy: somebody's name before the host",
        &["ask-proxy", "user@example.org:443"],
        "REFUSED 400 | REFUSED 403",
    ),
    attack("through the proxy: a dot at the end", &["ask-proxy", "example.org.:443"], "REFUSED 400 | REFUSED 403"),
    attack(
        "through the proxy: an encoded NUL",
        &["ask-proxy", "example.org%00.evil.com:443"],
        "REFUSED 400 | REFUSED 403",
    ),
    attack("through the proxy: port 0", &["ask-proxy", "example.org:0"], "REFUSED 400 | REFUSED 403"),
    attack("through the proxy: the proxy itself", &["ask-proxy", "127.0.0.1:3128"], "REFUSED 403"),
    attack("through the proxy: the proxy by its name", &["ask-proxy", "localhost:3128"], "REFUSED 403"),
    attack("through the proxy by SOCKS", &["ask-proxy", "example.org", "socks"], "REFUSED by SOCKS"),
    attack("through the proxy by SOCKS: loopback", &["ask-proxy", "127.0.0.1", "socks"], "REFUSED by SOCKS"),
    shell("a name that nobody listed is asked of nobody", "getent hosts secret-data.example.org || echo none", "none"),
];
