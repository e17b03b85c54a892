/*
 * Answers DNS queries for names that its application put into a table
 * (`zone_app.c`): one A or AAAA record of class IN, behind the question.
 *
 * Everything else goes to the host's stack unchanged, where a name server may listen on
 * the same port: names and types that the table does not have, several questions,
 * messages that are malformed, other versions of EDNS, and signed queries (TSIG). So
 * this handler never says that a name does not exist.
 *
 * EDNS (RFC 6891): a query with an OPT record is answered with one, behind the answer.
 * Options in it are not understood, so they are ignored, as 6.1.2 demands.
 */
#include <ashway.h>

#include "zone.h"

/* One AAAA record; an OPT record takes no more than the query's own. */
ASHWAY_GROWS(28);

/* Time to live of each answer, in s: at most 2^31 - 1 (RFC 2181, 8). */
ASHWAY_PARAM(ttl, 300);

ASHWAY_SHARED struct zone zone;

enum { HEADER = 12, OPT = 11 };
enum { TYPE_A = 1, TYPE_AAAA = 28, TYPE_OPT = 41, CLASS_IN = 1 };
enum { QR = 0x8000, OPCODE = 0x7800, AA = 0x0400, TC = 0x0200, RD = 0x0100 };

/* Most bytes that a client of this handler may send: what fits every path (RFC 9715). */
enum { UDP_SIZE = 1232 };

/* The name asked for, in lower case. */
static unsigned char asked[ZONE_NAME_BYTES];

/* Reads the name of the question and hashes it; its length, or 0. */
static unsigned read_name(unsigned end, unsigned *hash)
{
    unsigned at = HEADER, len = 0;

    *hash = ZONE_HASH_START;
    for (;;) {
        /* Each turn begins with at least 5 bytes left: this one, type and class. */
        unsigned label = msg_load8(at++);
        *hash = zone_hash(*hash, label);
        /* Too long for the table, as is a pointer (0xc0 and more), which in a first name
         * has nothing to point to. */
        if (label != 0 && (len + 1 + label + 1 > ZONE_NAME_BYTES || at + label + 5 > end))
            return 0;
        asked[len++] = label;
        if (label == 0)
            return len;
        for (unsigned last = at + label; at < last; at++) {
            unsigned c = zone_lower(msg_load8(at));
            *hash = zone_hash(*hash, c);
            asked[len++] = c;
        }
    }
}

/* The name's entry, or NULL. The table is the application's: nothing in it is believed. */
static const struct zone_name *find(unsigned hash, unsigned len)
{
    unsigned bucket = zone_bucket(hash);

    for (unsigned tries = 0; tries < ZONE_BUCKETS; tries++) {
        unsigned number = *(volatile unsigned short *)&zone.buckets[bucket];
        if (number == 0 || number > ZONE_NAMES)
            return 0;
        const struct zone_name *name = &zone.names[number - 1];
        if (name->len == len) {
            unsigned at = 0;
            while (at < len && name->name[at] == asked[at])
                at++;
            if (at == len)
                return name;
        }
        bucket = (bucket + 1) % ZONE_BUCKETS;
    }
    return 0;
}

/* Whether an OPT record of version 0 stands at `at`, whole, and nothing behind it. */
static int is_opt(unsigned at, unsigned end)
{
    if (at + OPT > end || msg_load8(at) != 0 || msg_load16be(at + 1) != TYPE_OPT)
        return 0;
    unsigned version = msg_load8(at + 6), options = at + OPT;
    if (version != 0 || msg_load16be(at + 9) != end - options)
        return 0;
    while (options + 4 <= end)
        options += 4 + msg_load16be(options + 2);
    return options == end;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned end = (unsigned)len, hash;

    if (end < HEADER + 5)
        return ASHWAY_PASS;
    unsigned flags = msg_load16be(2), additional = msg_load16be(10);
    if ((flags & (QR | OPCODE | TC)) != 0 || msg_load16be(4) != 1 || msg_load32be(6) != 0 ||
        additional > 1)
        return ASHWAY_PASS;
    unsigned name_len = read_name(end, &hash);
    if (name_len == 0)
        return ASHWAY_PASS;
    unsigned at = HEADER + name_len;
    unsigned type = msg_load16be(at), class = msg_load16be(at + 2);
    at += 4;
    if (class != CLASS_IN || (type != TYPE_A && type != TYPE_AAAA))
        return ASHWAY_PASS;
    if (additional ? !is_opt(at, end) : at != end)
        return ASHWAY_PASS;
    const struct zone_name *name = find(hash, name_len);
    if (name == 0 || !(name->has & (type == TYPE_A ? ZONE_A : ZONE_AAAA)))
        return ASHWAY_PASS;

    /* From here on nothing fails: a message that was changed cannot be passed on. */
    unsigned wants_dnssec = additional ? msg_load16be(at + 7) & 0x8000 : 0;
    unsigned data = type == TYPE_A ? 4 : 16;
    if (msg_resize(at + 12 + data + (additional ? OPT : 0)) != ASHWAY_RESIZED)
        return ASHWAY_PASS;
    msg_store16be(2, QR | AA | (flags & RD));
    msg_store16be(6, 1);

    /* The answer: a pointer to the question's name. */
    unsigned ttl = ashway_param_ttl < 0 || ashway_param_ttl > 0x7fffffff
                       ? 0
                       : (unsigned)ashway_param_ttl;
    msg_store32be(at, 0xc00c0000u | type);
    msg_store16be(at + 4, CLASS_IN);
    msg_store32be(at + 6, ttl);
    msg_store16be(at + 10, data);
    msg_write(at + 12, type == TYPE_A ? name->a : name->aaaa, data);
    at += 12 + data;
    if (additional) {
        msg_store8(at, 0);
        msg_store16be(at + 1, TYPE_OPT);
        msg_store16be(at + 3, UDP_SIZE);
        /* Of the flags DO is copied (RFC 3225, 3); rcode and version are 0. */
        msg_store32be(at + 5, wants_dnssec);
        msg_store16be(at + 9, 0);
    }
    return ASHWAY_REPLY;
}
