/* Sockets, and whom they would reach. */
#include "attacks.h"

int make_socket(char **a) {
    long made = syscall(SYS_socket, strtol(a[0], NULL, 10), strtol(a[1], NULL, 10), strtol(a[2], NULL, 10));
    return said(made, "a socket");
}

int make_pair(char **a) {
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

int connect_unix(char **a) {
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
int send_from_pair(char **a) {
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

int reach(char **a) {
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

/* A connection to the proxy of the enclosure, on which nobody waits for ever. */
static long to_proxy(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(3128)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    long made = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    if (made < 0 || syscall(SYS_connect, made, &to, (long)sizeof to) < 0)
        return -1;
    struct timeval patience = {.tv_sec = 12};
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return made;
}

/* What stands in an argument, with what cannot: a backslash stands before a zero, an r or an n for bytes that no argument holds. */
static size_t bytes_of(const char *text, char *into, size_t room) {
    size_t length = 0;
    for (; *text && length < room; text++) {
        char byte = *text;
        if (byte == '\\' && text[1]) {
            text++;
            byte = *text == '0' ? 0 : *text == 'r' ? '\r' : *text == 'n' ? '\n' : *text;
        }
        into[length++] = byte;
    }
    return length;
}

/* What the proxy answers to some bytes: whether there is a way, or how it says that there is none. */
static int answer_of(long proxy, const char *words, size_t length) {
    char heard[256] = {0};
    if (write(proxy, words, length) != (ssize_t)length)
        return refused();
    if (read(proxy, heard, sizeof heard - 1) <= 0)
        return refused_how("nothing was said");
    heard[12] = 0;
    return strncmp(heard, "HTTP/1.1 2", 10) ? refused_how(heard + 9) : succeeded("a way there");
}

/* Says whatever it is given to the proxy. */
int say_to_proxy(char **a) {
    char words[1024];
    long proxy = to_proxy();
    return proxy < 0 ? refused() : answer_of(proxy, words, bytes_of(a[0], words, sizeof words));
}

/* A command of SOCKS other than the one that is offered: 2 waits for a connection from outside, 3 is for messages. */
int socks_command(char **a) {
    unsigned char hello[] = {5, 1, 0}, answer[2], reply[10];
    unsigned char ask[] = {5, (unsigned char)atoi(a[0]), 0, 1, 127, 0, 0, 1, 0, 80};
    long proxy = to_proxy();
    if (proxy < 0 || write(proxy, hello, sizeof hello) < 0 || recv(proxy, answer, sizeof answer, MSG_WAITALL) != sizeof answer ||
        write(proxy, ask, sizeof ask) < 0 || recv(proxy, reply, sizeof reply, MSG_WAITALL) != sizeof reply)
        return refused();
    return reply[1] == 7 ? refused_how("no such command") : reply[1] ? refused_how("otherwise") : succeeded("a way");
}

/* So many connections to the proxy, on each of which a byte comes now and then, for so many seconds. */
int dribble(char **a) {
    int most = atoi(a[0]), made = 0;
    long proxies[4096];
    while (made < most && made < 4096 && (proxies[made] = to_proxy()) >= 0)
        made++;
    for (int tenths = atoi(a[1]) * 10, at = 0; at < tenths; at++) {
        for (int one = 0; one < made; one++)
            send(proxies[one], "C", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        usleep(100000);
    }
    printf("DRIBBLED on %d\n", made);
    return 0;
}

/* Asks the proxy of the enclosure for a way somewhere, by the method CONNECT or by SOCKS with a name. */
int ask_proxy(char **a) {
    long made = to_proxy();
    if (made < 0)
        return refused();
    char said_to_it[1024];
    if (a[1] && !strcmp(a[1], "socks")) {
        int name = (int)bytes_of(a[0], said_to_it + 8, 255);
        unsigned char hello[] = {5, 1, 0}, ask[] = {5, 1, 0, 3, (unsigned char)name};
        memcpy(said_to_it, hello, 3);
        memcpy(said_to_it + 3, ask, 5);
        said_to_it[8 + name] = 443 >> 8, said_to_it[9 + name] = (char)443;
        int length = 10 + name;
        if (write(made, said_to_it, length) != length)
            return refused();
        unsigned char answer[4];
        size_t have = 0;
        while (have < sizeof answer) {
            ssize_t read_now = read(made, answer + have, sizeof answer - have);
            if (read_now <= 0)
                return refused_how("nothing was said");
            have += read_now;
        }
        return answer[3] == 0 ? succeeded("a way there") : refused_how("by SOCKS");
    }
    int length = snprintf(said_to_it, sizeof said_to_it, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", a[0]);
    return answer_of(made, said_to_it, length);
}

int reach6(char **a) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(a[1]))};
    inet_pton(AF_INET6, a[0], &to.sin6_addr);
    long made = syscall(SYS_socket, AF_INET6, SOCK_DGRAM, 0);
    return made < 0 ? refused() : said(syscall(SYS_connect, made, &to, (long)sizeof to), "a way there");
}

int add_interface(char **a) {
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
