/* What a program tries to get out of its enclosure. `attacks <name> [arguments]` tries one thing for real, prints one line, and exits with
 * zero: `REFUSED <how>` or `SUCCEEDED <what>`.
 *
 * Calls of the kernel are made by number, so that no library can refuse or replace one beforehand. Nothing here changes a machine on which it
 * works: files that matter are opened for writing and not written to, calls that would end the machine are given arguments that are wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

/* ---- What is said --------------------------------------------------------------------------------------------------------------- */

static int refused(void) {
    const char *name = strerrorname_np(errno);
    printf("REFUSED %s\n", name ? name : "unknown");
    return 0;
}

static int refused_how(const char *how) {
    printf("REFUSED %s\n", how);
    return 0;
}

static int succeeded(const char *what) {
    printf("SUCCEEDED %s\n", what);
    return 0;
}

static int said(long answer, const char *what) {
    return answer < 0 ? refused() : succeeded(what);
}

/* ---- Calls that must be refused whatever they are given ----------------------------------------------------------------------------- */

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

/* ---- Files ---------------------------------------------------------------------------------------------------------------------- */

/* Opens a file by a path, in a way: `read`, `write`, `create`, `list`. What is opened for writing is not written to. */
static int open_path(char **a) {
    int how = !strcmp(a[1], "write") ? O_WRONLY : !strcmp(a[1], "create") ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY;
    if (!strcmp(a[1], "list"))
        how |= O_DIRECTORY;
    long file = syscall(SYS_openat, AT_FDCWD, a[0], how, 0600);
    if (file < 0)
        return refused();
    char text[64];
    if (how == O_RDONLY && read(file, text, sizeof text) < 0)
        return refused();
    return succeeded(a[0]);
}

/* Up from here until a file is there, or the top. */
static int climb(char **a) {
    char path[PATH_MAX] = "";
    for (int level = 0; level < 64; level++) {
        strcat(path, "../");
        char whole[PATH_MAX + 256];
        snprintf(whole, sizeof whole, "%s%s", path, a[0]);
        if (syscall(SYS_openat, AT_FDCWD, whole, O_RDONLY) >= 0)
            return succeeded(whole);
    }
    return refused();
}

static int hard_link(char **a) {
    return said(syscall(SYS_linkat, AT_FDCWD, a[0], AT_FDCWD, "linked", 0), "a link to a file outside");
}

/* A link to what a descriptor or a magic link leads to. */
static int magic_link(char **a) {
    return said(syscall(SYS_linkat, AT_FDCWD, a[0], AT_FDCWD, "linked", AT_SYMLINK_FOLLOW), "a link to it");
}

/* The numbers of the descriptors that are open. */
static int descriptors(char **a) {
    (void)a;
    char open[256] = "";
    int more = 0;
    for (int fd = 0; fd < 4096; fd++)
        if (syscall(SYS_fcntl, fd, F_GETFD) >= 0) {
            char one[16];
            snprintf(one, sizeof one, " %d", fd);
            if (strlen(open) < 200)
                strcat(open, one);
            more |= fd > 2;
        }
    printf("%s%s\n", more ? "SUCCEEDED" : "REFUSED", open);
    return 0;
}

/* Every process that is seen here, but this one: its open files, where it works, where its top is. */
static int look_at_others(char **a) {
    (void)a;
    DIR *all = opendir("/proc");
    struct dirent *entry;
    int seen = 0;
    while (all && (entry = readdir(all))) {
        long pid = atol(entry->d_name);
        if (pid <= 0 || pid == getpid())
            continue;
        seen++;
        const char *places[] = {"root", "cwd", "fd/0", "fd/3", "exe", "mem", "environ", "maps", "ns/net"};
        for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
            char path[128], target[PATH_MAX];
            snprintf(path, sizeof path, "/proc/%ld/%s", pid, places[at]);
            if (readlink(path, target, sizeof target) >= 0 || open(path, O_RDONLY) >= 0) {
                char byte;
                int file = open(path, O_RDONLY);
                if (file >= 0 && read(file, &byte, 1) < 0 && errno != EISDIR)
                    continue;
                return succeeded(path);
            }
        }
    }
    return seen ? refused_how("everything") : refused_how("nobody is there");
}

