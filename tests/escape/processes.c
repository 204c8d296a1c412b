/* Other processes, more privileges, more of the machine, and programs for other interfaces of the kernel. */
#include "attacks.h"

int clone_into(char **a) {
    long child = syscall(SYS_clone, strtol(a[0], NULL, 16) | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    return said(child, "a namespace");
}

int join_namespace(char **a) {
    (void)a;
    int own = open("/proc/self/ns/net", O_RDONLY);
    return own < 0 ? refused() : said(syscall(SYS_setns, own, 0), "a namespace");
}

/* Forks children that wait, until there is no more of them. */
int fork_bomb(char **a) {
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
int thread_bomb(char **a) {
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
int memory_bomb(char **a) {
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
int file_bomb(char **a) {
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

int leave_behind(char **a) {
    for (long count = atol(a[0]); count > 0; count--)
        daemonise();
    puts("LEFT");
    fflush(stdout);
    if (a[1])
        sleep(atol(a[1]));
    return 0;
}

int trace_sibling(char **a) {
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

int read_init(char **a) {
    (void)a;
    int file = open("/proc/1/mem", O_RDWR);
    return file < 0 ? refused() : succeeded("the memory of the init");
}

int signal_init(char **a) {
    (void)a;
    int all[] = {SIGKILL, SIGSTOP, SIGTERM, SIGSEGV, SIGCHLD, SIGABRT};
    int delivered = 0;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        delivered |= !syscall(SYS_kill, 1, all[at]);
    /* Where these arrive, they are to have no effect: who is alive after them says so. */
    usleep(50000);
    return refused_how(delivered ? "without effect" : "each");
}

int kill_all(char **a) {
    (void)a;
    long killed = syscall(SYS_kill, -1, SIGKILL);
    return killed < 0 ? refused() : refused_how("nobody outside");
}

int kill_pid(char **a) {
    return said(syscall(SYS_kill, atol(a[0]), SIGKILL), "a signal to a process outside");
}

int limit_init(char **a) {
    (void)a;
    struct rlimit none = {1, 1};
    return said(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL), "a limit of the init");
}

int raise_limit(char **a) {
    (void)a;
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    return said(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &more, NULL), "a higher limit");
}

/* The init gets no processor time while others want some, if this works; and others do. */
int starve_init(char **a) {
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

int real_time(char **a) {
    (void)a;
    struct sched_param first = {1};
    if (!syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &first))
        return succeeded("a process that is always first");
    return said(syscall(SYS_setpriority, PRIO_PROCESS, 0, -1), "a higher priority");
}

int capabilities(char **a) {
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

int crash(char **a) {
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
int old_interface(char **a) {
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
int old_program(char **a) {
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
int from_memory(char **a) {
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

int two_things(char **a) {
    (void)a;
    long namespace = syscall(SYS_unshare, CLONE_NEWUSER);
    long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/comm", O_WRONLY, 0);
    long socket_made = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    if (namespace >= 0 || file >= 0 || socket_made >= 0)
        return succeeded("something");
    return refused_how("three things");
}

int push_key(char **a) {
    (void)a;
    return said(syscall(SYS_ioctl, 0, 0x5412, "x"), "a key on standard input");
}

/* On a terminal of its own, which it may have. */
int push_key_on_own(char **a) {
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
int shared_memory(char **a) {
    int segment = shmget((key_t)strtol(a[0], NULL, 10), 4096, a[1] ? IPC_CREAT | 0666 : 0666);
    return segment < 0 ? refused() : succeeded("a segment of shared memory");
}
