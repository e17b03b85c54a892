/*
 * The application of the samples handler: for each line with a slot's number on
 * standard input prints its sequence number, its sum, its bytes and a hash of its
 * samples as they lie in memory.
 *
 *     ashway handler map samples -- samples_app
 */
#include <ashway_app.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 16, SAMPLES = 720 };

struct slot {
    unsigned sequence;
    unsigned bytes;
    unsigned sum;
    unsigned short samples[SAMPLES];
};

int main(void)
{
    struct ashway_memory memory;

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    volatile struct slot *slots = ashway_symbol(&memory, "slots");
    if (slots == NULL)
        errx(1, "the handler shares no variable named `slots`");

    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        volatile struct slot *slot = &slots[strtoul(line, NULL, 10) % SLOTS];
        const volatile unsigned char *bytes = (const volatile unsigned char *)slot->samples;
        unsigned hash = 2166136261u; /* FNV-1a */
        for (unsigned i = 0; i < slot->bytes && i < sizeof slot->samples; i++)
            hash = (hash ^ bytes[i]) * 16777619u;
        printf("%u %u %u %u\n", slot->sequence, slot->sum, slot->bytes, hash);
        fflush(stdout);
    }
    ashway_memory_close(&memory);
    return 0;
}