static int list_names(const char *path, char *into, size_t room) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    char *names[64];
    int count = 0;
    if (!directory)
        return -1;
    while ((entry = readdir(directory)) && count < 64)
        if (entry->d_name[0] != '.')
            names[count++] = strdup(entry->d_name);
    for (int one = 0; one < count; one++)
        for (int other = one + 1; other < count; other++)
            if (strcmp(names[one], names[other]) > 0) {
                char *kept = names[one];
                names[one] = names[other];
                names[other] = kept;
            }
    *into = 0;
    for (int one = 0; one < count; one++)
        snprintf(into + strlen(into), room - strlen(into), "%s%s", one ? " " : "", names[one]);
    return count;
}

/* What a directory holds. */
static int names(char **a) {
    char text[2048];
    return list_names(a[0], text, sizeof text) < 0 ? refused() : (printf("HOLDS %s\n", text), 0);
}

static int make_device(char **a) {
    (void)a;
    if (!syscall(SYS_mknodat, AT_FDCWD, "device", S_IFCHR | 0666, 0x103L))
        return succeeded("the null device");
    if (!syscall(SYS_mknodat, AT_FDCWD, "block", S_IFBLK | 0666, 0xfe00L))
        return succeeded("a disk");
    /* Whoever has no privilege may make this one, but for Landlock. */
    return said(syscall(SYS_mknodat, AT_FDCWD, "whiteout", S_IFCHR, 0L), "a device without a number");
}

static int make_fifo(char **a) {
    return said(syscall(SYS_mknodat, AT_FDCWD, a[0], S_IFIFO | 0666, 0L), "a pipe with a name");
}

/* Each way to a file that runs as its owner. */
static int set_id(char **a) {
    const char *way = a[0];
    long mode = a[1] ? strtol(a[1], NULL, 8) : 04755;
    int file = open("plain", O_CREAT | O_RDWR, 0700);
    long done = -1;
    if (file < 0)
        return refused_how("before the attempt");
    if (!strcmp(way, "chmod"))
        done = syscall(SYS_chmod, "plain", mode);
    else if (!strcmp(way, "fchmod"))
        done = syscall(SYS_fchmod, file, mode);
    else if (!strcmp(way, "fchmodat"))
        done = syscall(SYS_fchmodat, AT_FDCWD, "plain", mode);
    else if (!strcmp(way, "fchmodat2"))
        done = syscall(452, AT_FDCWD, "plain", mode, 0);
    else if (!strcmp(way, "fchmodat2-empty"))
        done = syscall(452, file, "", mode, AT_EMPTY_PATH);
    else if (!strcmp(way, "chmod-high-bits"))
        done = syscall(SYS_chmod, "plain", mode | 0x7fffffff00000000L | 0xffff0000L);
    else if (!strcmp(way, "chmod-descriptor"))
        done = syscall(SYS_chmod, "/proc/self/fd/3", mode);
    else if (!strcmp(way, "open"))
        done = syscall(SYS_open, "opened", O_CREAT | O_RDWR, mode);
    else if (!strcmp(way, "openat"))
        done = syscall(SYS_openat, AT_FDCWD, "opened", O_CREAT | O_RDWR, mode);
    else if (!strcmp(way, "openat-high-bits"))
        done = syscall(SYS_openat, AT_FDCWD, "opened", O_CREAT | O_RDWR | 0x7fffffff00000000L, mode);
    else if (!strcmp(way, "openat2")) {
        uint64_t how[3] = {O_CREAT | O_RDWR, mode, 0};
        done = syscall(SYS_openat2, AT_FDCWD, "opened", how, sizeof how);
    } else if (!strcmp(way, "tmpfile")) {
        done = syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, mode);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%ld", done);
        if (done >= 0)
            done = syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, "opened", AT_SYMLINK_FOLLOW);
    } else if (!strcmp(way, "creat"))
        done = syscall(SYS_creat, "opened", mode);
    else if (!strcmp(way, "mknod"))
        done = syscall(SYS_mknod, "opened", S_IFREG | mode, 0);
    else if (!strcmp(way, "mknodat"))
        done = syscall(SYS_mknodat, AT_FDCWD, "opened", S_IFREG | mode, 0);
    else if (!strcmp(way, "mkdir"))
        /* The kernel takes the bits away by itself, which is looked at below. */
        done = syscall(SYS_mkdirat, AT_FDCWD, "opened", mode);
    int why = errno;
    struct stat status;
    if ((!stat("plain", &status) && status.st_mode & 06000) || (!stat("opened", &status) && status.st_mode & 06000))
        return succeeded("a file that runs as its owner");
    errno = why;
    return done < 0 ? refused() : refused_how("without the bits");
}

