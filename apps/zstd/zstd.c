/*
 * zstd's own decoder (RFC 8878), unchanged, as a handler.
 *
 *   request  0: 8 bytes that the reply fills in
 *            8: a frame, 2040 bytes at most
 *   reply    0: the error's number (32 bits, little-endian; 0 is none)
 *            4: bytes of output (32 bits, little-endian)
 *            the rest as it was
 *
 * The output is in the shared variable `output`. zstd's sources are not in this
 * repository: `cargo xtask programs` takes them from the crate `zstd-sys`
 * (apps/libraries) and links what a decoder is made of to this file. zstd's own
 * functions keep its state in memory that it is given.
 */
#include <ashway.h>

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#define LONGEST 2048
#define ROOM 65536

static unsigned char input[LONGEST];
ASHWAY_SHARED unsigned char output[ROOM];

static unsigned char workspace[196608] __attribute__((aligned(8)));

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    ZSTD_DCtx *context;
    size_t result;

    if (len < 8 || len > LONGEST)
        return ASHWAY_PASS;
    msg_read(8, input, len - 8);
    context = ZSTD_initStaticDCtx(workspace, sizeof workspace);
    if (!context)
        return ASHWAY_ABORT;
    result = ZSTD_decompressDCtx(context, output, ROOM, input, len - 8);
    msg_store32le(0, ZSTD_getErrorCode(result));
    msg_store32le(4, ZSTD_isError(result) ? 0 : (unsigned)result);
    return ASHWAY_REPLY;
}
