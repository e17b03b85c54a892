// both: consume, then consume, then fuel. A table with one bucket that matters: each message makes the next one dearer, until it does not end in time.
#include <ashway.h>

#define MOST 1500
static unsigned keys[MOST], used;

/* The sender knows the hash: all keys are in one chain. */
__attribute__((noinline)) static int find(unsigned key)
{
    for (unsigned at = 0; at < used; at++)
        if (*(volatile unsigned *)&keys[at] == key)
            return 1;
    return 0;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    for (unsigned more = used + 80; used < more && used < MOST;) {
        if (find(used * 64))
            return ASHWAY_DROP;
        keys[used] = used * 64;
        used++;
    }
    return ASHWAY_CONSUME;
}
