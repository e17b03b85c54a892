// Copy, checksum and byteswap: passes one after the other, loops integrated by hand,
// and code that `ashway_codegen::pipe` made, in one process and in turn (ASH, Tables
// III and IV).
//
// pipes ROUNDS QUICK < codes
//
// `codes` are the lists `copy`, `cksum16` and `cksum16 | bswap32` as machine code, each
// behind its length and the most bytes of a call (two little-endian words of 64 bits).
// Prints a line for each measurement: SOURCE LIST BYTES WAY NS.
//
// SOURCE is
//   cached   everything is in the caches, if it fits
//   cold     the source is flushed before each run
//   flushed  so is the destination between two passes
//   memory   64 MiB, source and destination flushed

#define _GNU_SOURCE
#include <x86intrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LARGE (64u << 20)
#define NEVER_INLINE __attribute__((noinline))

typedef uint64_t pass(const uint8_t *from, uint8_t *to, size_t n);
typedef void code(uint64_t *registers, const uint8_t *from, uint8_t *to, size_t n,
                                    uint64_t streaming);

static uint64_t fold(uint64_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

static uint16_t last(const uint8_t *from, size_t at, size_t n) {
    return at < n ? from[at] : 0;
}

// The library's copy.
NEVER_INLINE static uint64_t copy(const uint8_t *from, uint8_t *to, size_t n) {
    memcpy(to, from, n);
    return 0;
}

// As `copy`, but past the caches.
NEVER_INLINE static uint64_t copy_streaming(const uint8_t *from, uint8_t *to, size_t n) {
    size_t at = 0;
#ifdef __AVX512F__
    for (; at + 64 <= n; at += 64)
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
#else
    for (; at + 32 <= n; at += 32)
        _mm256_stream_si256((void *)(to + at), _mm256_loadu_si256((const void *)(from + at)));
#endif
    memcpy(to + at, from + at, n - at);
    _mm_sfence();
    return 0;
}

// RFC 1071 over what was copied, words of 32 bits into a sum of 64.
NEVER_INLINE static uint64_t checksum(const uint8_t *from, uint8_t *to, size_t n) {
    (void)from;
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 4 <= n; at += 4) {
        uint32_t word;
        memcpy(&word, to + at, 4);
        sum += word;
    }
    for (; at + 2 <= n; at += 2) {
        uint16_t word;
        memcpy(&word, to + at, 2);
        sum += word;
    }
    return fold(sum + last(to, at, n));
}

NEVER_INLINE static uint64_t byteswap(const uint8_t *from, uint8_t *to, size_t n) {
    (void)from;
    for (size_t at = 0; at + 4 <= n; at += 4) {
        uint32_t word;
        memcpy(&word, to + at, 4);
        word = __builtin_bswap32(word);
        memcpy(to + at, &word, 4);
    }
    return 0;
}

// By hand, words of 32 bits into sums of 64.
NEVER_INLINE static uint64_t hand_sum(const uint8_t *restrict from, uint8_t *restrict to,
                                                                            size_t n) {
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 4 <= n; at += 4) {
        uint32_t word;
        memcpy(&word, from + at, 4);
        memcpy(to + at, &word, 4);
        sum += word;
    }
    for (size_t rest = at; rest < n; rest++)
        to[rest] = from[rest];
    for (; at + 2 <= n; at += 2) {
        uint16_t word;
        memcpy(&word, from + at, 2);
        sum += word;
    }
    return fold(sum + last(from, at, n));
}

NEVER_INLINE static uint64_t hand_sum_swap(const uint8_t *restrict from,
                                           uint8_t *restrict to, size_t n) {
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 4 <= n; at += 4) {
        uint32_t word;
        memcpy(&word, from + at, 4);
        sum += word;
        word = __builtin_bswap32(word);
        memcpy(to + at, &word, 4);
    }
    for (size_t rest = at; rest < n; rest++)
        to[rest] = from[rest];
    for (; at + 2 <= n; at += 2) {
        uint16_t word;
        memcpy(&word, from + at, 2);
        sum += word;
    }
    return fold(sum + last(from, at, n));
}

// By hand, words of 16 bits into sums of 32, 128 KiB at a time, so that none overflows.
#define PIECE (128u << 10)

NEVER_INLINE static uint64_t hand16_sum(const uint8_t *restrict from, uint8_t *restrict to,
                                                                                size_t n) {
    uint64_t total = 0;
    size_t at = 0;
    while (at + 2 <= n) {
        size_t end = n - at < PIECE ? n & ~(size_t)1 : at + PIECE;
        uint32_t sum = 0;
        for (; at < end; at += 2) {
            uint16_t word;
            memcpy(&word, from + at, 2);
            memcpy(to + at, &word, 2);
            sum += word;
        }
        total += sum;
    }
    if (at < n)
        to[at] = from[at];
    return fold(total + last(from, at, n));
}

