/*
 * What string.h declares. The compiler calls these functions, too.
 */
#include <string.h>

void *memcpy(void *to, const void *from, size_t len)
{
    return __builtin_memcpy(to, from, len);
}

void *memmove(void *to, const void *from, size_t len)
{
    return __builtin_memmove(to, from, len);
}

void *memset(void *to, int byte, size_t len)
{
    return __builtin_memset(to, byte, len);
}

int memcmp(const void *one, const void *other, size_t len)
{
    const unsigned char *a = one, *b = other;

    for (; len; len--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}

size_t strlen(const char *text)
{
    size_t len = 0;

    while (text[len])
        len++;
    return len;
}
