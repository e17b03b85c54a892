// both: consume. An index that is negative, into an array: it hits a neighbour of its own, and only that.
#include <ashway.h>

static volatile struct {
    int neighbour[8];
    int values[8];
} own;
static volatile int index = -1;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    volatile int *values = own.values;
    values[index] = 0x5a5a5a5a;
    return own.neighbour[7] == 0x5a5a5a5a ? ASHWAY_CONSUME : ASHWAY_DROP;
}
