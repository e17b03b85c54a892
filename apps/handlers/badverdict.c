/*
 * Bad verdict: returns a number that is no verdict. For tests.
 *
 * Stops the handler with cause `bad_verdict`.
 */
#include <ashway.h>

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    return 99;
}
