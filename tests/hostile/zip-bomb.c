// both: memory_bounds at here. Unpacks runs of (count, byte) to a buffer whose length it never compares.
#include <ashway.h>

/* The last 256 bytes of 128 KiB. */
static volatile char *volatile buffer = (volatile char *)(131072 - 256);

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    volatile char *to = buffer;
    for (int at = 0; at + 1 < len; at += 2) {
        unsigned count = msg_load8(at) + 40;
        while (count--)
            *to++ = msg_load8(at + 1); /* here */
    }
    return ASHWAY_CONSUME;
}