static int capability_of_file(char **a) {
    (void)a;
    struct vfs_cap_data all = {.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE};
    all.data[0].permitted = ~0u;
    close(open("plain", O_CREAT | O_RDWR, 0755));
    if (syscall(SYS_setxattr, "plain", "trusted.escape", "x", 1L, 0L) == 0)
        return succeeded("an attribute of root");
    return said(syscall(SYS_setxattr, "plain", "security.capability", &all, (long)sizeof all, 0L), "a capability");
}

static int give_away(char **a) {
    (void)a;
    close(open("plain", O_CREAT | O_RDWR, 0755));
    return said(syscall(SYS_fchownat, AT_FDCWD, "plain", 0, 0, 0), "a file of root");
}

/* Writes to a place until there is no more room, and says how many MiB there were. */
static int fill(char **a) {
    static char block[1 << 20];
    char path[PATH_MAX];
    long most = atol(a[1]);
    memset(block, 'x', sizeof block);
    snprintf(path, sizeof path, "%s/filled", a[0]);
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    signal(SIGXFSZ, SIG_IGN);
    for (long done = 0; done < most; done++)
        if (write(file, block, sizeof block) != (ssize_t)sizeof block) {
            int why = errno;
            unlink(path);
            printf("REFUSED %s after %ld MiB\n", strerrorname_np(why), done);
            return 0;
        }
    unlink(path);
    return succeeded("more than there should be room for");
}

static int sparse(char **a) {
    int file = open("sparse", O_CREAT | O_RDWR, 0600);
    signal(SIGXFSZ, SIG_IGN);
    long done = syscall(SYS_ftruncate, file, atol(a[0]));
    int why = errno;
    unlink("sparse");
    errno = why;
    return said(done, "a file longer than the limit");
}

/* Whoever opens a file under a lease waits until its holder gives it up, or for most of a minute. */
static int lease(char **a) {
    signal(SIGIO, SIG_IGN);
    int file = open(a[0], O_CREAT | O_RDWR, 0600);
    if (write(file, "leased\n", 7) != 7 || syscall(SYS_fcntl, file, F_SETLEASE, F_WRLCK) < 0)
        return refused();
    puts("LEASED");
    fflush(stdout);
    sleep(atol(a[1]));
    return 0;
}

/* Exchanges a directory and a link to another one, again and again, until time is up. */
static int swap(char **a) {
    struct timeval end, now;
    gettimeofday(&end, NULL);
    end.tv_sec += atol(a[2]);
    mkdir(a[0], 0755);
    if (symlink(a[1], "exchange") && errno != EEXIST)
        return refused();
    long count = 0;
    do {
        if (syscall(SYS_renameat2, AT_FDCWD, a[0], AT_FDCWD, "exchange", 2L))
            return refused();
        count++;
        gettimeofday(&now, NULL);
    } while (timercmp(&now, &end, <));
    printf("DONE %ld\n", count);
    return 0;
}

/* ---- Processes ------------------------------------------------------------------------------------------------------------------ */

static int clone_into(char **a) {
    long child = syscall(SYS_clone, strtol(a[0], NULL, 16) | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    return said(child, "a namespace");
}

static int join_namespace(char **a) {
    (void)a;
    int own = open("/proc/self/ns/net", O_RDONLY);
    return own < 0 ? refused() : said(syscall(SYS_setns, own, 0), "a namespace");
}

/* Forks children that wait, until there is no more of them. */
static int fork_bomb(char **a) {
    long most = atol(a[0]);
    for (long count = 0; count < most; count++) {
        long child = syscall(SYS_fork);
        if (child == 0)
            for (;;)
                pause();
        if (child < 0) {
            printf("REFUSED %s after %ld\n", strerrorname_np(errno), count);
            fflush(stdout);
            _exit(0);
        }
    }
    return succeeded("more processes than there may be");
}

/* As many threads. */
static int thread_bomb(char **a) {
    long most = atol(a[0]);
    for (long count = 0; count < most; count++) {
        char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        int (*wait_for_ever)(void *) = (int (*)(void *))(void *)pause;
        if (clone(wait_for_ever, stack + 65536, flags, NULL) < 0) {
            printf("REFUSED %s after %ld\n", strerrorname_np(errno), count);
            fflush(stdout);
            syscall(SYS_exit_group, 0);
        }
    }
    succeeded("more threads than there may be");
    fflush(stdout);
    syscall(SYS_exit_group, 0);
    return 0;
}

/* Takes memory until there is none. */
static int memory_bomb(char **a) {
    long most = atol(a[0]);
    for (long count = 0; count < most; count++) {
        char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) {
            printf("REFUSED %s after %ld MiB\n", strerrorname_np(errno), count);
            return 0;
        }
        memset(block, 1, 1 << 20);
    }
    return succeeded("more memory than there may be");
}

