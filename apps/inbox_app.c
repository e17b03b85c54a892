/*
 * The application of the inbox handler: for each line `N` on standard input, takes
 * N messages out of the endpoint and prints how many bytes they had, the count that
 * the handler wrote into the last, and how many were not one more than the one
 * before.
 *
 *     ashway handler map inbox --endpoint -- inbox_app poll
 *     ashway handler map inbox --endpoint -- inbox_app sleep
 *
 * `poll` looks at the ring again and again: the message is there as soon as its
 * bytes are. `sleep` waits for its descriptor, and costs nothing meanwhile.
 */
#include <ashway_app.h>

#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct ashway_memory memory;
    struct ashway_endpoint inbox;
    int sleeps = argc == 2 && strcmp(argv[1], "sleep") == 0;

    if (!sleeps && (argc != 2 || strcmp(argv[1], "poll") != 0))
        errx(2, "say `poll` or `sleep`");
    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    if (ashway_endpoint_open(&inbox, &memory) != 0)
        err(1, "there is no endpoint (started with `--endpoint`?)");
    puts("open");
    fflush(stdout);

    char line[64];
    unsigned last = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long bytes = 0, astray = 0;
        for (long left = strtol(line, NULL, 10); left > 0; left--) {
            const void *message;
            unsigned len;
            while ((message = ashway_endpoint_next(&inbox, &len, NULL)) == NULL) {
                if (sleeps && ashway_endpoint_wait(&inbox, -1) < 0)
                    err(1, "cannot sleep");
            }
            unsigned number = 0;
            if (len >= sizeof number) {
                memcpy(&number, message, sizeof number);
                number = ntohl(number);
            }
            astray += number != last + 1;
            last = number;
            bytes += len;
            ashway_endpoint_release(&inbox);
        }
        printf("%lu %u %lu\n", bytes, last, astray);
        fflush(stdout);
    }
    ashway_memory_close(&memory);
    return 0;
}