NEVER_INLINE static uint64_t hand16_sum_swap(const uint8_t *restrict from,
                                             uint8_t *restrict to, size_t n) {
    uint64_t total = 0;
    size_t at = 0, words = n & ~(size_t)3;
    while (at < words) {
        size_t end = words - at < PIECE ? words : at + PIECE;
        uint32_t sum = 0;
        for (; at < end; at += 4) {
            uint32_t word;
            memcpy(&word, from + at, 4);
            sum += (word & 0xffff) + (word >> 16);
            word = __builtin_bswap32(word);
            memcpy(to + at, &word, 4);
        }
        total += sum;
    }
    for (size_t rest = at; rest < n; rest++)
        to[rest] = from[rest];
    for (; at + 2 <= n; at += 2) {
        uint16_t word;
        memcpy(&word, from + at, 2);
        total += word;
    }
    return fold(total + last(from, at, n));
}

// Ours.
static struct {
    code *run;
    uint64_t most;
} codes[3];

static inline uint64_t ours(int list, const uint8_t *from, uint8_t *to, size_t n,
                                                        uint64_t streaming) {
    uint64_t registers[1] = {0};
    size_t done = 0;
    do {
        size_t piece = n - done < codes[list].most ? n - done : codes[list].most;
        codes[list].run(registers, from + done, to + done, piece, streaming);
        done += piece;
    } while (done < n);
    return registers[0];
}

#define OURS(name, list, streaming)                                                        \
    NEVER_INLINE static uint64_t name(const uint8_t *from, uint8_t *to, size_t n) {          \
        return ours(list, from, to, n, streaming);                                             \
    }
OURS(ours_copy, 0, 0)
OURS(ours_sum, 1, 0)
OURS(ours_sum_swap, 2, 0)
OURS(ours_copy_streaming, 0, 1)
OURS(ours_sum_streaming, 1, 1)
OURS(ours_sum_swap_streaming, 2, 1)

struct way {
    const char *name;
    pass *passes[4];
};

struct list {
    const char *name;
    // Whether the destination ends as the source, and whether there is a sum.
    int same, sums;
    struct way ways[5];
};

static const struct list LISTS[] = {
        {"copy", 1, 0, {{"separate", {copy}}, {"ours", {ours_copy}}}},
        {"copy2", 1, 0, {{"separate", {copy, copy}}}},
        {"sum",
     1,
     1,
     {{"separate", {copy, checksum}},
            {"hand", {hand_sum}},
            {"hand16", {hand16_sum}},
            {"ours", {ours_sum}}}},
        {"sum_swap",
     0,
     1,
     {{"separate", {copy, checksum, byteswap}},
            {"hand", {hand_sum_swap}},
            {"hand16", {hand16_sum_swap}},
            {"ours", {ours_sum_swap}}}},
};

static const struct list LARGE_LISTS[] = {
        {"copy",
     1,
     0,
     {{"separate", {copy}},
            {"streaming", {copy_streaming}},
            {"ours", {ours_copy}},
            {"ours_streaming", {ours_copy_streaming}}}},
        {"sum",
     1,
     1,
     {{"separate", {copy, checksum}},
            {"hand", {hand_sum}},
            {"ours", {ours_sum}},
            {"ours_streaming", {ours_sum_streaming}}}},
        {"sum_swap",
     0,
     1,
     {{"separate", {copy, checksum, byteswap}},
            {"hand", {hand_sum_swap}},
            {"ours", {ours_sum_swap}},
            {"ours_streaming", {ours_sum_swap_streaming}}}},
};

static const size_t SIZES[] = {64, 256, 512, 1472, 1500, 4096, 16384, 65536};

static uint8_t *from, *to;
static double ns_per_tick;
static uint64_t empty_ticks;

