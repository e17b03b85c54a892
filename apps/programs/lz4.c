/*
 * Decodes an LZ4 block (the LZ4 block format, lz4_Block_format.md).
 *
 *   request  2: the block
 *   reply    0: length of the decoded data (16 bits, big-endian)
 *            2: the block as it was
 *
 * The application finds all of it in `decoded`. A block that is malformed or
 * needs more than 4096 bytes goes to the host's stack.
 */
#include <ashway.h>

#define LONGEST 2048
#define ROOM 4096

static unsigned char block[LONGEST];
ASHWAY_SHARED unsigned char decoded[ROOM];

/* Returns the decoded length, or -1. */
static int decode(unsigned len)
{
    unsigned from = 0, to = 0;
    while (from < len) {
        unsigned token = block[from++], more;

        unsigned literals = token >> 4;
        if (literals == 15)
            do {
                if (from >= len)
                    return -1;
                more = block[from++];
                literals += more;
            } while (more == 255);
        if (literals > len - from || literals > ROOM - to)
            return -1;
        for (; literals > 0; literals--)
            decoded[to++] = block[from++];
        if (from == len)
            return (int)to; /* The last sequence has no match. */

        if (len - from < 2)
            return -1;
        unsigned back = block[from] | (unsigned)block[from + 1] << 8;
        from += 2;
        if (back == 0 || back > to)
            return -1;
        unsigned match = token & 15;
        if (match == 15)
            do {
                if (from >= len)
                    return -1;
                more = block[from++];
                match += more;
            } while (more == 255);
        match += 4;
        if (match > ROOM - to)
            return -1;
        /* Byte by byte: a match can overlap what it makes. */
        for (; match > 0; match--, to++)
            decoded[to] = decoded[to - back];
    }
    return -1;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 2 || len - 2 > LONGEST)
        return ASHWAY_PASS;
    unsigned bytes = (unsigned)len - 2;
    msg_read(2, block, bytes);
    int made = decode(bytes);
    if (made < 0)
        return ASHWAY_PASS;
    msg_store16be(0, (unsigned)made);
    return ASHWAY_REPLY;
}
