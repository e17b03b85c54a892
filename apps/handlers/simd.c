/*
 * SIMD: replies with the sums of two vectors.
 *
 *   request  0: four numbers, 16: four numbers (32 bits each, little-endian)
 *   reply    0: the four sums; the rest as it was
 *
 * eBPF has no vectors: this handler stays in the user tier and the user is told
 * the line.
 */
#include <ashway.h>

typedef int four __attribute__((vector_size(16)));

__attribute__((target("simd128"))) ASHWAY_HANDLER int on_rx(int len, int channel)
{
    four a, b;

    if (len < 32)
        return ASHWAY_PASS;
    msg_read(0, &a, sizeof a);
    msg_read(16, &b, sizeof b);
    a += b;
    msg_write(0, &a, sizeof a);
    return ASHWAY_REPLY;
}
