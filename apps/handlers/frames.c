/*
 * Frames: replies with a hash of the message, the last number first.
 *
 *   request  0: 64 bytes at least
 *   reply    0: the hash (32 bits, big-endian); the rest as it was
 *
 * It reads 2,048 numbers before it uses the first: so many local variables are
 * alive at once, and a promoted handler has 15.7 KiB for its frames. This one
 * stays in the user tier and the user is told why.
 */
#include <ashway.h>

/* READ is done for 2,048 names, n000 to n7ff; USE for the same, last first. */
#define READ16(n)                                                                                \
    READ(n##0) READ(n##1) READ(n##2) READ(n##3) READ(n##4) READ(n##5) READ(n##6) READ(n##7)      \
    READ(n##8) READ(n##9) READ(n##a) READ(n##b) READ(n##c) READ(n##d) READ(n##e) READ(n##f)
#define READ256(n)                                                                               \
    READ16(n##0) READ16(n##1) READ16(n##2) READ16(n##3)                                          \
    READ16(n##4) READ16(n##5) READ16(n##6) READ16(n##7)                                          \
    READ16(n##8) READ16(n##9) READ16(n##a) READ16(n##b)                                          \
    READ16(n##c) READ16(n##d) READ16(n##e) READ16(n##f)
#define USE16(n)                                                                                 \
    USE(n##f) USE(n##e) USE(n##d) USE(n##c) USE(n##b) USE(n##a) USE(n##9) USE(n##8)              \
    USE(n##7) USE(n##6) USE(n##5) USE(n##4) USE(n##3) USE(n##2) USE(n##1) USE(n##0)
#define USE256(n)                                                                                \
    USE16(n##f) USE16(n##e) USE16(n##d) USE16(n##c)                                              \
    USE16(n##b) USE16(n##a) USE16(n##9) USE16(n##8)                                              \
    USE16(n##7) USE16(n##6) USE16(n##5) USE16(n##4)                                              \
    USE16(n##3) USE16(n##2) USE16(n##1) USE16(n##0)

#define READ(name) unsigned name = msg_load32le(at = (at * 5 + 7) % 61);
#define USE(name) hash = (hash ^ name) * 0x01000193;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned at = 0, hash = 0x811c9dc5;

    if (len < 64)
        return ASHWAY_PASS;
    READ256(n0) READ256(n1) READ256(n2) READ256(n3)
    READ256(n4) READ256(n5) READ256(n6) READ256(n7)
    USE256(n7) USE256(n6) USE256(n5) USE256(n4)
    USE256(n3) USE256(n2) USE256(n1) USE256(n0)
    msg_store32be(0, hash);
    return ASHWAY_REPLY;
}
