// both: memory_bounds at here. Looks for the end of a string that has none, up to the end of its memory.
#include <ashway.h>

/* The last bytes of 128 KiB. */
#define END 131072
static char *volatile text = (char *)(END - 100);

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    char *string = text;
    for (volatile char *byte = string; byte < (char *)END; byte++)
        *byte = 'x';
    int length = 0;
    while (*(volatile char *)(string + length)) /* here */
        length++;
    return length;
}
