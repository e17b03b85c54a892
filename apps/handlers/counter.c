/*
 * Remote increment: adds the request's number to a counter in memory and
 * replies with the sum.
 *
 *   request  0: number (32 bits, big-endian); what follows is sent back as it is
 *   reply    0: the counter after the addition (32 bits, big-endian)
 *
 * The sum wraps at 2^32. The parameter `step` multiplies every number. Messages
 * too short for a number go to the host's stack.
 *
 * Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), the remote increment of
 * section V.
 */
#include <ashway.h>

ASHWAY_PARAM(step, 1);

/* The application reads it by this name in its own mapping. */
ASHWAY_SHARED unsigned counter;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    counter += msg_load32be(0) * (unsigned)ashway_param_step;
    msg_store32be(0, counter);
    return ASHWAY_REPLY;
}
