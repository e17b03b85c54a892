// both: consume. Reads all of its memory for what others left there: it is as it was made, zeros and its own.
// memory 0x1fff0: 00000000000000000000000000000000
#include <ashway.h>

/* Behind the stack and the data; 128 KiB in all. */
#define FROM 32768
#define END 131072

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned long long any = 0;
    for (unsigned at = FROM; at < END; at += 8)
        any |= *(volatile unsigned long long *)at;
    return any ? ASHWAY_DROP : ASHWAY_CONSUME;
}
