/* What a program tries to get out of its enclosure. `attacks <name> [arguments]` tries one thing for real, prints one line, and exits with
 * zero: `REFUSED <how>` or `SUCCEEDED <what>`.
 *
 * Calls of the kernel are made by number, so that no library can refuse or replace one beforehand. Nothing here changes a machine on which it
 * works: files that matter are opened for writing and not written to, calls that would end the machine are given arguments that are wrong.
 */
#include "attacks.h"

/* ---- What is said -------------------------------------------------------------------------------------------------------------------- */

int refused(void) {
    const char *name = strerrorname_np(errno);
    printf("REFUSED %s\n", name ? name : "unknown");
    return 0;
}

int refused_how(const char *how) {
    printf("REFUSED %s\n", how);
    return 0;
}

int succeeded(const char *what) {
    printf("SUCCEEDED %s\n", what);
    return 0;
}

int said(long answer, const char *what) {
    return answer < 0 ? refused() : succeeded(what);
}

/* ---- Calls that must be refused whatever they are given ------------------------------------------------------------------------------ */

#define NOTHING 0L
#define MANY (-1L)

struct call {
    const char *name;
    long number;
    long arguments[6];
};

/* The last ones have no names in older headers. */
static const struct call CALLS[] = {
    {"unshare-user", SYS_unshare, {CLONE_NEWUSER}},
    {"unshare-mount", SYS_unshare, {CLONE_NEWNS}},
    {"unshare-network", SYS_unshare, {CLONE_NEWNET}},
    {"unshare-cgroup", SYS_unshare, {CLONE_NEWCGROUP}},
    {"unshare-time", SYS_unshare, {0x80}},
    {"clone3", SYS_clone3, {NOTHING, 88}},
    {"io-uring-setup", SYS_io_uring_setup, {1, NOTHING}},
    {"io-uring-enter", SYS_io_uring_enter, {MANY}},
    {"io-uring-register", SYS_io_uring_register, {MANY}},
    {"bpf", SYS_bpf, {0, NOTHING, 0}},
    {"perf-event-open", SYS_perf_event_open, {NOTHING, 0, MANY, MANY, 0}},
    {"userfaultfd", SYS_userfaultfd, {1}},
    {"keyctl", SYS_keyctl, {0, -3, 1}},
    {"add-key", SYS_add_key, {(long)"user", (long)"escape", (long)"x", 1, -3}},
    {"request-key", SYS_request_key, {(long)"user", (long)"escape", NOTHING, 0}},
    {"mount", SYS_mount, {(long)"none", (long)"/tmp", (long)"tmpfs", 0, NOTHING}},
    {"remount", SYS_mount, {(long)"none", (long)"/usr", NOTHING, MS_REMOUNT | MS_BIND, NOTHING}},
    {"bind-mount", SYS_mount, {(long)"/proc/1/root", (long)"/tmp", NOTHING, MS_BIND, NOTHING}},
    {"umount", SYS_umount2, {(long)"/proc", MNT_DETACH}},
    {"pivot-root", SYS_pivot_root, {(long)"/tmp", (long)"/tmp"}},
    {"chroot", SYS_chroot, {(long)"/tmp"}},
    {"open-tree", SYS_open_tree, {AT_FDCWD, (long)"/", 1}},
    {"move-mount", SYS_move_mount, {MANY, (long)"", AT_FDCWD, (long)"/tmp", 4}},
    {"fsopen", SYS_fsopen, {(long)"tmpfs", 0}},
    {"fspick", SYS_fspick, {AT_FDCWD, (long)"/", 0}},
    {"mount-setattr", SYS_mount_setattr, {AT_FDCWD, (long)"/", 0, NOTHING, 32}},
    {"statmount", 457, {NOTHING, NOTHING, 0, 0}},
    {"open-tree-attr", 467, {AT_FDCWD, (long)"/", 1, NOTHING, 0}},
    {"kexec-load", SYS_kexec_load, {0, 0, NOTHING, MANY}},
    {"kexec-file-load", SYS_kexec_file_load, {MANY, MANY, 0, NOTHING, MANY}},
    {"init-module", SYS_init_module, {NOTHING, 0, (long)""}},
    {"finit-module", SYS_finit_module, {MANY, (long)"", 0}},
    {"delete-module", SYS_delete_module, {(long)"palyra-none", 0}},
    {"reboot", SYS_reboot, {0, 0, 0, NOTHING}},
    {"swapon", SYS_swapon, {(long)"/tmp/none", 0}},
    {"acct", SYS_acct, {(long)"/tmp/none"}},
    {"syslog", SYS_syslog, {10, NOTHING, 0}},
    {"settimeofday", SYS_settimeofday, {NOTHING, NOTHING}},
    {"clock-settime", SYS_clock_settime, {MANY, NOTHING}},
    {"sethostname", SYS_sethostname, {(long)"sandbox", 7}},
    {"personality", SYS_personality, {0x0008}},
    {"modify-ldt", SYS_modify_ldt, {0, NOTHING, 0}},
    {"iopl", SYS_iopl, {3}},
    {"ioperm", SYS_ioperm, {0x80, 1, 1}},
    {"open-by-handle", SYS_open_by_handle_at, {AT_FDCWD, NOTHING, 0}},
    {"fanotify", SYS_fanotify_init, {0, 0}},
    {"quotactl", SYS_quotactl, {0, NOTHING, 0, NOTHING}},
    {"setuid-root", SYS_setresuid, {0, 0, 0}},
    {"setgid-root", SYS_setresgid, {0, 0, 0}},
    {"setgroups", SYS_setgroups, {0, NOTHING}},
    {"memfd-secret", 447, {0}},
    {"process-vm-readv", SYS_process_vm_readv, {1, NOTHING, 0, NOTHING, 0, 0}},
    {"process-vm-writev", SYS_process_vm_writev, {1, NOTHING, 0, NOTHING, 0, 0}},
    {"pidfd-getfd", SYS_pidfd_getfd, {MANY, 0, 0}},
    {"ptrace-init", SYS_ptrace, {PTRACE_ATTACH, 1, 0, 0}},
    {"ptrace-traceme", SYS_ptrace, {PTRACE_TRACEME, 0, 0, 0}},
    {"x32-getpid", 0x40000000L | SYS_getpid, {0}},
    {"x32-unshare", 0x40000000L | SYS_unshare, {CLONE_NEWUSER}},
    {"x32-open-tree", 0x40000000L | SYS_open_tree, {AT_FDCWD, (long)"/", 1}},
};

