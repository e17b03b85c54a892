/*
 * Divide: replies with the quotient of the message's two numbers. For tests.
 *
 *   message  0: dividend (32 bits, signed, big-endian), replaced by the quotient
 *            4: divisor (32 bits, signed, big-endian)
 *
 * A divisor of 0 stops the handler with cause `divide_by_zero`; -2^31 divided
 * by -1 with cause `overflow`.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 8)
        return ASHWAY_PASS;
    int dividend = (int)msg_load32be(0);
    int divisor = (int)msg_load32be(4);
    msg_store32be(0, (unsigned)(dividend / divisor));
    return ASHWAY_REPLY;
}
