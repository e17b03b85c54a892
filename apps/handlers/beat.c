/*
 * Beat: after a request, so many messages to the first channel, one every 5 ms.
 *
 *   request  0: how many (32 bits, big-endian); 0 stops them
 *   beat     0: its number (32 bits, big-endian), from 1 on
 *
 *     [handler.beat]
 *     file = "beat.wasm"
 *     allow = ["send", "timer"]
 *     channels = ["10.0.0.2:9000"]
 */
#include <ashway.h>

enum { TIMER = 3 };

static const unsigned long long interval_ns = 5000000;

ASHWAY_SHARED unsigned left, number;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    left = msg_load32be(0);
    number = 0;
    timer_set(TIMER, left > 0 ? interval_ns : ASHWAY_NEVER);
    return ASHWAY_CONSUME;
}

ASHWAY_HANDLER int on_timer(int len, int id)
{
    if (id != TIMER)
        return ASHWAY_ABORT;
    number++;
    unsigned char beat[4];
    for (int i = 0; i < 4; i++)
        beat[i] = (unsigned char)(number >> (24 - 8 * i));
    send(0, beat, sizeof beat);
    if (--left > 0)
        timer_set(TIMER, interval_ns);
    return ASHWAY_CONSUME;
}
