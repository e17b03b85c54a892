/*
 * Outside: reads the message where the message says. For tests.
 *
 *   message  0: offset (32 bits, big-endian), replaced by the number found there
 *
 * An offset whose four bytes are not all in the message or its headers stops the
 * handler with cause `message_bounds`; -400 is in front of any header.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    msg_store32be(0, msg_load32be(msg_load32be(0)));
    return ASHWAY_REPLY;
}
