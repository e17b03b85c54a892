/*
 * The application of the seats handler: for each line `1` on standard input takes
 * the hall, for each line `0` gives it back, and prints a checksum of the
 * handler's memory without the word that it holds the hall by.
 *
 *     ashway handler map seats -- seats_app
 */
#include <ashway_app.h>

#include <err.h>
#include <stdio.h>

/* Bytes that the module declares (`--max-memory`). */
enum { GUEST = 131072 };

/* FNV-1a, of what is not the word at `held`. */
static unsigned checksum(const volatile unsigned char *memory, const volatile unsigned char *held)
{
    unsigned sum = 2166136261u;
    for (unsigned i = 0; i < GUEST; i++)
        if (memory + i < held || memory + i >= held + sizeof(unsigned))
            sum = (sum ^ memory[i]) * 16777619u;
    return sum;
}

int main(void)
{
    struct ashway_memory memory;

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    volatile unsigned *held = ashway_symbol(&memory, "held");
    if (held == NULL)
        errx(1, "the handler shares no variable named `held`");

    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (line[0] == '0' || line[0] == '1')
            *held = line[0] == '1';
        const volatile unsigned char *begin = memory.base;
        printf("%u\n", checksum(begin, (const volatile unsigned char *)held));
        fflush(stdout);
    }
    ashway_memory_close(&memory);
    return 0;
}
