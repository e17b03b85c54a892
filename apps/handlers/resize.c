/*
 * Answers with a message of the length that the request asks for in its first two
 * bytes: shorter, or longer by zeros. Where that is too long, with the request.
 *
 *     printf '\\000\\003abcdef' | nc -u HOST PORT      answers \000 \003 a
 */
#include <ashway.h>

ASHWAY_GROWS(512);

/* Requests that asked for too much. */
ASHWAY_SHARED unsigned refused;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 2)
        return ASHWAY_PASS;
    if (msg_resize(msg_load16be(0)) != ASHWAY_RESIZED)
        refused += 1;
    return ASHWAY_REPLY;
}
