/* A version that cannot take over: its `migrate` is stopped half-way. */
#define VERSION 2
#include "ledger.h"

ASHWAY_EXPORT void migrate(int from)
{
    ledger.answered[0] = 0;
    __builtin_trap();
}
