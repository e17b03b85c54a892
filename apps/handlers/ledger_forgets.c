/* A version that makes a mistake: it forgets what it has answered. */
#define VERSION 2
#include "ledger.h"

ASHWAY_EXPORT void migrate(int from)
{
    ledger.answered[0] = ledger.answered[1] = 0;
    ledger.swaps++;
}
