// both: memory_bounds at here. A recursion with 1 KiB of array each: the shadow stack is gone before the calls are.
#include <ashway.h>

__attribute__((noinline)) static int down(int depth)
{
    volatile int array[256];
    array[depth & 255] = depth; /* here */
    int below = depth < 1000000 ? down(depth + 1) : 0;
    return below + array[depth & 255];
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    return down(0);
}
