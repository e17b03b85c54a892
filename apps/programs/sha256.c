/*
 * SHA-256 (FIPS 180-4) of the message.
 *
 *   request  0: any bytes, 32 at least, 2048 at most
 *   reply    0: their digest (32 bytes); the rest as it was
 */
#include <ashway.h>

#define LONGEST 2048

static const unsigned k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static unsigned char bytes[LONGEST + 72];

static unsigned rotr(unsigned x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static unsigned load_be(const unsigned char *p)
{
    return (unsigned)p[0] << 24 | (unsigned)p[1] << 16 | (unsigned)p[2] << 8 | p[3];
}

static void block(unsigned state[8], const unsigned char *p)
{
    unsigned w[64];
    for (int i = 0; i < 16; i++)
        w[i] = load_be(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        unsigned s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        unsigned s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    unsigned a = state[0], b = state[1], c = state[2], d = state[3];
    unsigned e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        unsigned s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
        unsigned t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
        unsigned s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
        unsigned t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned state[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    if (len < 32 || len > LONGEST)
        return ASHWAY_PASS;
    unsigned n = (unsigned)len, padded = (n + 9 + 63) / 64 * 64;
    msg_read(0, bytes, n);
    bytes[n] = 0x80;
    for (unsigned i = n + 1; i < padded; i++)
        bytes[i] = 0;
    for (unsigned i = 0; i < 4; i++)
        bytes[padded - 1 - i] = (unsigned char)(n * 8 >> 8 * i);
    for (unsigned at = 0; at < padded; at += 64)
        block(state, bytes + at);
    for (unsigned i = 0; i < 8; i++)
        msg_store32be(4 * i, state[i]);
    return ASHWAY_REPLY;
}
