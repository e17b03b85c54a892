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
 * With `--endpoint` it is also given the ring that the verdict `deliver` fills, by
 * ASHWAY_ENDPOINT_FD, _SLOTS, _SLOT_BYTES, _PAYLOADS and _CONTROL:
 *
 *     struct ashway_endpoint inbox;
 *     if (ashway_endpoint_open(&inbox, &memory) != 0)
 *         err(1, "cannot open the endpoint");
 *     for (;;) {
 *         while ((message = ashway_endpoint_next(&inbox, &len, NULL)) != NULL) {
 *             ...
 *             ashway_endpoint_release(&inbox);
 *         }
 *         ashway_endpoint_wait(&inbox, -1);   // or look again: to poll costs nobody
 *     }
 *
 * The handler may run while the application reads or writes: nothing locks the
 * memory, on purpose, because a stopped application must not stop the handler.
 * Use `volatile` or atomics, and expect values to change between two reads.
 */
#ifndef ASHWAY_APP_H
#define ASHWAY_APP_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/*
 * The messages that the handler delivers: a ring in its memory, read by one
 * process. `docs/abi/deliver.md` says how it works.
 */
struct ashway_endpoint {
    unsigned char *payloads;
    uint32_t *control;     /* [0] messages taken out, [16] wants to be woken */
    uint32_t *descriptors; /* 4 words a slot: ready, length, path, - */
    uint32_t slots, slot_bytes, taken;
    int event; /* readable when the reader is to look; to poll, not to write */
};

/* A slot that holds no message: to be stepped over. */
#define ASHWAY_ENDPOINT_VOID UINT32_MAX

/*
 * Opens the endpoint this process was started with. Returns 0, or -1 with `errno`:
 * ENOENT if it was started without `--endpoint`.
 */
static inline int ashway_endpoint_open(struct ashway_endpoint *endpoint,
                                       const struct ashway_memory *memory)
{
    const unsigned long long none = ~0ULL;
    unsigned long long fd = ashway_number("ASHWAY_ENDPOINT_FD", 10, none);
    unsigned long long slots = ashway_number("ASHWAY_ENDPOINT_SLOTS", 10, none);
    unsigned long long slot_bytes = ashway_number("ASHWAY_ENDPOINT_SLOT_BYTES", 10, none);
    unsigned long long payloads = ashway_number("ASHWAY_ENDPOINT_PAYLOADS", 10, none);
    unsigned long long control = ashway_number("ASHWAY_ENDPOINT_CONTROL", 10, none);

    if (fd == none || slots == none || slot_bytes == none || payloads == none ||
        control >= memory->bytes || payloads >= memory->bytes) {
        errno = ENOENT;
        return -1;
    }
    endpoint->payloads = memory->base + payloads;
    endpoint->control = (uint32_t *)(void *)(memory->base + control);
    endpoint->descriptors = endpoint->control + 32;
    endpoint->slots = (uint32_t)slots;
    endpoint->slot_bytes = (uint32_t)slot_bytes;
    endpoint->taken = __atomic_load_n(&endpoint->control[0], __ATOMIC_ACQUIRE);
    endpoint->event = (int)fd;
    return 0;
}

/* Whether the next slot is filled. */
static inline int ashway_endpoint_waiting(const struct ashway_endpoint *endpoint)
{
    const uint32_t *slot = endpoint->descriptors + 4 * (endpoint->taken & (endpoint->slots - 1));
    return __atomic_load_n(&slot[0], __ATOMIC_ACQUIRE) == endpoint->taken + 1;
}

/* Gives the slot of the last message back: it is written over from now on. */
static inline void ashway_endpoint_release(struct ashway_endpoint *endpoint)
{
    __atomic_store_n(&endpoint->control[0], ++endpoint->taken, __ATOMIC_RELEASE);
}

/*
 * The next message, in the order they were delivered, or NULL if there is none.
 * It lies in the ring until `ashway_endpoint_release`. `path` may be NULL; it gets
 * the number of the path among those of the handler. No system call.
 */
static inline const void *ashway_endpoint_next(struct ashway_endpoint *endpoint, unsigned *len,
                                               unsigned *path)
{
    while (ashway_endpoint_waiting(endpoint)) {
        uint32_t slot = endpoint->taken & (endpoint->slots - 1);
        const uint32_t *descriptor = endpoint->descriptors + 4 * slot;
        if (descriptor[1] == ASHWAY_ENDPOINT_VOID) {
            ashway_endpoint_release(endpoint);
            continue;
        }
        *len = descriptor[1] < endpoint->slot_bytes ? descriptor[1] : endpoint->slot_bytes;
        if (path != NULL)
            *path = descriptor[2];
        return endpoint->payloads + (size_t)slot * endpoint->slot_bytes;
    }
    return NULL;
}

/*
 * Sleeps until there is a message, or so many milliseconds (-1: as long as it
 * takes). Returns 1 if there is one, 0 if not, -1 with `errno`: that of poll(2), or
 * EPIPE if no more will come (the node has ended or unloaded the handler). 0 may come
 * early, while a message is being put in front of one that is there: look again.
 */
static inline int ashway_endpoint_wait(struct ashway_endpoint *endpoint, int milliseconds)
{
    struct pollfd event = {.fd = endpoint->event, .events = POLLIN};
    char signals[64];

    if (ashway_endpoint_waiting(endpoint))
        return 1;
    /* A signal of earlier is none of now; there may be none to read. */
    ssize_t got = read(endpoint->event, signals, sizeof signals);
    if (got == 0)
        errno = EPIPE;
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return -1;
    __atomic_store_n(&endpoint->control[16], 1, __ATOMIC_SEQ_CST);
    /* Either the producer sees that, or its message is seen here. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (ashway_endpoint_waiting(endpoint)) {
        __atomic_store_n(&endpoint->control[16], 0, __ATOMIC_RELAXED);
        return 1;
    }
    if (poll(&event, 1, milliseconds) < 0)
        return -1;
    return ashway_endpoint_waiting(endpoint);
}

#endif
