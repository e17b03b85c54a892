// both: fuel. Quicksort that takes the first element for its pivot, given what is sorted already: quadratic, and 1,500 deep.
#include <ashway.h>

static unsigned numbers[1500];

static void sort(unsigned *from, unsigned *to)
{
    if (to - from < 2)
        return;
    unsigned *less = from;
    for (unsigned *at = from + 1; at < to; at++)
        if (*at < *from) {
            unsigned swap = *++less;
            *less = *at;
            *at = swap;
        }
    sort(from, less);
    sort(less + 1, to);
    *from += 0;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    for (unsigned at = 0; at < 1500; at++)
        numbers[at] = at;
    sort(numbers, numbers + 1500);
    return ASHWAY_CONSUME;
}
