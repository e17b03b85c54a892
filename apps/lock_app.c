/*
 * The application of the lock handler: for each line `LOCK` on standard input,
 * prints who holds that lock; for each line `LOCK OWNER`, gives it to OWNER (0
 * frees it) and prints who held it before.
 *
 *     ashway handler map lock -- lock_app
 *
 * Here the control transfer goes the other way round: what this process writes
 * decides what the handler answers to the next remote client. There is no lock
 * around the exchange with the handler, so a remote client may come in between;
 * the last one to write has it.
 */
#include <ashway_app.h>

#include <err.h>
#include <stdio.h>

enum { LOCKS = 256 };

int main(void)
{
    struct ashway_memory memory;

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    volatile unsigned *locks = ashway_symbol(&memory, "locks");
    if (locks == NULL)
        errx(1, "the handler shares no variable named `locks`");

    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned lock, owner;
        int numbers = sscanf(line, "%u %u", &lock, &owner);
        if (numbers < 1 || lock >= LOCKS)
            errx(1, "expected a lock from 0 to %d, and perhaps an owner", LOCKS - 1);
        unsigned before = locks[lock];
        if (numbers == 2)
            locks[lock] = owner;
        printf("%u\n", before);
        fflush(stdout);
    }
    ashway_memory_close(&memory);
    return 0;
}
