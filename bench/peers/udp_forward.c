/*
 * A UDP relay as one would write it with sockets: what `ashway bench forward`
 * compares with. Receives on 10.0.1.1:9000, sends on to 10.0.3.2:9001 from
 * 10.0.3.1:7000. Prints `ready`; ends when it is killed.
 *
 * Built by `ashway bench forward` (bench/src/peers.rs) with -O3.
 */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <sys/socket.h>

static struct sockaddr_in address(const char *text, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        errx(2, "no address: %s", text);
    return address;
}

static int socket_at(const char *text, int port)
{
    struct sockaddr_in own = address(text, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0)
        err(1, "cannot bind %s:%d", text, port);
    return fd;
}

int main(void)
{
    struct sockaddr_in next = address("10.0.3.2", 9001);
    int in = socket_at("10.0.1.1", 9000), out = socket_at("10.0.3.1", 7000);

    if (connect(out, (struct sockaddr *)&next, sizeof(next)) != 0)
        err(1, "cannot connect");
    puts("ready");
    fflush(stdout);
    for (;;) {
        static char message[65536];
        ssize_t len = recv(in, message, sizeof(message), 0);

        /* A datagram may be lost; a full queue out loses this one. */
        if (len >= 0)
            send(out, message, len, 0);
    }
}
