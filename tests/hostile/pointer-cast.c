// both: indirect_call at here. A function called under another type, with an argument it does not take.
#include <ashway.h>

static int take_nothing(void) { return ASHWAY_CONSUME; }

static int (*volatile pointer)(void) = take_nothing;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    int (*wrong)(int, int) = (int (*)(int, int))(unsigned long)pointer;
    return wrong(len, channel); /* here */
}