/* Takes memory that no process maps, in files without a name. */
static int file_bomb(char **a) {
    static char block[1 << 20];
    long most = atol(a[0]);
    memset(block, 1, sizeof block);
    for (long count = 0; count < most; count += 16) {
        int file = syscall(SYS_memfd_create, "bomb", 0L);
        for (int part = 0; part < 16; part++)
            if (file < 0 || write(file, block, sizeof block) != (ssize_t)sizeof block) {
                printf("REFUSED %s after %ld MiB\n", strerrorname_np(errno), count);
                return 0;
            }
    }
    return succeeded("more memory than there may be");
}

/* A process that nobody descends to any more: forked twice, in a session of its own, with no stream left. */
static void daemonise(void) {
    if (syscall(SYS_fork) == 0) {
        setsid();
        if (syscall(SYS_fork) == 0) {
            setsid();
            signal(SIGHUP, SIG_IGN);
            signal(SIGTERM, SIG_IGN);
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            for (;;)
                sleep(60);
        }
        _exit(0);
    }
}

static int leave_behind(char **a) {
    for (long count = atol(a[0]); count > 0; count--)
        daemonise();
    puts("LEFT");
    fflush(stdout);
    if (a[1])
        sleep(atol(a[1]));
    return 0;
}

static int trace_sibling(char **a) {
    (void)a;
    long child = syscall(SYS_fork);
    if (child == 0)
        for (;;)
            pause();
    long attached = syscall(SYS_ptrace, PTRACE_ATTACH, child, 0, 0);
    int why = errno;
    kill(child, SIGKILL);
    errno = why;
    return said(attached, "a traced process");
}

static int read_init(char **a) {
    (void)a;
    int file = open("/proc/1/mem", O_RDWR);
    return file < 0 ? refused() : succeeded("the memory of the init");
}

static int signal_init(char **a) {
    (void)a;
    int all[] = {SIGKILL, SIGSTOP, SIGTERM, SIGSEGV, SIGCHLD, SIGABRT};
    int delivered = 0;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        delivered |= !syscall(SYS_kill, 1, all[at]);
    /* Where these arrive, they are to have no effect: who is alive after them says so. */
    usleep(50000);
    return refused_how(delivered ? "without effect" : "each");
}

static int kill_all(char **a) {
    (void)a;
    long killed = syscall(SYS_kill, -1, SIGKILL);
    return killed < 0 ? refused() : refused_how("nobody outside");
}

static int kill_pid(char **a) {
    return said(syscall(SYS_kill, atol(a[0]), SIGKILL), "a signal to a process outside");
}

static int limit_init(char **a) {
    (void)a;
    struct rlimit none = {1, 1};
    return said(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL), "a limit of the init");
}

static int raise_limit(char **a) {
    (void)a;
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    return said(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &more, NULL), "a higher limit");
}

/* The init gets no processor time while others want some, if this works; and others do. */
static int starve_init(char **a) {
    (void)a;
    struct sched_param none = {0};
    int done = 0;
    done |= !syscall(SYS_sched_setparam, 1, &none);
    done |= !syscall(SYS_sched_setscheduler, 1, SCHED_IDLE, &none);
    done |= !syscall(SYS_setpriority, PRIO_PROCESS, 1, 19);
    done |= !syscall(SYS_setpriority, PRIO_PGRP, 1, 19);
    unsigned long first = 1;
    done |= !syscall(SYS_sched_setaffinity, 1, sizeof first, &first);
    done |= !syscall(SYS_ioprio_set, 1, 1, 3 << 13);
    int why = errno;
    if (a[0]) {
        for (long count = atol(a[0]); count > 0; count--)
            if (syscall(SYS_fork) == 0)
                for (;;)
                    sched_setaffinity(0, sizeof first, (void *)&first);
        for (;;)
            pause();
    }
    errno = why;
    return done ? succeeded("a slower init") : refused();
}

static int real_time(char **a) {
    (void)a;
    struct sched_param first = {1};
    if (!syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &first))
        return succeeded("a process that is always first");
    return said(syscall(SYS_setpriority, PRIO_PROCESS, 0, -1), "a higher priority");
}

