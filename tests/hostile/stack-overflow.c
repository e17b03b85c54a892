// both: memory_bounds at here. An array whose length is the message's, squared and more: the shadow stack goes below 0.
#include <ashway.h>

__attribute__((noinline)) static int last(unsigned bytes)
{
    volatile char array[bytes];
    array[0] = 1; /* here */
    return array[0];
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    return last((unsigned)len * 1000);
}
