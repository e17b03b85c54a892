/*
 * Even: takes the messages whose sequence number is even and leaves the others
 * to the host's stack, as if the handler were not there.
 *
 *   message  0: sequence number (32 bits, big-endian)
 *
 * Shows that a handler decides for each message whether it is its business.
 */
#include <ashway.h>

/* How many messages were taken. */
ASHWAY_SHARED unsigned taken;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4 || (msg_load32be(0) & 1) != 0)
        return ASHWAY_PASS;
    taken++;
    return ASHWAY_CONSUME;
}