static int capabilities(char **a) {
    (void)a;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
    if (!syscall(SYS_capset, &header, data))
        return succeeded("all capabilities");
    int why = errno;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) == 0)
        return succeeded("an ambient capability");
    errno = why;
    return refused();
}

static int crash(char **a) {
    (void)a;
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &more);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    puts("CRASHES");
    fflush(stdout);
    *(volatile int *)0 = 1;
    return 0;
}

/* `uname` in the interface for 32-bit programs. */
static int old_interface(char **a) {
    (void)a;
#ifdef __x86_64__
    char *low = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    long answer;
    puts("TRIES");
    fflush(stdout);
    if (low == MAP_FAILED)
        return refused();
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20L), "b"(0L) : "memory", "r8", "r9", "r10", "r11");
    return answer < 0 ? refused_how("as a call") : succeeded("a call of the old interface");
#else
    return refused_how("not here");
#endif
}

/* A 32-bit program, by hand: it asks for its number and exits with 42. */
static int old_program(char **a) {
    static const unsigned char code[] = {
        0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80,
    };
    struct {
        Elf32_Ehdr head;
        Elf32_Phdr part;
        unsigned char code[sizeof code];
    } program;
    memset(&program, 0, sizeof program);
    memcpy(program.head.e_ident, ELFMAG "\1\1\1", 7);
    program.head.e_type = ET_EXEC;
    program.head.e_machine = EM_386;
    program.head.e_version = 1;
    program.head.e_entry = 0x8048000 + offsetof(__typeof__(program), code);
    program.head.e_phoff = offsetof(__typeof__(program), part);
    program.head.e_ehsize = sizeof program.head;
    program.head.e_phentsize = sizeof program.part;
    program.head.e_phnum = 1;
    program.part.p_type = PT_LOAD;
    program.part.p_vaddr = program.part.p_paddr = 0x8048000;
    program.part.p_filesz = program.part.p_memsz = sizeof program;
    program.part.p_flags = PF_R | PF_X;
    program.part.p_align = 4096;
    memcpy(program.code, code, sizeof code);
    const char *path = a[0] ? a[0] : "program32";
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0700);
    if (write(file, &program, sizeof program) != (ssize_t)sizeof program)
        return refused();
    close(file);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, NULL);
        _exit(126);
    }
    waitpid(child, &status, 0);
    unlink(path);
    if (WIFSIGNALED(status))
        return refused_how(WTERMSIG(status) == SIGSYS ? "killed by SIGSYS" : "killed");
    return WEXITSTATUS(status) == 42 ? succeeded("a 32-bit program") : refused_how("not executed");
}

/* The attacks below by a copy of this program that has no name. */
static int from_memory(char **a) {
    (void)a;
    int memory = syscall(SYS_memfd_create, "copy", 0L), own = open("/proc/self/exe", O_RDONLY);
    char block[65536];
    ssize_t length;
    while ((length = read(own, block, sizeof block)) > 0)
        if (write(memory, block, length) != length)
            return refused();
    char *arguments[] = {"copy", "two-things", NULL}, *none[] = {NULL};
    syscall(SYS_execveat, memory, "", arguments, none, AT_EMPTY_PATH);
    return refused();
}

static int two_things(char **a) {
    (void)a;
    long namespace = syscall(SYS_unshare, CLONE_NEWUSER);
    long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/comm", O_WRONLY, 0);
    long socket_made = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    if (namespace >= 0 || file >= 0 || socket_made >= 0)
        return succeeded("something");
    return refused_how("three things");
}

static int push_key(char **a) {
    (void)a;
    return said(syscall(SYS_ioctl, 0, 0x5412, "x"), "a key on standard input");
}

/* On a terminal of its own, which it may have. */
static int push_key_on_own(char **a) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), zero = 0, number = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) || ioctl(master, TIOCGPTN, &number))
        return refused_how("before the attempt");
    char path[32];
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    setsid();
    int slave = open(path, O_RDWR);
    if (slave < 0)
        return refused_how("before the attempt");
    long command = 0x5412;
    if (a[0])
        command |= 0x7fffffff00000000L;
    return said(syscall(SYS_ioctl, slave, command, "x"), "a key on its own terminal");
}

/* A segment of shared memory, by its key; made, if told so. */
static int shared_memory(char **a) {
    int segment = shmget((key_t)strtol(a[0], NULL, 10), 4096, a[1] ? IPC_CREAT | 0666 : 0666);
    return segment < 0 ? refused() : succeeded("a segment of shared memory");
}

