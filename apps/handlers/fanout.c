/*
 * Fan-out: one request, a message of its own to each of N peers, and a reply.
 *
 *   request  0: how many peers (8 bits)
 *            1: anything
 *   to a peer  0: its number (32 bits, big-endian); then what stands in the
 *              request behind its first byte
 *   reply    the request, with the number of peers that were sent to
 *
 *     [handler.fanout]
 *     file = "fanout.wasm"
 *     allow = ["reply", "send"]
 *     channels = ["10.0.0.2:9000", "10.0.0.3:9000"]
 *
 * A request of one byte, 255, is cloned to the first peer as it is.
 *
 * Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), section II: message initiation.
 */
#include <ashway.h>

static unsigned char message[4096];

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 1)
        return ASHWAY_PASS;
    unsigned wanted = msg_load8(0), sent = 0;
    if (len == 1 && wanted == 255)
        return msg_clone(0) == ASHWAY_SENT ? ASHWAY_CONSUME : ASHWAY_DROP;

    unsigned more = (unsigned)len - 1;
    if (more > sizeof message - 4)
        more = sizeof message - 4;
    msg_read(1, message + 4, more);
    for (unsigned peer = 0; peer < wanted; peer++) {
        for (int i = 0; i < 4; i++)
            message[i] = (unsigned char)(peer >> (24 - 8 * i));
        sent += send(peer, message, 4 + more) == ASHWAY_SENT;
    }
    msg_store8(0, sent);
    return ASHWAY_REPLY;
}
