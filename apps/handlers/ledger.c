/* A ledger, to be swapped for `ledger_2.c` and back. */
#define VERSION 1
#include "ledger.h"

ASHWAY_EXPORT void migrate(int from)
{
    if (from != 2)
        __builtin_trap();
    ledger.swaps++;
}
