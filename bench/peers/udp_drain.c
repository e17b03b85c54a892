/*
 * Takes what comes to a UDP port and does nothing with it, as fast as sockets
 * allow: up to 64 datagrams a call, and no sleep between two calls. What `ashway
 * bench drain` compares with, which counts by the kernel's own counters. Prints
 * `ready`; ends when it is killed.
 *
 * Built by `ashway bench drain` (bench/src/peers.rs) with -O3.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BATCH = 64, BYTES = 2048, BUFFER = 8 << 20 };

static char messages[BATCH][BYTES];
static struct iovec places[BATCH];
static struct mmsghdr heads[BATCH];

int main(int argc, char **argv)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), buffer = BUFFER;

    if (argc != 2)
        errx(2, "usage: udp_drain PORT");
    own.sin_port = htons(atoi(argv[1]));
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0)
        err(1, "cannot listen");
    /* Beyond the system's limit for root; without it, up to the limit. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    for (int i = 0; i < BATCH; i++) {
        places[i] = (struct iovec){messages[i], BYTES};
        heads[i].msg_hdr = (struct msghdr){.msg_iov = &places[i], .msg_iovlen = 1};
    }
    puts("ready");
    fflush(stdout);
    for (;;)
        if (recvmmsg(fd, heads, BATCH, MSG_DONTWAIT, NULL) < 0 && errno != EAGAIN)
            err(1, "cannot receive");
}
