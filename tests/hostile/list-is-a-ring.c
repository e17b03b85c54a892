// both: fuel. A list whose last element is its first, searched for what is not in it.
#include <ashway.h>

struct element {
    struct element *next;
    unsigned key;
};
static struct element elements[64];
static struct element *volatile first;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    for (int at = 0; at < 64; at++)
        elements[at] = (struct element){&elements[(at + 1) % 64], at};
    first = elements;
    for (struct element *e = first; e; e = e->next)
        if (e->key == 1000)
            return ASHWAY_DROP;
    return ASHWAY_CONSUME;
}
