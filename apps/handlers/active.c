/*
 * Active messages: the request names a function by its number, and the result comes
 * back.
 *
 *   request  0: function (32 bits, big-endian)
 *            4: argument (32 bits, big-endian)
 *   reply    the request, with the result in the place of the argument
 *
 * A number that nobody has registered drops the message. The functions lie in a table
 * of the module (`docs/abi/call.md`), and run in whichever tier the handler does.
 *
 * Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), section I: control initiation;
 * von Eicken et al. 1992, "Active Messages".
 */
#include <ashway.h>

static unsigned total;

static unsigned add(unsigned argument)
{
    return total += argument;
}

static unsigned square(unsigned argument)
{
    return argument * argument;
}

static unsigned ones(unsigned argument)
{
    unsigned count = 0;
    for (; argument != 0; argument &= argument - 1)
        count++;
    return count;
}

static unsigned (*const functions[])(unsigned) = {add, square, ones};

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 8)
        return ASHWAY_PASS;
    unsigned number = msg_load32be(0);
    if (number >= sizeof functions / sizeof *functions)
        return ASHWAY_DROP;
    msg_store32be(4, functions[number](msg_load32be(4)));
    return ASHWAY_REPLY;
}
