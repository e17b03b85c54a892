/*
 * The application of the zone handler: fills its table from a file, says how many names
 * that were, and ends. The handler answers from then on.
 *
 *     ashway handler map zone -- zone_app FILE
 *
 * A line of the file is `NAME TYPE ADDRESS`; empty lines and what stands behind a `#` are
 * passed over. TYPE is A or AAAA; a name may have one address of each.
 *
 *     www.example.org   A     192.0.2.80
 *     www.example.org   AAAA  2001:db8::80
 *
 * All mistakes are printed, each with its line, and then nothing is changed. Another run
 * gives the names in its file other addresses and leaves the others alone; the room of
 * an entry that a name had before is not used again. One run at a time.
 */
#include <ashway_app.h>

#include "handlers/zone.h"

#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <strings.h>

/* A name of the file, and the lines that gave it its addresses. */
struct wanted {
    struct zone_name name;
    unsigned line_a, line_aaaa;
};

static struct wanted wanted[ZONE_NAMES];
static unsigned count;

static unsigned hash_of(const struct zone_name *name)
{
    unsigned hash = ZONE_HASH_START;
    for (unsigned at = 0; at < name->len; at++)
        hash = zone_hash(hash, name->name[at]);
    return hash;
}

static int same_name(const struct zone_name *one, const struct zone_name *other)
{
    return one->len == other->len && memcmp(one->name, other->name, one->len) == 0;
}

/* Writes `text` in wire form; what is wrong with it, or NULL. A final dot may be there. */
static const char *wire_form(const char *text, struct zone_name *name)
{
    size_t len = strlen(text);
    if (len > 0 && text[len - 1] == '.')
        len--;
    /* A length in front of each label but none behind: one byte more, and the last one. */
    if (len + 2 > ZONE_NAME_BYTES)
        return "is longer than 62 characters";
    memset(name, 0, sizeof *name);
    unsigned length_at = 0;
    for (size_t at = 0; at <= len; at++) {
        if (at == len || text[at] == '.') {
            unsigned label = (unsigned)at - length_at;
            if (label == 0)
                return "has an empty label";
            name->name[length_at] = (unsigned char)label;
            length_at = (unsigned)at + 1;
        } else if (text[at] == '\\') {
            return "has a `\\`, which this file has no meaning for";
        } else {
            name->name[at + 1] = (unsigned char)zone_lower((unsigned char)text[at]);
        }
    }
    name->len = (unsigned)len + 2;
    return NULL;
}

/* Where this name stands among the wanted ones; a new place if it does not, NULL if full. */
static struct wanted *place(const struct zone_name *name)
{
    for (unsigned at = 0; at < count; at++)
        if (same_name(&wanted[at].name, name))
            return &wanted[at];
    if (count == ZONE_NAMES)
        return NULL;
    wanted[count].name = *name;
    return &wanted[count++];
}

/* Takes a line in; 1 if something is wrong with it, which is said. */
static int take(const char *file, unsigned number, char *line)
{
    const char *blank = " \t\r\n";
    struct zone_name name;
    struct in6_addr address;
    char *rest;

    line[strcspn(line, "#")] = '\0';
    const char *text = strtok_r(line, blank, &rest);
    if (text == NULL)
        return 0;
    const char *type = strtok_r(NULL, blank, &rest), *value = strtok_r(NULL, blank, &rest);
    if (value == NULL || strtok_r(NULL, blank, &rest) != NULL) {
        warnx("%s:%u: expected `NAME TYPE ADDRESS`", file, number);
        return 1;
    }
    const char *wrong = wire_form(text, &name);
    if (wrong != NULL) {
        warnx("%s:%u: the name `%s` %s", file, number, text, wrong);
        return 1;
    }
    int is_a = strcasecmp(type, "A") == 0;
    if (!is_a && strcasecmp(type, "AAAA") != 0) {
        warnx("%s:%u: the type `%s` is neither `A` nor `AAAA`", file, number, type);
        return 1;
    }
    if (inet_pton(is_a ? AF_INET : AF_INET6, value, &address) != 1) {
        warnx("%s:%u: `%s` is no IPv%c address", file, number, value, is_a ? '4' : '6');
        return 1;
    }
    struct wanted *to = place(&name);
    if (to == NULL) {
        warnx("%s:%u: `%s` is one name too many: the table has room for %d", file, number, text,
              ZONE_NAMES);
        return 1;
    }
    unsigned *before = is_a ? &to->line_a : &to->line_aaaa;
    if (*before != 0) {
        warnx("%s:%u: `%s` already has an %s address, from line %u", file, number, text,
              is_a ? "A" : "AAAA", *before);
        return 1;
    }
    *before = number;
    to->name.has |= is_a ? ZONE_A : ZONE_AAAA;
    memcpy(is_a ? to->name.a : to->name.aaaa, &address, is_a ? 4 : 16);
    return 0;
}

