/* Makes the disk fail as a file says, for files whose name holds `journal.db`. Preloaded by the tests of the journal.
 *
 * FAULTS names a file that holds what fails: any of `sync`, `write`, `open`, and the number of the error, such as `sync write 5`.
 * SYNCS names a file that gets one byte for each sync.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fault(const char *what) {
    const char *path = getenv("FAULTS");
    char text[64] = {0};
    if (!path) return 0;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    if (file < 0) return 0;
    long length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (length <= 0 || !strstr(text, what)) return 0;
    const char *number = strrchr(text, ' ');
    return number ? atoi(number + 1) : EIO;
}

static int is_journal(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "journal.db") != NULL;
}

static int refused(int fd, const char *what) {
    int error = is_journal(fd) ? fault(what) : 0;
    if (error) errno = error;
    return error;
}

static void count(int fd) {
    const char *path = getenv("SYNCS");
    if (!path || !is_journal(fd)) return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) return;
    syscall(SYS_write, file, ".", 1);
    syscall(SYS_close, file);
}

#define SYNC(name)                                        \
    int name(int fd) {                                    \
        static int (*real)(int);                          \
        if (!real) real = dlsym(RTLD_NEXT, #name);        \
        count(fd);                                        \
        return refused(fd, "sync") ? -1 : real(fd);       \
    }
SYNC(fsync)
SYNC(fdatasync)

#define PWRITE(name)                                                          \
    ssize_t name(int fd, const void *bytes, size_t length, off_t at) {        \
        static ssize_t (*real)(int, const void *, size_t, off_t);             \
        if (!real) real = dlsym(RTLD_NEXT, #name);                            \
        return refused(fd, "write") ? -1 : real(fd, bytes, length, at);       \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define OPEN(name)                                                                              \
    int name(const char *path, int flags, ...) {                                                \
        static int (*real)(const char *, int, ...);                                             \
        va_list rest;                                                                           \
        va_start(rest, flags);                                                                  \
        int mode = va_arg(rest, int);                                                           \
        va_end(rest);                                                                           \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                              \
        int error = (flags & O_ACCMODE) != O_RDONLY && strstr(path, "journal.db") ? fault("open") : 0; \
        if (error) { errno = error; return -1; }                                                \
        return real(path, flags, mode);                                                         \
    }
OPEN(open)
OPEN(open64)
