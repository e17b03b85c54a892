/*
 * Decrypt: copies 4 KiB, decrypting them on the way, and replies with their
 * checksum, all within the default budget of 50 us.
 *
 *   request  0: key (16 bytes), first counter block (16 bytes), cipher text for
 *               the beginning of `sealed` (none, or up to 4 KiB)
 *   reply    0: Internet checksum of the plain text (16 bits, big-endian; RFC
 *               1071); the rest as it was
 *
 * `sealed` keeps what it had behind the text; the application can write it, and
 * reads `opened`. Shorter and longer messages go to the host's stack.
 *
 * AES-128 in counter mode (FIPS 197; NIST SP 800-38A, 6.5), a word at a time by
 * tables (Daemen & Rijmen, "AES Proposal: Rijndael", 5.2.1): 26 to 28 us in
 * either tier on a Zen 5, so that a cipher made for plain code (ChaCha20) is not
 * needed.
 *
 * A library would do better in what no example can: the time of a table's look-up
 * depends on the key through the cache, so that whoever shares it can learn the
 * key (Bernstein 2005); nothing says that the text is the sender's (GCM does);
 * and the counter is the block's last word alone.
 *
 * Source of the task: Wallach, Engler & Kaashoek 1996 ("ASHs"), a time limit that
 * is enough to copy, decrypt and checksum a message of 4 KB.
 */
#include <ashway.h>

#define BLOCK 16
#define HEADER (2 * BLOCK)
#define BYTES 4096
#define ROUNDS 10

typedef unsigned char u8;
typedef unsigned u32;

ASHWAY_SHARED u8 sealed[BYTES];
ASHWAY_SHARED u8 opened[BYTES];

/* What SubBytes, and SubBytes with MixColumns in each row, make of a byte. */
static u8 sub[256];
static u32 mix[4][256];

static u32 rotate(u32 word, int bits)
{
    return word << bits | word >> (32 - bits);
}

/* Twice the number, in the field of FIPS 197, section 4. */
static u8 twice(u8 x)
{
    return (u8)(x << 1 ^ (x >> 7) * 0x1b);
}

/* Whether the tables are there. */
static int ready;

/* For all powers of 3, so for all numbers but 0, with their inverses. */
static void make_tables(void)
{
    u8 power = 1, inverse = 1;

    do {
        power ^= twice(power);
        /* A division by 3. */
        inverse ^= inverse << 1;
        inverse ^= inverse << 2;
        inverse ^= inverse << 4;
        inverse ^= (inverse >> 7) * 0x09;
        u32 twofold = inverse | (u32)inverse << 8;
        sub[power] = (u8)(0x63 ^ twofold ^ twofold >> 7 ^ twofold >> 6 ^ twofold >> 5 ^ twofold >> 4);
    } while (power != 1);
    sub[0] = 0x63;
    for (int i = 0; i < 256; i++) {
        u32 one = sub[i], two = twice(sub[i]);
        mix[0][i] = two | one << 8 | one << 16 | (two ^ one) << 24;
        for (int row = 1; row < 4; row++)
            mix[row][i] = rotate(mix[0][i], 8 * row);
    }
}

static u32 substitute(u32 a, u32 b, u32 c, u32 d)
{
    return sub[a & 0xff] | (u32)sub[b >> 8 & 0xff] << 8 | (u32)sub[c >> 16 & 0xff] << 16 |
           (u32)sub[d >> 24] << 24;
}

/* Words have the first byte lowest. */
static void expand(u32 keys[4 * (ROUNDS + 1)], const u8 key[BLOCK])
{
    u8 round = 1;

    __builtin_memcpy(keys, key, BLOCK);
    for (int i = 4; i < 4 * (ROUNDS + 1); i++) {
        u32 word = keys[i - 1];
        if (i % 4 == 0) {
            word = rotate(word, 24);
            word = substitute(word, word, word, word) ^ round;
            round = twice(round);
        }
        keys[i] = keys[i - 4] ^ word;
    }
}

static u32 column(u32 a, u32 b, u32 c, u32 d)
{
    return mix[0][a & 0xff] ^ mix[1][b >> 8 & 0xff] ^ mix[2][c >> 16 & 0xff] ^ mix[3][d >> 24];
}

static void encrypt(u32 into[4], const u32 from[4], const u32 *key)
{
    u32 a = from[0] ^ key[0], b = from[1] ^ key[1], c = from[2] ^ key[2], d = from[3] ^ key[3];

    for (int round = 1; round < ROUNDS; round++) {
        key += 4;
        u32 e = column(a, b, c, d) ^ key[0], f = column(b, c, d, a) ^ key[1];
        u32 g = column(c, d, a, b) ^ key[2], h = column(d, a, b, c) ^ key[3];
        a = e, b = f, c = g, d = h;
    }
    into[0] = substitute(a, b, c, d) ^ key[4];
    into[1] = substitute(b, c, d, a) ^ key[5];
    into[2] = substitute(c, d, a, b) ^ key[6];
    into[3] = substitute(d, a, b, c) ^ key[7];
}

static void decrypt(u8 *to, const u8 *from, const u32 *keys, u32 counter[4])
{
    u32 stream[4], text[4];

    for (int at = 0; at < BYTES; at += BLOCK) {
        encrypt(stream, counter, keys);
        __builtin_memcpy(text, from + at, BLOCK);
        for (int i = 0; i < 4; i++)
            text[i] ^= stream[i];
        __builtin_memcpy(to + at, text, BLOCK);
        /* The last word is big-endian. */
        counter[3] = __builtin_bswap32(__builtin_bswap32(counter[3]) + 1);
    }
}

/* RFC 1071, whose sum is the same in either byte order but for its own. */
static u32 checksum(const u8 *bytes)
{
    unsigned long long sum = 0;
    u32 word;

    for (int at = 0; at < BYTES; at += 4) {
        __builtin_memcpy(&word, bytes + at, 4);
        sum += word;
    }
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~__builtin_bswap16((unsigned short)sum) & 0xffff;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    struct {
        u8 key[BLOCK];
        u32 counter[4];
    } request;
    u32 keys[4 * (ROUNDS + 1)];

    if (len < HEADER || len > HEADER + BYTES)
        return ASHWAY_PASS;
    msg_read(0, &request, HEADER);
    msg_read(HEADER, sealed, (u32)(len - HEADER));
    if (!ready) {
        make_tables();
        /* Not before: who is stopped in there finds no half of a table. */
        __atomic_signal_fence(__ATOMIC_RELEASE);
        ready = 1;
    }
    expand(keys, request.key);
    decrypt(opened, sealed, keys, request.counter);
    msg_store16be(0, checksum(opened));
    return ASHWAY_REPLY;
}
