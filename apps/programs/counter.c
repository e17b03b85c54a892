/* Remote increment, as the paths run it; the smallest program of the bench. */
#include "../handlers/counter.c"
