/*
 * A handler as an ordinary function, for comparing with what the machine can do:
 *
 *     cc -O2 -shared -fPIC -include apps/programs/native.h -o crc32.so apps/programs/crc32.c
 *
 * The caller passes the message to `native_run`; nothing is checked. Stands in
 * for ashway.h, which these files then skip.
 */
#ifndef ASHWAY_H
#define ASHWAY_H

#define ASHWAY_EXPORT
#define ASHWAY_HANDLER
#define ASHWAY_SHARED
#define ASHWAY_PARAM(name, value) static volatile long long ashway_param_##name = (value)

enum ashway_verdict {
    ASHWAY_CONSUME,
    ASHWAY_REPLY,
    ASHWAY_DELIVER,
    ASHWAY_PASS,
    ASHWAY_FORWARD,
    ASHWAY_DROP,
    ASHWAY_ABORT,
};

static unsigned char *native_message;

/* Numbers in messages, for little-endian machines. */
#define NATIVE_ACCESS(bits, type, swap)                                                          \
    static inline type msg_load##bits##le(unsigned at)                                           \
    {                                                                                            \
        type value = 0;                                                                          \
        __builtin_memcpy(&value, native_message + at, bits / 8);                                 \
        return value;                                                                            \
    }                                                                                            \
    static inline type msg_load##bits##be(unsigned at)                                           \
    {                                                                                            \
        return swap(msg_load##bits##le(at));                                                     \
    }                                                                                            \
    static inline void msg_store##bits##le(unsigned at, type value)                              \
    {                                                                                            \
        __builtin_memcpy(native_message + at, &value, bits / 8);                                 \
    }                                                                                            \
    static inline void msg_store##bits##be(unsigned at, type value)                              \
    {                                                                                            \
        msg_store##bits##le(at, swap(value));                                                    \
    }

NATIVE_ACCESS(16, unsigned, __builtin_bswap16)
NATIVE_ACCESS(32, unsigned, __builtin_bswap32)
NATIVE_ACCESS(64, unsigned long long, __builtin_bswap64)

static inline unsigned msg_load8(unsigned at)
{
    return native_message[at];
}

static inline void msg_store8(unsigned at, unsigned value)
{
    native_message[at] = (unsigned char)value;
}

static inline void msg_read(unsigned at, void *into, unsigned len)
{
    __builtin_memcpy(into, native_message + at, len);
}

static inline void msg_write(unsigned at, const void *from, unsigned len)
{
    __builtin_memcpy(native_message + at, from, len);
}

int on_rx(int len, int channel);

/* Runs the handler on one message; returns its verdict. */
int native_run(unsigned char *message, int len)
{
    native_message = message;
    return on_rx(len, 0);
}

#endif
