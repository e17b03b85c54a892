/*
 * string.h for libraries in handlers: what the compiler makes instructions of
 * (`memory.copy`, `memory.fill` with -mbulk-memory) or a loop in libc.c.
 */
#ifndef ASHWAY_STRING_H
#define ASHWAY_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t len);
void *memmove(void *to, const void *from, size_t len);
void *memset(void *to, int byte, size_t len);
int memcmp(const void *one, const void *other, size_t len);
size_t strlen(const char *text);

#endif
