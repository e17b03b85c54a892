/*
 * What the two versions of a ledger have in common: they number what they answer, and
 * what they know of it outlives each of them.
 *
 * A request has eight bytes, the number of its flow and its place in it, both
 * big-endian. The answer has `2 * swaps + VERSION - 1` in place of the flow. A
 * request of 16 bytes is answered with what is in the ledger.
 */
#include <ashway.h>

#define FLOWS 64

struct ledger {
    unsigned swaps;       /* how often a version has taken over */
    unsigned answered[2]; /* by each version */
    unsigned out_of_place;
    unsigned next[FLOWS];
};

ASHWAY_STATE struct ledger ledger;
ASHWAY_STATE_VERSION(VERSION);

/* Begins anew with each version. */
static volatile unsigned since_swap;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    since_swap++;
    if (len == 16) {
        msg_store32be(0, ledger.answered[0]);
        msg_store32be(4, ledger.answered[1]);
        msg_store32be(8, ledger.out_of_place);
        msg_store32be(12, since_swap);
        return ASHWAY_REPLY;
    }
    unsigned flow = msg_load32be(0) % FLOWS;
    unsigned place = msg_load32be(4);
    if (place != 0 && place != ledger.next[flow])
        ledger.out_of_place++;
    ledger.next[flow] = place + 1;
    ledger.answered[VERSION - 1]++;
    msg_store32be(0, 2 * ledger.swaps + VERSION - 1);
    return ASHWAY_REPLY;
}