static uint64_t now(void) {
    unsigned cpu;
    _mm_lfence();
    uint64_t ticks = __rdtscp(&cpu);
    _mm_lfence();
    return ticks;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void flush(const uint8_t *at, size_t n) {
    for (size_t line = 0; line < n; line += 64)
        _mm_clflush(at + line);
    _mm_mfence();
}

static void *memory(size_t bytes, int protection) {
    void *at = mmap(0, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("pipes: mmap");
        exit(1);
    }
    return at;
}

static void take(void *into, size_t n) {
    if (fread(into, 1, n, stdin) != n) {
        fprintf(stderr, "pipes: the codes end too early\n");
        exit(1);
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// All ways do the same.
static void check(const struct list *list, size_t n) {
    uint64_t expected = 0;
    uint8_t *first = malloc(n);
    for (const struct way *way = list->ways; way->name; way++) {
        uint64_t sum = 0;
        memset(to, 0xee, n + 1);
        for (pass *const *one = way->passes; *one; one++)
            sum += (*one)(from, to, n);
        if (way == list->ways) {
            expected = sum;
            memcpy(first, to, n);
        }
        int same = !memcmp(to, from, n);
        // One's complement has two zeros; ours is never 0 unless all words are.
        if (sum != expected || memcmp(to, first, n) || to[n] != 0xee || same != list->same ||
                list->sums != (sum != 0)) {
            fprintf(stderr, "pipes: `%s` of `%s` does something else on %zu bytes\n", way->name,
                            list->name, n);
            exit(1);
        }
    }
    free(first);
}

// The best of some batches: what disturbs one only ever adds.
static double cached(const struct way *way, size_t n, int quick) {
    size_t runs = (quick ? 1 << 15 : 1 << 18) / n + 16;
    double best = 1e18;
    for (int batch = 0; batch < 4; batch++) {
        double begun = seconds();
        for (size_t run = 0; run < runs; run++)
            for (pass *const *one = way->passes; *one; one++)
                (*one)(from, to, n);
        double taken = seconds() - begun;
        best = taken < best ? taken : best;
    }
    return best * 1e9 / runs;
}

// The sum of the passes' times, without what flushes between them.
static double flushed(const struct way *way, size_t n, int between, int destination) {
    uint64_t ticks = 0;
    flush(from, n);
    if (destination)
        flush(to, n);
    for (pass *const *one = way->passes; *one; one++) {
        if (between && one != way->passes) {
            flush(to, n);
            // A second copy is from the source again.
            if (*one == copy)
                flush(from, n);
        }
        uint64_t begun = now();
        (*one)(from, to, n);
        uint64_t taken = now() - begun;
        ticks += taken > empty_ticks ? taken - empty_ticks : 0;
    }
    return ticks * ns_per_tick;
}

static double flushed_median(const struct way *way, size_t n, int between, int quick) {
    double all[64];
    int runs = quick ? 9 : n > 8192 ? 21 : 63;
    // A flushed line may be what the translation needs: once for nothing.
    flushed(way, n, between, 0);
    for (int run = 0; run < runs; run++)
        all[run] = flushed(way, n, between, 0);
    qsort(all, runs, sizeof *all, by_size);
    return all[runs / 2];
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5, quick = argc > 2 && atoi(argv[2]);
    for (int list = 0; list < 3; list++) {
        uint64_t head[2];
        take(head, sizeof head);
        void *at = memory(head[0], PROT_READ | PROT_WRITE);
        take(at, head[0]);
        if (mprotect(at, head[0], PROT_READ | PROT_EXEC)) {
            perror("pipes: mprotect");
            return 1;
        }
        codes[list].run = (code *)at;
        codes[list].most = head[1];
    }
    from = memory(LARGE + 4096, PROT_READ | PROT_WRITE);
    to = memory(LARGE + 4096, PROT_READ | PROT_WRITE);
    // Away from the source, so that no store is taken for one to a later load.
    to += 2048;
    for (size_t at = 0; at < LARGE; at++)
        from[at] = at * 31 >> 3 ^ at >> 9;
    memset(to, 1, LARGE);

    double begun = seconds();
    uint64_t ticks = now();
    while (seconds() - begun < 0.05)
        ;
    ns_per_tick = (seconds() - begun) * 1e9 / (now() - ticks);
    empty_ticks = UINT64_MAX;
    for (int at = 0; at < 1000; at++) {
        uint64_t start = now(), taken = now() - start;
        empty_ticks = taken < empty_ticks ? taken : empty_ticks;
    }

    const size_t lists = sizeof LISTS / sizeof *LISTS, sizes = sizeof SIZES / sizeof *SIZES;
    for (size_t list = 0; list < lists; list++)
        for (size_t size = 0; size < sizes; size++)
            check(&LISTS[list], SIZES[size]);
    for (int round = 0; round < rounds; round++) {
        for (size_t list = 0; list < lists; list++)
            for (size_t size = 0; size < sizes; size++)
                for (const struct way *way = LISTS[list].ways; way->name; way++) {
                    size_t n = SIZES[size];
                    const char *name = LISTS[list].name;
                    printf("cached %s %zu %s %.3f\n", name, n, way->name, cached(way, n, quick));
                    printf("cold %s %zu %s %.3f\n", name, n, way->name,
                 flushed_median(way, n, 0, quick));
                    printf("flushed %s %zu %s %.3f\n", name, n, way->name,
                 flushed_median(way, n, 1, quick));
                }
        for (size_t list = 0; list < sizeof LARGE_LISTS / sizeof *LARGE_LISTS; list++)
            for (const struct way *way = LARGE_LISTS[list].ways; way->name; way++) {
                double best = 1e18;
                for (int batch = 0; batch < (quick ? 1 : 3); batch++) {
                    double taken = flushed(way, LARGE, 0, 1);
                    best = taken < best ? taken : best;
                }
                printf("memory %s %u %s %.0f\n", LARGE_LISTS[list].name, LARGE, way->name, best);
            }
        fflush(stdout);
    }
    return 0;
}
