/*
 * Wild: stores to whatever address the message names. For tests.
 *
 *   message  0: address (32 bits, big-endian)
 *            4: value (32 bits, big-endian)
 *
 * An address in the handler's memory is written and the message echoed; any
 * other stops the handler with cause `memory_bounds`.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 8)
        return ASHWAY_PASS;
    volatile unsigned *address = (volatile unsigned *)msg_load32be(0);
    *address = msg_load32be(4);
    return ASHWAY_REPLY;
}
