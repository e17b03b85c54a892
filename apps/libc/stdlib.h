/*
 * stdlib.h for libraries in handlers that bring their memory along: there is no
 * heap, and who asks for some gets none.
 */
#ifndef ASHWAY_STDLIB_H
#define ASHWAY_STDLIB_H

#include <stddef.h>

static inline void *malloc(size_t bytes)
{
    (void)bytes;
    return NULL;
}

static inline void *calloc(size_t items, size_t bytes)
{
    (void)items;
    (void)bytes;
    return NULL;
}

static inline void free(void *block)
{
    (void)block;
}

#endif
