/*
 * libpcap's interpreter over a list of filters, one by one until one matches.
 *
 *     pcap_list < COMMANDS
 *
 * Filters first, one a line, then an empty line; filter I is for datagrams from
 * 10.0.0.0 + I to port 7777. Then, a line each:
 *
 *     dump             all programs: their length, then code jt jf k of each
 *                      instruction
 *     time KEYS REPEAT ns per frame; KEYS: uniform, first or last
 *
 * libpcap is loaded when this starts, so that its headers need not be there.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/* As in <pcap/pcap.h> and <pcap/bpf.h>. */
struct insn { uint16_t code; uint8_t jt, jf; uint32_t k; };
struct program { unsigned len; struct insn *insns; };
struct header { struct timeval time; uint32_t caplen, len; };

#define ETHERNET 1
#define ANY_NETMASK 0xffffffff
#define MOST 100000

static struct program programs[MOST];
static int count;
static unsigned char frame[64];
static int (*match)(const struct program *, const struct header *, const unsigned char *);

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "no `%s` of libpcap.so.0.8 (apt-get install libpcap0.8)\n", name);
        exit(1);
    }
    return found;
}

static int find(uint32_t from)
{
    struct header header = { .caplen = sizeof frame, .len = sizeof frame };
    uint32_t address = 0x0a000000 + from;

    for (int i = 0; i < 4; i++)
        frame[26 + i] = address >> (24 - 8 * i);
    for (int i = 0; i < count; i++)
        if (match(&programs[i], &header, frame))
            return i;
    return -1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void)
{
    char line[256], keys[16];
    long repeat;
    void *library = dlopen("libpcap.so.0.8", RTLD_NOW);
    void *(*open_dead)(int, int) = symbol(library, "pcap_open_dead");
    int (*compile)(void *, struct program *, const char *, int, uint32_t) =
        symbol(library, "pcap_compile");
    match = symbol(library, "pcap_offline_filter");

    void *pcap = open_dead(ETHERNET, 65535);
    while (fgets(line, sizeof line, stdin) && *line != '\n' && count < MOST) {
        if (compile(pcap, &programs[count++], line, 1, ANY_NETMASK)) {
            fprintf(stderr, "libpcap does not take: %s", line);
            return 1;
        }
    }
    frame[12] = 8;
    frame[14] = 0x45;
    frame[23] = 17;
    frame[36] = 7777 >> 8;
    frame[37] = 7777 & 255;
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "dump\n")) {
            for (int i = 0; i < count; i++) {
                printf("%u", programs[i].len);
                for (unsigned j = 0; j < programs[i].len; j++) {
                    struct insn *insn = &programs[i].insns[j];
                    printf(" %u %u %u %u", insn->code, insn->jt, insn->jf, insn->k);
                }
                puts("");
            }
        } else if (sscanf(line, "time %15s %ld", keys, &repeat) == 2) {
            /* The generator of the other programs (Knuth 1997, 3.3.4). */
            uint64_t drawn = 0;
            double begin = now();
            for (long i = 0; i < repeat; i++) {
                uint32_t from = *keys == 'l' ? count - 1 : 0;
                if (*keys == 'u') {
                    drawn = drawn * 6364136223846793005u + 1442695041u;
                    from = (drawn >> 32) * count >> 32;
                }
                if (find(from) != (int)from) {
                    fprintf(stderr, "filter %u did not match\n", from);
                    return 1;
                }
            }
            printf("%f\n", (now() - begin) / repeat);
        }
        fflush(stdout);
    }
    return 0;
}
