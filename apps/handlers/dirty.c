/*
 * Dirty: changes the message, then traps. For tests.
 *
 * The message must be counted as `aborted_dirty` and dropped: passed on, it
 * would be something nobody sent. An empty message cannot be changed, so there
 * the handler traps clean.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len > 0)
        msg_store8(0, 0xee);
    __builtin_trap();
}
