/*
 * CRC-32 (IEEE 802.3) of the message, a byte at a time by a table.
 *
 *   request  0: any bytes, 4 at least, 2048 at most
 *   reply    0: their CRC (32 bits, big-endian); the rest as it was
 */
#include <ashway.h>

#define LONGEST 2048

/* One entry: the polynomial 0xedb88320 (reflected) divided into a byte. */
#define STEP(c) (((c) >> 1) ^ (0xedb88320u & (0u - ((c) & 1u))))
#define STEP4(c) STEP(STEP(STEP(STEP(c))))

static unsigned table[256];
static unsigned char bytes[LONGEST];

static void make_table(void)
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned entry = STEP4(i);
        table[i] = STEP4(entry);
    }
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4 || len > LONGEST)
        return ASHWAY_PASS;
    if (table[1] == 0)
        make_table();
    msg_read(0, bytes, (unsigned)len);
    unsigned crc = 0xffffffffu;
    for (int i = 0; i < len; i++)
        crc = table[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
    msg_store32be(0, ~crc);
    return ASHWAY_REPLY;
}
