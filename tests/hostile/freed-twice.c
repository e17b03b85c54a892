// both: fuel. A free list that has the same block twice: giving out blocks until none is left never ends.
#include <ashway.h>

struct block {
    struct block *next;
    char bytes[24];
};
static struct block blocks[8];
static struct block *volatile list;

__attribute__((noinline)) static void release(struct block *block)
{
    block->next = list;
    list = block;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    list = 0;
    for (int at = 0; at < 8; at++)
        release(&blocks[at]);
    release(&blocks[3]);
    int given = 0;
    while (list) {
        list = list->next;
        given++;
    }
    return given;
}
