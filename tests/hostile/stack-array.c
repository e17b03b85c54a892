// both: consume. Writes past an array of its own, over all of its shadow stack: no return address lies there.
#include <ashway.h>

/* Returns into whatever the caller's frame says, on a machine that has one. */
__attribute__((noinline)) static void fill(volatile unsigned *words)
{
    for (int at = 0; at < 16; at++)
        words[at] = 0x41414141;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    volatile unsigned words[4];
    fill(words);
    return ASHWAY_CONSUME;
}
