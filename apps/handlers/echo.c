/*
 * Echo: every message goes back to its sender unchanged.
 *
 * The smallest handler that does something. Copy it to start a new one.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    return ASHWAY_REPLY;
}
