/*
 * Float: replies with a moving average of the numbers it is sent.
 *
 *   request  0: number (32 bits, big-endian)
 *   reply    0: the average, rounded down (32 bits, big-endian)
 *
 * Floating point has no eBPF counterpart: this handler stays in the user tier
 * and the user is told the line.
 */
#include <ashway.h>

/* The newest number weighs an eighth. */
ASHWAY_SHARED double average;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    average += ((double)msg_load32be(0) - average) / 8;
    msg_store32be(0, (unsigned)average);
    return ASHWAY_REPLY;
}
