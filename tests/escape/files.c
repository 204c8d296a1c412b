/* Paths, links, what `/proc` and `/dev` hold, files that run as their owner, and how much room there is. */
#include "attacks.h"

/* Opens a file by a path, in a way: `read`, `write`, `create`, `leave`, `list`. What is opened for writing is not written to, and what is
 * created is removed again, unless it is to be left. */
int open_path(char **a) {
    int create = !strcmp(a[1], "create"), leave = !strcmp(a[1], "leave");
    int how = !strcmp(a[1], "write") ? O_WRONLY : create || leave ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY;
    if (!strcmp(a[1], "list"))
        how |= O_DIRECTORY;
    long file = syscall(SYS_openat, AT_FDCWD, a[0], how, 0600);
    if (file < 0)
        return refused();
    char text[64];
    if (how == O_RDONLY && read(file, text, sizeof text) < 0)
        return refused();
    if (create)
        unlink(a[0]);
    return succeeded(a[0]);
}

/* Up from here until a file is there, or the top. */
int climb(char **a) {
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

int hard_link(char **a) {
    return said(syscall(SYS_linkat, AT_FDCWD, a[0], AT_FDCWD, "linked", 0), "a link to a file outside");
}

/* A link to what a descriptor or a magic link leads to. */
int magic_link(char **a) {
    return said(syscall(SYS_linkat, AT_FDCWD, a[0], AT_FDCWD, "linked", AT_SYMLINK_FOLLOW), "a link to it");
}

/* The numbers of the descriptors that are open. */
int descriptors(char **a) {
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
int look_at_others(char **a) {
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
int names(char **a) {
    char text[2048];
    return list_names(a[0], text, sizeof text) < 0 ? refused() : (printf("HOLDS %s\n", text), 0);
}

int make_device(char **a) {
    (void)a;
    if (!syscall(SYS_mknodat, AT_FDCWD, "device", S_IFCHR | 0666, 0x103L))
        return succeeded("the null device");
    if (!syscall(SYS_mknodat, AT_FDCWD, "block", S_IFBLK | 0666, 0xfe00L))
        return succeeded("a disk");
    /* Whoever has no privilege may make this one, but for Landlock. */
    return said(syscall(SYS_mknodat, AT_FDCWD, "whiteout", S_IFCHR, 0L), "a device without a number");
}

int make_fifo(char **a) {
    return said(syscall(SYS_mknodat, AT_FDCWD, a[0], S_IFIFO | 0666, 0L), "a pipe with a name");
}

/* Each way to a file that runs as its owner. */
int set_id(char **a) {
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

int capability_of_file(char **a) {
    (void)a;
    struct vfs_cap_data all = {.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE};
    all.data[0].permitted = ~0u;
    close(open("plain", O_CREAT | O_RDWR, 0755));
    if (syscall(SYS_setxattr, "plain", "trusted.escape", "x", 1L, 0L) == 0)
        return succeeded("an attribute of root");
    return said(syscall(SYS_setxattr, "plain", "security.capability", &all, (long)sizeof all, 0L), "a capability");
}

int give_away(char **a) {
    (void)a;
    close(open("plain", O_CREAT | O_RDWR, 0755));
    return said(syscall(SYS_fchownat, AT_FDCWD, "plain", 0, 0, 0), "a file of root");
}

/* Writes to a place until there is no more room, and says how many MiB there were. */
int fill(char **a) {
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

int sparse(char **a) {
    int file = open("sparse", O_CREAT | O_RDWR, 0600);
    signal(SIGXFSZ, SIG_IGN);
    long done = syscall(SYS_ftruncate, file, atol(a[0]));
    int why = errno;
    unlink("sparse");
    errno = why;
    return said(done, "a file longer than the limit");
}

/* Whoever opens a file under a lease waits until its holder gives it up, or for most of a minute. */
int lease(char **a) {
    signal(SIGIO, SIG_IGN);
    int file = open(a[0], O_CREAT | O_RDWR, 0600);
    if (write(file, "leased\n", 7) != 7 || syscall(SYS_fcntl, file, F_SETLEASE, F_WRLCK) < 0)
        return refused();
    puts("LEASED");
    fflush(stdout);
    sleep(atol(a[1]));
    return 0;
}

/* Exchanges a directory and a link to another one, again and again, until time is up; with a pause of so many microseconds, if that is given. */
int swap(char **a) {
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
        if (a[3])
            usleep(atoi(a[3]));
        gettimeofday(&now, NULL);
    } while (timercmp(&now, &end, <));
    printf("DONE %ld\n", count);
    return 0;
}
