/* The remote increment by hand for traffic control's ingress. */
#define TC
#include "xdp_counter.c"
