/*
 * Reads a DNS question.
 *
 *   message  a query (RFC 1035, 4.1): header, one question
 *
 * Leaves the name's hash, its labels and the type for the application, which gets
 * the message. Names count as equal in any case (RFC 1035, 2.3.3). Anything but a
 * well-formed query with one question of class IN goes to the host's stack.
 */
#include <ashway.h>

#define HEADER 12
#define LONGEST_NAME 255

ASHWAY_SHARED unsigned last_hash;
ASHWAY_SHARED unsigned last_type;
ASHWAY_SHARED unsigned last_labels;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned end = (unsigned)len;
    if (end < HEADER + 5)
        return ASHWAY_PASS;
    unsigned flags = msg_load16be(2);
    /* QR and OPCODE 0, one question, no records but perhaps additional ones. */
    if ((flags & 0xf800) != 0 || msg_load16be(4) != 1 || msg_load32be(6) != 0)
        return ASHWAY_PASS;

    unsigned at = HEADER, labels = 0, hash = 2166136261u;
    for (;;) {
        unsigned label = msg_load8(at++);
        if (label == 0)
            break;
        /* A pointer, which has nothing to point to in a first name, or too long. */
        if (label > 63 || at + label + 5 > end || at + label - HEADER >= LONGEST_NAME)
            return ASHWAY_PASS;
        labels++;
        hash = (hash ^ label) * 16777619u;
        for (unsigned last = at + label; at < last; at++) {
            unsigned c = msg_load8(at);
            if (c - 'A' < 26)
                c += 'a' - 'A';
            hash = (hash ^ c) * 16777619u;
        }
    }
    if (at + 4 > end || msg_load16be(at + 2) != 1)
        return ASHWAY_PASS;
    last_hash = hash;
    last_type = msg_load16be(at);
    last_labels = labels;
    return ASHWAY_DELIVER;
}
