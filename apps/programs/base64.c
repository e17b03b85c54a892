/*
 * Base64 (RFC 4648, section 4) in place: the message has room for the result.
 *
 *   request  0: 4 * n bytes, n 512 at most; the first 3 * n are encoded
 *   reply    0: the 4 * n characters
 */
#include <ashway.h>

#define MOST 512

static const char alphabet[64] = {
    'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P',
    'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f',
    'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v',
    'w', 'x', 'y', 'z', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+', '/',
};

static unsigned char plain[3 * MOST];
static char encoded[4 * MOST];

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned bytes = (unsigned)len, n = bytes / 4;
    if (bytes % 4 != 0 || n > MOST)
        return ASHWAY_PASS;
    msg_read(0, plain, 3 * n);
    const unsigned char *from = plain;
    char *to = encoded;
    for (; n > 0; n--) {
        unsigned bits = (unsigned)from[0] << 16 | (unsigned)from[1] << 8 | from[2];
        to[0] = alphabet[bits >> 18];
        to[1] = alphabet[bits >> 12 & 63];
        to[2] = alphabet[bits >> 6 & 63];
        to[3] = alphabet[bits & 63];
        from += 3;
        to += 4;
    }
    msg_write(0, encoded, bytes);
    return ASHWAY_REPLY;
}