/* Reads the whole file; ends the program if anything is wrong with it. */
static void read_file(const char *file)
{
    FILE *lines = fopen(file, "re");
    char *line = NULL;
    size_t room = 0;
    unsigned number = 0, wrong = 0;

    if (lines == NULL)
        err(1, "cannot open `%s`", file);
    while (getline(&line, &room, lines) >= 0)
        wrong += (unsigned)take(file, ++number, line);
    if (ferror(lines))
        err(1, "cannot read `%s`", file);
    free(line);
    fclose(lines);
    if (wrong != 0)
        errx(1, "wrong lines in `%s`: %u; the handler's table is as it was", file, wrong);
}

/* The bucket that leads to this name, or the one to put it in. */
static unsigned short *bucket_of(struct zone *zone, const struct zone_name *name)
{
    unsigned at = zone_bucket(hash_of(name));
    for (unsigned tries = 0; tries < ZONE_BUCKETS; tries++) {
        unsigned number = zone->buckets[at];
        if (number == 0 ||
            (number <= ZONE_NAMES && same_name(&zone->names[number - 1], name)))
            return &zone->buckets[at];
        at = (at + 1) % ZONE_BUCKETS;
    }
    /* More names than there can be: whoever wrote that was not this program. */
    errx(1, "the handler's table is damaged; `ashway handler swap` makes a new one");
}

/* Whether a bucket leads to just this entry. */
static int leads_to(const struct zone *zone, unsigned number, const struct zone_name *name)
{
    return number != 0 && memcmp(&zone->names[number - 1], name, sizeof *name) == 0;
}

/* Puts the wanted names into the table, while the handler may run. */
static void publish(struct zone *zone)
{
    unsigned needed = 0;
    for (unsigned at = 0; at < count; at++)
        needed += !leads_to(zone, *bucket_of(zone, &wanted[at].name), &wanted[at].name);
    if (zone->used > ZONE_NAMES || needed > ZONE_NAMES - zone->used)
        errx(1, "%u of the table's %d entries are used, and %u more are needed; "
                "`ashway handler swap` makes a new table",
             zone->used, ZONE_NAMES, needed);
    for (unsigned at = 0; at < count; at++) {
        const struct zone_name *name = &wanted[at].name;
        unsigned short *bucket = bucket_of(zone, name);
        if (leads_to(zone, *bucket, name))
            continue;
        zone->names[zone->used++] = *name;
        /* The entry before the bucket: see `struct zone`. */
        __atomic_store_n(bucket, (unsigned short)zone->used, __ATOMIC_RELEASE);
    }
}

int main(int argc, char **argv)
{
    struct ashway_memory memory;

    if (argc != 2)
        errx(2, "usage: ashway handler map HANDLER -- %s FILE", argv[0]);
    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    struct zone *zone = ashway_symbol(&memory, "zone");
    if (zone == NULL || (unsigned char *)zone + sizeof *zone > memory.base + memory.bytes)
        errx(1, "the handler shares no variable named `zone` of %zu bytes", sizeof *zone);
    read_file(argv[1]);
    publish(zone);
    printf("%u names\n", count);
    ashway_memory_close(&memory);
    return 0;
}