static int try_call(const char *name) {
    for (size_t at = 0; at < sizeof CALLS / sizeof *CALLS; at++) {
        const struct call *one = &CALLS[at];
        if (!strcmp(one->name, name)) {
            const long *a = one->arguments;
            return said(syscall(one->number, a[0], a[1], a[2], a[3], a[4], a[5]), name);
        }
    }
    return -1;
}

/* ---- Which one ----------------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*attack)(char **);
} ATTACKS[] = {
    {"open", open_path},
    {"climb", climb},
    {"hard-link", hard_link},
    {"magic-link", magic_link},
    {"descriptors", descriptors},
    {"look-at-others", look_at_others},
    {"names", names},
    {"make-device", make_device},
    {"make-fifo", make_fifo},
    {"set-id", set_id},
    {"capability-of-file", capability_of_file},
    {"give-away", give_away},
    {"fill", fill},
    {"sparse", sparse},
    {"lease", lease},
    {"starve-init", starve_init},
    {"real-time", real_time},
    {"swap", swap},
    {"clone", clone_into},
    {"setns", join_namespace},
    {"fork-bomb", fork_bomb},
    {"thread-bomb", thread_bomb},
    {"memory-bomb", memory_bomb},
    {"file-bomb", file_bomb},
    {"leave-behind", leave_behind},
    {"trace-sibling", trace_sibling},
    {"read-init", read_init},
    {"signal-init", signal_init},
    {"kill-all", kill_all},
    {"kill", kill_pid},
    {"limit-init", limit_init},
    {"raise-limit", raise_limit},
    {"capabilities", capabilities},
    {"crash", crash},
    {"old-interface", old_interface},
    {"old-program", old_program},
    {"from-memory", from_memory},
    {"two-things", two_things},
    {"push-key", push_key},
    {"push-key-on-own", push_key_on_own},
    {"shared-memory", shared_memory},
    {"socket", make_socket},
    {"pair", make_pair},
    {"connect-unix", connect_unix},
    {"send-from-pair", send_from_pair},
    {"reach", reach},
    {"reach6", reach6},
    {"ask-proxy", ask_proxy},
    {"say-to-proxy", say_to_proxy},
    {"socks-command", socks_command},
    {"dribble", dribble},
    {"add-interface", add_interface},
};

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    for (size_t at = 0; at < sizeof ATTACKS / sizeof *ATTACKS; at++)
        if (!strcmp(ATTACKS[at].name, arguments[1]))
            return ATTACKS[at].attack(arguments + 2);
    int tried = try_call(arguments[1]);
    if (tried >= 0)
        return tried;
    printf("UNKNOWN %s\n", arguments[1]);
    return 2;
}
