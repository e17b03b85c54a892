/*
 * The memory of a handler in an application: ordinary C for Linux.
 *
 * `ashway handler map NAME -- COMMAND` starts COMMAND with the handler's memory
 * as an inherited file descriptor, described by environment variables:
 *
 *   ASHWAY_MEMORY_FD       the descriptor
 *   ASHWAY_MEMORY_KIND     arena | array | anonymous
 *   ASHWAY_MEMORY_ADDRESS  hexadecimal; where it must be mapped, 0 = anywhere
 *   ASHWAY_MEMORY_BYTES    decimal; size of the whole memory
 *   ASHWAY_SYMBOLS         counter=1024,ashway_param_step=1032
 *
 *     struct ashway_memory memory;
 *     if (ashway_memory_open(&memory) != 0)
 *         err(1, "cannot map the handler's memory");
 *     volatile unsigned *counter = ashway_symbol(&memory, "counter");
 *
 * The handler may run while the application reads or writes: nothing locks the
 * memory, on purpose, because a stopped application must not stop the handler.
 * Use `volatile` or atomics, and expect values to change between two reads.
 */
#ifndef ASHWAY_APP_H
#define ASHWAY_APP_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Missing from the headers of C libraries older than Linux 4.17 and 5.14. */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct ashway_memory {
    unsigned char *base; /* the handler's address 0 */
    size_t bytes;        /* size of the mapping */
    const char *symbols; /* points into the environment */
};

/* A number from the environment, or `none` if it is missing or malformed. */
static inline unsigned long long ashway_number(const char *name, int radix, unsigned long long none)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL || *text == '\0')
        return none;
    errno = 0;
    unsigned long long number = strtoull(text, &end, radix);
    return *end == '\0' && errno == 0 ? number : none;
}

/*
 * Maps the memory this process was started with. Returns 0, or -1 with `errno`:
 * ENOENT if it was not started by `ashway handler map`, else that of mmap(2).
 *
 * A child made by fork(2) does not inherit the mapping of an arena; it calls
 * this again.
 */
static inline int ashway_memory_open(struct ashway_memory *memory)
{
    const unsigned long long none = ~0ULL;
    unsigned long long fd = ashway_number("ASHWAY_MEMORY_FD", 10, none);
    unsigned long long bytes = ashway_number("ASHWAY_MEMORY_BYTES", 10, none);
    unsigned long long address = ashway_number("ASHWAY_MEMORY_ADDRESS", 16, none);
    const char *kind = getenv("ASHWAY_MEMORY_KIND");
    const char *symbols = getenv("ASHWAY_SYMBOLS");

    if (fd == none || bytes == none || address == none || kind == NULL) {
        errno = ENOENT;
        return -1;
    }

    /* An arena exists at one address only: its own, in every process. */
    int flags = MAP_SHARED | (address != 0 ? MAP_FIXED_NOREPLACE : 0);
    void *base = mmap((void *)(size_t)address, bytes, PROT_READ | PROT_WRITE, flags, (int)fd, 0);
    if (base == MAP_FAILED)
        return -1;
    /*
     * All pages of an arena exist already; this enters them into this process's
     * page table, so that no later access waits for a fault. Arrays are mapped
     * whole by mmap and refuse it.
     */
    if (strcmp(kind, "arena") == 0 && madvise(base, bytes, MADV_POPULATE_WRITE) != 0) {
        int why = errno;
        munmap(base, bytes);
        errno = why;
        return -1;
    }

    memory->base = base;
    memory->bytes = bytes;
    memory->symbols = symbols != NULL ? symbols : "";
    return 0;
}

/*
 * The variable the handler declared ASHWAY_SHARED under this name, or NULL if
 * there is none. Compares with each name: look up once, keep the pointer.
 */
static inline void *ashway_symbol(const struct ashway_memory *memory, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = memory->symbols; *at != '\0';) {
        if (strncmp(at, name, len) == 0 && at[len] == '=') {
            unsigned long long offset = strtoull(at + len + 1, NULL, 10);
            return offset < memory->bytes ? memory->base + offset : NULL;
        }
        const char *comma = strchr(at, ',');
        if (comma == NULL)
            break;
        at = comma + 1;
    }
    return NULL;
}

/* Unmaps the memory. The descriptor stays open. */
static inline void ashway_memory_close(struct ashway_memory *memory)
{
    munmap(memory->base, memory->bytes);
    memory->base = NULL;
    memory->bytes = 0;
}

#endif