/* ---- The network ---------------------------------------------------------------------------------------------------------------- */

static int make_socket(char **a) {
    long made = syscall(SYS_socket, strtol(a[0], NULL, 10), strtol(a[1], NULL, 10), strtol(a[2], NULL, 10));
    return said(made, "a socket");
}

static int make_pair(char **a) {
    int pair[2];
    long made = syscall(SYS_socketpair, strtol(a[0], NULL, 10), strtol(a[1], NULL, 10), 0L, pair);
    return said(made, "a pair of sockets");
}

static socklen_t unix_address(struct sockaddr_un *to, const char *name) {
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    /* One that begins with @ is of the kind without a file. */
    strncpy(to->sun_path, name, sizeof to->sun_path - 1);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(name);
    if (name[0] == '@')
        to->sun_path[0] = 0;
    else
        length++;
    return length;
}

static int connect_unix(char **a) {
    struct sockaddr_un to;
    socklen_t length = unix_address(&to, a[0]);
    long made = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    if (made < 0)
        return refused();
    if (syscall(SYS_connect, made, &to, length) < 0)
        return refused();
    if (write(made, "escaped\n", 8) != 8)
        return refused();
    return succeeded("a connection to somebody outside");
}

/* Without ever making a socket: one of a pair is told to send elsewhere. */
static int send_from_pair(char **a) {
    struct sockaddr_un to;
    socklen_t length = unix_address(&to, a[0]);
    int kinds[] = {SOCK_DGRAM, SOCK_RAW, SOCK_STREAM, SOCK_SEQPACKET}, why = 0;
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        int pair[2];
        if (syscall(SYS_socketpair, AF_UNIX, kinds[at], 0L, pair) < 0) {
            why = errno;
            continue;
        }
        if (syscall(SYS_sendto, pair[0], "escaped\n", 8L, 0L, &to, (long)length) == 8 && kinds[at] != SOCK_STREAM &&
            kinds[at] != SOCK_SEQPACKET)
            return succeeded("a message to somebody outside");
        if (syscall(SYS_connect, pair[0], &to, length) == 0)
            return succeeded("a connection to somebody outside");
        close(pair[1]);
        if (syscall(SYS_connect, pair[0], &to, length) == 0)
            return succeeded("a connection to somebody outside");
    }
    if (why)
        errno = why;
    return refused();
}

static int reach(char **a) {
    int kind = a[2] && !strcmp(a[2], "udp") ? SOCK_DGRAM : SOCK_STREAM;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(a[1]))};
    inet_pton(AF_INET, a[0], &to.sin_addr);
    long made = syscall(SYS_socket, AF_INET, kind | SOCK_NONBLOCK, 0);
    if (made < 0)
        return refused();
    if (syscall(SYS_connect, made, &to, (long)sizeof to) == 0)
        return succeeded("a way there");
    if (errno != EINPROGRESS)
        return refused();
    struct pollfd waited = {.fd = made, .events = POLLOUT};
    socklen_t length = sizeof errno;
    int why = ETIMEDOUT;
    if (poll(&waited, 1, 3000) > 0)
        getsockopt(made, SOL_SOCKET, SO_ERROR, &why, &length);
    errno = why;
    return why ? refused() : succeeded("a way there");
}

static int reach6(char **a) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(a[1]))};
    inet_pton(AF_INET6, a[0], &to.sin6_addr);
    long made = syscall(SYS_socket, AF_INET6, SOCK_DGRAM, 0);
    return made < 0 ? refused() : said(syscall(SYS_connect, made, &to, (long)sizeof to), "a way there");
}

static int add_interface(char **a) {
    (void)a;
    struct {
        struct nlmsghdr head;
        unsigned char rest[64];
    } request = {.head = {.nlmsg_len = 16 + 16, .nlmsg_type = 16, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE}};
    long made = syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0);
    if (made < 0)
        return refused();
    if (send(made, &request, request.head.nlmsg_len, 0) < 0)
        return refused();
    struct {
        struct nlmsghdr head;
        int error;
        unsigned char rest[256];
    } answer;
    if (recv(made, &answer, sizeof answer, 0) < 20)
        return refused();
    errno = -answer.error;
    return answer.error ? refused() : succeeded("an interface");
}

/* ---- Which one ------------------------------------------------------------------------------------------------------------------ */

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
