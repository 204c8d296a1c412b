/* What the parts of the attacks share: what they say, and the attacks themselves. Each takes its arguments and returns what to exit with. */
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

/* The error of the last call, as a refusal. */
int refused(void);
/* A refusal that is none of a call. */
int refused_how(const char *how);
/* It worked. */
int succeeded(const char *what);
/* One or the other, by what a call answered. */
int said(long answer, const char *what);

int open_path(char **a);
int climb(char **a);
int hard_link(char **a);
int magic_link(char **a);
int descriptors(char **a);
int look_at_others(char **a);
int names(char **a);
int make_device(char **a);
int make_fifo(char **a);
int set_id(char **a);
int capability_of_file(char **a);
int give_away(char **a);
int fill(char **a);
int sparse(char **a);
int lease(char **a);
int swap(char **a);

int clone_into(char **a);
int join_namespace(char **a);
int fork_bomb(char **a);
int thread_bomb(char **a);
int memory_bomb(char **a);
int file_bomb(char **a);
int leave_behind(char **a);
int trace_sibling(char **a);
int read_init(char **a);
int signal_init(char **a);
int kill_all(char **a);
int kill_pid(char **a);
int limit_init(char **a);
int raise_limit(char **a);
int starve_init(char **a);
int real_time(char **a);
int capabilities(char **a);
int crash(char **a);
int old_interface(char **a);
int old_program(char **a);
int from_memory(char **a);
int two_things(char **a);
int push_key(char **a);
int push_key_on_own(char **a);
int shared_memory(char **a);

int make_socket(char **a);
int make_pair(char **a);
int connect_unix(char **a);
int send_from_pair(char **a);
int reach(char **a);
int reach6(char **a);
int ask_proxy(char **a);
int say_to_proxy(char **a);
int socks_command(char **a);
int dribble(char **a);
int add_interface(char **a);
