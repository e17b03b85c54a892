// both: divide_by_zero at here. An average over as many parts as the message's first byte says: none.
#include <ashway.h>

ASHWAY_SHARED unsigned average;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    average = (unsigned)len / msg_load8(0); /* here */
    return ASHWAY_CONSUME;
}
