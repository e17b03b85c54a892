// both: message_bounds at here. Answers as many bytes as the sender says it has sent (RFC 6520, and one server in six of 2014).
#include <ashway.h>

static char answer[65536];

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned claimed = msg_load16be(2);
    msg_read(0, answer, claimed); /* here */
    msg_write(0, answer, claimed);
    return ASHWAY_REPLY;
}
