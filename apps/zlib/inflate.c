/*
 * Inflate: zlib's own decoder (RFC 1950, RFC 1951), unchanged, as a handler.
 *
 *   request  0: 8 bytes that the reply fills in
 *            8: a zlib stream, 2040 bytes at most
 *   reply    0: what inflate() returned (32 bits, little-endian; 1 is the end)
 *            4: bytes of output (32 bits, little-endian)
 *            the rest as it was
 *
 * The output is in the shared variable `output`. zlib's sources are not in this
 * repository: `cargo xtask handlers` takes them from the crate `libz-sys` and
 * links adler32.c, inffast.c, inflate.c and inftrees.c to this file.
 */
#include <ashway.h>

#include <zlib.h>

#define LONGEST 2048
#define ROOM 65536

static unsigned char input[LONGEST];
ASHWAY_SHARED unsigned char output[ROOM];

/* All that inflate() asks for: its state and its window, once each message. */
static unsigned char heap[49152] __attribute__((aligned(16)));
static unsigned used;

static voidpf take(voidpf opaque, unsigned items, unsigned size)
{
    unsigned bytes = (items * size + 15) & ~15u;
    (void)opaque;
    if (bytes > sizeof heap - used)
        return Z_NULL;
    used += bytes;
    return heap + used - bytes;
}

static void give_back(voidpf opaque, voidpf address)
{
    (void)opaque;
    (void)address;
}

/* zutil.c, which has more than a decoder needs. */
void zmemcpy(void *to, const void *from, z_size_t len)
{
    __builtin_memcpy(to, from, len);
}

void zmemzero(void *to, z_size_t len)
{
    __builtin_memset(to, 0, len);
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    z_stream stream = {0};
    int result;

    if (len < 8 || len > LONGEST)
        return ASHWAY_PASS;
    msg_read(8, input, len - 8);
    used = 0;
    stream.zalloc = take;
    stream.zfree = give_back;
    stream.next_in = input;
    stream.avail_in = len - 8;
    stream.next_out = output;
    stream.avail_out = ROOM;
    result = inflateInit(&stream);
    if (result == Z_OK)
        result = inflate(&stream, Z_FINISH);
    msg_store32le(0, result);
    msg_store32le(4, ROOM - stream.avail_out);
    return ASHWAY_REPLY;
}
