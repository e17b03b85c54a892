/* Logs what it gets, as one line, and a second one; then answers, or divides by 0. */
#include <ashway.h>

static char line[128];

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned bytes = (unsigned)len < sizeof line ? (unsigned)len : sizeof line;
    msg_read(0, line, bytes);
    ashway_log(line, bytes);
    ashway_log("said", 4);
    if (bytes > 0 && line[0] == '/')
        return 1 / (line[0] - '/');
    return ASHWAY_REPLY;
}
