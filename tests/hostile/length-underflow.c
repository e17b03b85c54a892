// both: message_bounds at here. A length less a header that is longer than the message: 4 GiB less some bytes.
#include <ashway.h>

static unsigned char sum;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned rest = (unsigned)len - 80;
    for (unsigned at = 0; at < rest; at++)
        sum += msg_load8(at); /* here */
    return ASHWAY_CONSUME;
}
