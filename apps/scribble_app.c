/*
 * A hostile application, for tests: writes random bytes over the whole memory
 * of its handler, for ever, while messages arrive.
 *
 *     ashway handler map counter -- scribble_app
 *
 * Prints `scribbled` after the first time over. It may spoil what its handler
 * answers; it must not harm the node, another handler, or any count.
 */
#include <ashway_app.h>

#include <err.h>
#include <stdint.h>
#include <stdio.h>

/* George Marsaglia's xorshift64: fast, and never 0. */
static uint64_t next(uint64_t x)
{
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

int main(void)
{
    struct ashway_memory memory;
    uint64_t random = 0x9e3779b97f4a7c15;

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    volatile uint64_t *words = (volatile uint64_t *)memory.base;
    for (int pass = 0;; pass++) {
        for (size_t i = 0; i < memory.bytes / sizeof *words; i++)
            words[i] = random = next(random);
        if (pass == 0) {
            puts("scribbled");
            fflush(stdout);
        }
    }
}
