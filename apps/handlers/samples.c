/*
 * Samples: a play-out buffer for RTP with 16-bit samples (L16, RFC 3551, section
 * 4.5.11), which come in network order and lie in memory in the host's.
 *
 *   packet   0: 0x80, 1: payload type, 2: sequence number (16 bits, big-endian),
 *            4: timestamp, 8: source (RFC 3550, section 5.1); 12: samples
 *
 * The header says which of 16 slots is the packet's; then the samples go there in one
 * pass, which swaps them and sums what came. Type 127 asks for a slot: as many bytes
 * as it has go back in the place of the request's, the sum in that of the source.
 *
 *     [handler.samples]
 *     file = "samples.wasm"
 *     allow = ["reply", "pipe"]
 */
#include <ashway.h>

ASHWAY_PIPES("cksum16 | bswap16");
ASHWAY_PIPES("bswap16 | cksum16");
enum { IN, OUT };
enum { SUM_IN, SUM_OUT };

enum { HEADER = 12, SLOTS = 16, SAMPLES = 720, ASKED = 127 };

struct slot {
    unsigned sequence;
    unsigned bytes;
    unsigned sum;
    unsigned short samples[SAMPLES];
};

/* The application plays from here. */
ASHWAY_SHARED struct slot slots[SLOTS];

static int deposit(struct slot *slot, unsigned sequence, unsigned bytes)
{
    pipe_set(SUM_IN, 0);
    pipe_read(HEADER, slot->samples, bytes, IN);
    slot->sequence = sequence;
    slot->bytes = bytes;
    slot->sum = (unsigned)pipe_get(SUM_IN);
    return ASHWAY_CONSUME;
}

static int give_back(const struct slot *slot, unsigned sequence, unsigned bytes)
{
    if (slot->sequence != sequence || slot->bytes != bytes)
        return ASHWAY_DROP;
    pipe_set(SUM_OUT, 0);
    pipe_write(HEADER, slot->samples, bytes, OUT);
    msg_store32be(8, (unsigned)pipe_get(SUM_OUT));
    return ASHWAY_REPLY;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < HEADER || msg_load8(0) != 0x80)
        return ASHWAY_PASS;
    unsigned bytes = (unsigned)len - HEADER;
    if (bytes > sizeof slots[0].samples)
        return ASHWAY_DROP;
    unsigned sequence = msg_load16be(2);
    struct slot *slot = &slots[sequence % SLOTS];
    if ((msg_load8(1) & 0x7f) == ASKED)
        return give_back(slot, sequence, bytes);
    return deposit(slot, sequence, bytes);
}
