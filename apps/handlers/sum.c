/*
 * Sum: adds up all bytes of the message, one by one, and replies with the sum.
 *
 *   reply    0: sum of the message's bytes (32 bits, big-endian)
 *
 * Shows what a loop over message bytes becomes: in neither tier does a call
 * remain in it.
 */
#include <ashway.h>

/* The last message's sum. */
ASHWAY_SHARED unsigned sum;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    unsigned total = 0;
    for (unsigned at = 0; at < (unsigned)len; at++)
        total += msg_load8(at);
    sum = total;
    msg_store32be(0, total);
    return ASHWAY_REPLY;
}
