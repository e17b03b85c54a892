/*
 * The table of names that `zone.c` answers from and `zone_app.c` fills. It lies in the
 * handler's memory, so its layout must be the same for Wasm and for the host: no
 * pointers, no `long`.
 */
#ifndef ZONE_H
#define ZONE_H

enum {
    ZONE_NAMES = 1024,
    /* Open addressing with linear probing: half of the buckets stay empty. */
    ZONE_BUCKETS = 2048,
    /* Longest name in wire form (RFC 1035, 3.1), with the empty label at its end. */
    ZONE_NAME_BYTES = 64,
};

/* Bits of `has`. */
enum { ZONE_A = 1, ZONE_AAAA = 2 };

/* One name. Never changed once a bucket leads to it. */
struct zone_name {
    unsigned char name[ZONE_NAME_BYTES]; /* wire form, in lower case */
    unsigned char aaaa[16];              /* addresses in network order */
    unsigned char a[4];
    unsigned len;                        /* bytes of `name` */
    unsigned has;
    unsigned unused;
};

/*
 * A bucket holds the number of a name plus 1, or 0. It is written last, in one store: a
 * handler that runs meanwhile finds the whole name, or does not find it. A name gets
 * other addresses by another entry, to which its bucket then leads.
 */
struct zone {
    unsigned short buckets[ZONE_BUCKETS];
    struct zone_name names[ZONE_NAMES];
    unsigned used; /* entries, also of names that got another one since */
};

/* Names are equal in any case (RFC 1035, 2.3.3). */
static inline unsigned zone_lower(unsigned c)
{
    return c - 'A' < 26 ? c + ('a' - 'A') : c;
}

/* FNV-1a over the wire form in lower case, a byte at a time. */
#define ZONE_HASH_START 2166136261u

static inline unsigned zone_hash(unsigned hash, unsigned c)
{
    return (hash ^ c) * 16777619u;
}

/* FNV's lowest bits are its worst ones. */
static inline unsigned zone_bucket(unsigned hash)
{
    return (hash ^ hash >> 15) % ZONE_BUCKETS;
}

#endif
