/* Makes system calls as told and says what each answered.
 *
 * Reads lines `id call argument…` and prints `id ret N`, `id errno N`, `id signal N` or `id unprepared N`, one for
 * each, in order. Every call is made in a child of its own. `call` is a number; `int80:N` is made through the 32-bit
 * gate of x86. `buffer FD OPTION` sets a socket's buffer to 4 KiB and returns whether that changed it.
 *
 * Arguments: a number of up to 64 bits; `z` 64 KiB of zeros; `bad` a pointer to nothing; `s:TEXT` a string; `one` a
 * pointer to the int 1; `self` the child's pid; `msg`, `mmsg` one message of one byte; `unix`, `tcp`, `udp` a
 * connected socket with a byte to read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { RETURNED, FAILED, UNPREPARED };
struct answer { int kind; long value; };

static int answers;

static void answer(enum kind kind, long value) {
    struct answer answer = {kind, value};
    if (write(answers, &answer, sizeof answer) != sizeof answer) _exit(2);
    _exit(0);
}

static long prepared(long value) {
    if (value < 0) answer(UNPREPARED, errno);
    return value;
}

static long connected(int family, int type) {
    int ends[2];
    if (family == AF_UNIX) {
        prepared(socketpair(family, type, 0, ends));
    } else {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof address;
        int first = prepared(socket(family, type, 0));
        prepared(bind(first, (struct sockaddr *)&address, length));
        prepared(getsockname(first, (struct sockaddr *)&address, &length));
        if (type == SOCK_STREAM) prepared(listen(first, 1));
        ends[0] = prepared(socket(family, type, 0));
        prepared(connect(ends[0], (struct sockaddr *)&address, length));
        if (type == SOCK_STREAM) {
            ends[1] = prepared(accept(first, NULL, NULL));
        } else {
            prepared(getsockname(ends[0], (struct sockaddr *)&address, &length));
            prepared(connect(first, (struct sockaddr *)&address, length));
            ends[1] = first;
        }
    }
    prepared(write(ends[1], "x", 1));
    return ends[0];
}

static long argument(const char *text) {
    static char byte;
    static struct iovec vector = {&byte, 1};
    static struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    static int one = 1;
    if (!strcmp(text, "z")) {
        void *zeros = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return prepared((long)zeros);
    }
    if (!strcmp(text, "bad")) return 8;
    if (!strcmp(text, "one")) return (long)&one;
    if (!strcmp(text, "self")) return getpid();
    if (!strcmp(text, "msg")) return (long)&message.msg_hdr;
    if (!strcmp(text, "mmsg")) return (long)&message;
    if (!strcmp(text, "unix")) return connected(AF_UNIX, SOCK_STREAM);
    if (!strcmp(text, "tcp")) return connected(AF_INET, SOCK_STREAM);
    if (!strcmp(text, "udp")) return connected(AF_INET, SOCK_DGRAM);
    if (!strncmp(text, "s:", 2)) return (long)(text + 2);
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 0);
    if (*end || errno) answer(UNPREPARED, EINVAL);
    return (long)number;
}

static long through_int80(long number) {
#ifdef __x86_64__
    long result = number;
    __asm__ volatile("int $0x80" : "+a"(result) : "b"(0), "c"(0), "d"(0) : "memory", "r8", "r9", "r10", "r11");
    int low = (int)result;
    if (low < 0) {
        errno = -low;
        return -1;
    }
    return low;
#else
    (void)number;
    errno = ENOSYS;
    return -1;
#endif
}

static long buffer_changes(int socket, int option) {
    int before, after, wanted = 4096;
    socklen_t length = sizeof before;
    prepared(getsockopt(socket, SOL_SOCKET, option, &before, &length));
    if (setsockopt(socket, SOL_SOCKET, option, &wanted, sizeof wanted) < 0) return -1;
    prepared(getsockopt(socket, SOL_SOCKET, option, &after, &length));
    return before != after;
}

static void make(char *call, char **words) {
    long a[6] = {0}, result;
    pid_t self = getpid();
    for (int i = 0; i < 6 && words[i]; i++) a[i] = argument(words[i]);
    signal(SIGHUP, SIG_IGN); /* which a clone's child may send at its end */
    signal(SIGINT, SIG_IGN);
    alarm(1);
    if (!strcmp(call, "buffer")) result = buffer_changes((int)a[0], (int)a[1]);
    else if (!strncmp(call, "int80:", 6)) result = through_int80(argument(call + 6));
    else result = syscall(argument(call), a[0], a[1], a[2], a[3], a[4], a[5]);
    int error = errno;
    if (syscall(SYS_getpid) != self) _exit(0); /* the call was a fork, and this is the child */
    answer(result == -1 && error ? FAILED : RETURNED, result == -1 && error ? error : result);
}

static void one(char *id, char *call, char **words) {
    int ends[2];
    if (pipe(ends)) exit(2);
    pid_t child = fork();
    if (child < 0) exit(2);
    if (child == 0) {
        close(ends[0]);
        answers = ends[1];
        errno = 0;
        make(call, words);
    }
    close(ends[1]);
    struct answer answer;
    ssize_t got = read(ends[0], &answer, sizeof answer);
    close(ends[0]);
    int status;
    if (waitpid(child, &status, 0) != child) exit(2);
    static const char *const names[] = {"ret", "errno", "unprepared"};
    if (got == sizeof answer) printf("%s %s %ld\n", id, names[answer.kind], answer.value);
    else if (WIFSIGNALED(status)) printf("%s signal %d\n", id, WTERMSIG(status));
    else printf("%s exit %d\n", id, WEXITSTATUS(status));
    fflush(stdout);
}

int main(void) {
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        char *words[10] = {0};
        int count = 0;
        for (char *word = strtok(line, " \n"); word && count < 9; word = strtok(NULL, " \n")) words[count++] = word;
        if (count < 2) return 2;
        one(words[0], words[1], words + 2);
    }
    return 0;
}
