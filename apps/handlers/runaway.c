/*
 * Runaway: loops for ever when the message begins with 'R', echoes otherwise.
 *
 * Its budget ends it with cause `fuel`, named with the line of the loop.
 */
#include <ashway.h>

/* Volatile, so that the compiler keeps the loop's body: how far it came. */
ASHWAY_SHARED volatile unsigned turns;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len > 0 && msg_load8(0) == 'R') {
        for (;;)
            turns++;
    }
    return ASHWAY_REPLY;
}
