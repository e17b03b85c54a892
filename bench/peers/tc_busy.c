/* The remote increment by hand, with a loop that takes as long as that of `ashway bench cpus`. */
#define TC
#define TURNS 30000
#include "xdp_counter.c"
