/*
 * A hostile application, for tests: takes the messages of the inbox handler, always
 * claims to sleep, and has made the descriptor that the node wakes it by one that
 * blocks and is full, as far as it can.
 *
 *     ashway handler map inbox --endpoint -- deaf_app
 *
 * Prints `deaf` when it has. It may lose its own messages; it must not hold up the node.
 */
#include <ashway_app.h>

#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

static int has_room(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    return poll(&room, 1, 0) == 1 && room.revents == POLLOUT;
}

/* Fills it, whether it is a counter, a pipe or a socket. */
static void fill(int fd)
{
    const uint64_t most = UINT64_MAX - 1;
    while (has_room(fd) && write(fd, &most, sizeof most) > 0)
        ;
}

int main(void)
{
    struct ashway_memory memory;
    struct ashway_endpoint inbox;
    char name[32];

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    if (ashway_endpoint_open(&inbox, &memory) != 0)
        err(1, "there is no endpoint (started with `--endpoint`?)");
    signal(SIGPIPE, SIG_IGN);
    /* The memory's descriptor, too. */
    for (int fd = 3; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0)
            fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    fill(inbox.event);
    /* The other end of a pipe can be had so. */
    snprintf(name, sizeof name, "/proc/self/fd/%d", inbox.event);
    int other = open(name, O_WRONLY | O_NONBLOCK);
    if (other >= 0)
        fill(other);
    puts("deaf");
    fflush(stdout);
    for (;;) {
        unsigned len;
        while (ashway_endpoint_next(&inbox, &len, NULL) != NULL)
            ashway_endpoint_release(&inbox);
        __atomic_store_n(&inbox.control[16], 1, __ATOMIC_SEQ_CST);
    }
}
