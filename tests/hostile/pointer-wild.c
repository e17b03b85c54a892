// both: memory_bounds at here. A pointer made of the message's first word, big-endian.
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    volatile int *pointer = (volatile int *)(msg_load32be(0) << 8);
    return *pointer; /* here */
}
