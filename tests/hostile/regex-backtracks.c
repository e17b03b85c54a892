// both: fuel. Matches (a*)*b against letters a, the textbook way: every subset of them is tried.
#include <ashway.h>

static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* (a*)* from here, then b. */
static int stars(const char *at)
{
    for (const char *end = at; *end == 'a'; end++)
        if (stars(end + 1))
            return 1;
    return *at == 'b';
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    return stars(text) ? ASHWAY_DROP : ASHWAY_CONSUME;
}
