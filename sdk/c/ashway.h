/*
 * Ashway handlers in C: ABI version 1, the part that exists today.
 *
 * A handler is a freestanding C file compiled to WebAssembly. It is called once
 * for each message of its path, says what becomes of the message by the verdict
 * it returns, and keeps its state in ordinary variables: their memory is one
 * and the same in both tiers and in the application that maps it.
 *
 *     #include <ashway.h>
 *
 *     ASHWAY_HANDLER int on_rx(int len, int channel) { return ASHWAY_REPLY; }
 *
 * `cargo xtask handlers` shows the compiler line; without it:
 *
 *     clang-19 --target=wasm32 -O2 -g -nostdlib -ffreestanding \
 *         -fvisibility=hidden -Isdk/c -fuse-ld=lld -Wl,--no-entry \
 *         -Wl,--export-dynamic -Wl,--stack-first -Wl,-z,stack-size=16384 \
 *         -Wl,--initial-memory=131072 -Wl,--max-memory=131072 \
 *         -o handler.wasm handler.c
 *
 * The numbers and signatures in here are those of the crate `ashway-abi`; a
 * test in `xtask` compares the two.
 */
#ifndef ASHWAY_H
#define ASHWAY_H

#ifndef __wasm32__
#error "ashway.h is for handlers (--target=wasm32); applications include ashway_app.h"
#endif

/* The version this file describes; a module carries it in a custom section. */
#define ASHWAY_ABI_VERSION 1

/*
 * The custom section `ashway.abi`: the version as a little-endian 32-bit number.
 * A handler made of several C files defines ASHWAY_NOT_FIRST in all but one,
 * because the linker joins equally named sections.
 */
#ifndef ASHWAY_NOT_FIRST
__asm__(".section .custom_section.ashway.abi,\"\",@\n"
        ".int32 1\n"
        ".text\n");
#endif

/*
 * What becomes of the message. A number that is not in this table stops the
 * handler with cause `bad_verdict`.
 */
enum ashway_verdict {
    ASHWAY_CONSUME = 0, /* the message is used up */
    ASHWAY_REPLY = 1,   /* the same buffer goes back to the sender */
    ASHWAY_DELIVER = 2, /* the application's ring gets the message */
    ASHWAY_PASS = 3,    /* the host's own stack gets it, unchanged */
    ASHWAY_FORWARD = 4, /* it goes to another path or a next hop */
    ASHWAY_DROP = 5,    /* it is discarded */
    ASHWAY_ABORT = 6,   /* voluntary abort: the handler undid its work */
};

/* Exports a symbol of this file under its own name. */
#define ASHWAY_EXPORT __attribute__((visibility("default"), used))

/*
 * Marks a handler: `int on_rx(int len, int channel)`.
 *
 * `len` is the message's length in bytes, at the handler's own layer: above
 * `udp` the UDP payload, which may be empty. `channel` is 0:
 * there is one so far. The result is a verdict.
 */
#define ASHWAY_HANDLER ASHWAY_EXPORT

/* What a part of a handler in three parts returns to go on to the next. */
#define ASHWAY_GO_ON (-1)

/*
 * Defines the handler `name` in three parts (Wallach, Engler & Kaashoek 1996,
 * section II): look at the message and decide; do the work; make it count.
 *
 *     ASHWAY_THREE_PARTS(on_rx, examine, manipulate, commit, undo)
 *
 * `int examine(int len, int channel)` has changed nothing when it returns:
 * ASHWAY_GO_ON, or the verdict. `int manipulate(int len)` does the work and
 * returns ASHWAY_GO_ON, or ASHWAY_ABORT if it cannot. `int commit(int len)`
 * returns the verdict. If one of these two returns ASHWAY_ABORT, `void
 * undo(void)` brings memory back to what it was, and the message goes to the
 * path's next choice. A handler that is stopped is not asked to undo anything.
 */
#define ASHWAY_THREE_PARTS(name, examine, manipulate, commit, undo)                           \
    ASHWAY_HANDLER int name(int len, int channel)                                             \
    {                                                                                         \
        int verdict = examine(len, channel);                                                  \
        if (verdict != ASHWAY_GO_ON)                                                          \
            return verdict;                                                                   \
        verdict = manipulate(len);                                                            \
        if (verdict == ASHWAY_GO_ON)                                                          \
            verdict = commit(len);                                                            \
        if (verdict == ASHWAY_ABORT)                                                          \
            undo();                                                                           \
        return verdict;                                                                       \
    }

/*
 * Marks a variable the application may look for by name. The application can
 * write it at any time, also while the handler runs: declare it `volatile` if
 * the handler must not read it twice and get one value.
 *
 *     ASHWAY_SHARED unsigned counter;
 */
#define ASHWAY_SHARED ASHWAY_EXPORT

/*
 * Declares a parameter, a 64-bit number set from the configuration:
 *
 *     ASHWAY_PARAM(step, 1);            // params = { step = 5 }
 *     ... counter += ashway_param_step; // reads 5; without a config line, 1
 *
 * The daemon writes the value before the handler's first message.
 */
#define ASHWAY_PARAM(name, value) ASHWAY_EXPORT long long ashway_param_##name = (value)

/*
 * Declares a parameter that is a text, of at most `room` bytes (4096 in any case):
 *
 *     ASHWAY_TEXT_PARAM(greeting, 64, "hello"); // params = { greeting = "good day" }
 *     ... ashway_text_greeting.bytes, ashway_text_greeting.len ...
 *
 * The bytes are UTF-8, with no zero behind them.
 */
#define ASHWAY_TEXT_PARAM(name, most, value)                                     \
    _Static_assert(sizeof(value) - 1 <= (most) && (most) <= 4096,                \
                   "a text of more than its room, or room for more than 4096");  \
    ASHWAY_EXPORT struct {                                                       \
        unsigned room;                                                           \
        unsigned len;                                                            \
        char bytes[most];                                                        \
    } ashway_text_##name = { (most), sizeof(value) - 1, value }

/*
 * Marks a variable whose value outlives this version of the handler: at
 * `ashway handler swap` the next version begins with it, and with its own first
 * values everywhere else. One structure is best: the next version has to have the
 * same variables in the same order.
 *
 *     ASHWAY_STATE struct table table;
 *     ASHWAY_STATE_VERSION(2);
 *
 * The version is that of the form of the state, counted by the author, once in a
 * handler. A version of another number than the one before it exports a function
 * that makes its form from the older one, in place; it may use 10,000,000 units of
 * fuel, and messages wait meanwhile:
 *
 *     ASHWAY_EXPORT void migrate(int old_version) { ... }
 *
 * The custom section `ashway.state` holds where the state begins, where it ends,
 * and the version, as little-endian 32-bit numbers.
 */
#define ASHWAY_STATE __attribute__((section("ashway_state"), visibility("default"), used))
#define ASHWAY_STATE_VERSION(number) ASHWAY_STATE_SECTION_(number)
#define ASHWAY_STATE_SECTION_(number)                                            \
    extern unsigned char __start_ashway_state[], __stop_ashway_state[];          \
    __asm__(".section .custom_section.ashway.state,\"\",@\n"                      \
            ".int32 __start_ashway_state\n"                                      \
            ".int32 __stop_ashway_state\n"                                       \
            ".int32 " #number "\n"                                               \
            ".text\n")

/* Marks a host call by its name in the import module `ashway`. */
#define ASHWAY_IMPORT(name) __attribute__((import_module("ashway"), import_name(name)))

/*
 * Access to the message. `at` is an offset in bytes from the start of the
 * message; it needs no alignment. `be` is big-endian (network order), `le`
 * little-endian. Loads are zero-extended, stores take the low bits. Where a
 * negative `at` is taken, it reaches the headers in front of the message.
 *
 * Any byte outside the message stops the handler with cause `message_bounds`:
 * nothing of that access is done, what was done before stays done. A message
 * already changed is then dropped and never passed on. Each access costs a few
 * instructions in both tiers, it is not a call.
 */
ASHWAY_IMPORT("msg_load8") unsigned msg_load8(int at);
ASHWAY_IMPORT("msg_load16le") unsigned msg_load16le(int at);
ASHWAY_IMPORT("msg_load16be") unsigned msg_load16be(int at);
ASHWAY_IMPORT("msg_load32le") unsigned msg_load32le(int at);
ASHWAY_IMPORT("msg_load32be") unsigned msg_load32be(int at);
ASHWAY_IMPORT("msg_load64le") unsigned long long msg_load64le(int at);
ASHWAY_IMPORT("msg_load64be") unsigned long long msg_load64be(int at);
ASHWAY_IMPORT("msg_store8") void msg_store8(unsigned at, unsigned value);
ASHWAY_IMPORT("msg_store16le") void msg_store16le(unsigned at, unsigned value);
ASHWAY_IMPORT("msg_store16be") void msg_store16be(unsigned at, unsigned value);
ASHWAY_IMPORT("msg_store32le") void msg_store32le(unsigned at, unsigned value);
ASHWAY_IMPORT("msg_store32be") void msg_store32be(unsigned at, unsigned value);
ASHWAY_IMPORT("msg_store64le") void msg_store64le(unsigned at, unsigned long long value);
ASHWAY_IMPORT("msg_store64be") void msg_store64be(unsigned at, unsigned long long value);

/*
 * Copies `len` bytes between the message, from `at` on, and memory. Memory
 * outside the handler's own stops it with cause `memory_bounds`. The cost grows
 * with `len`.
 */
ASHWAY_IMPORT("msg_read") void msg_read(int at, void *into, unsigned len);
ASHWAY_IMPORT("msg_write") void msg_write(unsigned at, const void *from, unsigned len);

/* What `msg_resize` answers. */
enum {
    ASHWAY_RESIZED = 0, /* the message has that length now */
    ASHWAY_NO_ROOM = 1, /* it was not declared to get so long; nothing has changed */
};

/*
 * Makes the message `len` bytes long, at its end: it loses what is behind, or gains
 * zeros. By how many bytes it may be longer than it came is declared, once in a
 * handler, at most 4096 (without it, 0):
 *
 *     ASHWAY_GROWS(512);
 *
 * The custom section `ashway.grows` holds that as a little-endian 32-bit number. A
 * message whose frame has not so much room runs in the user tier. The message is
 * changed, as by a store; a reply and a delivery have its new length.
 */
ASHWAY_IMPORT("msg_resize") unsigned msg_resize(unsigned len);
#define ASHWAY_GROWS(bytes) ASHWAY_GROWS_SECTION_(bytes)
#define ASHWAY_GROWS_SECTION_(bytes)                                             \
    __asm__(".section .custom_section.ashway.grows,\"\",@\n"                      \
            ".int32 " #bytes "\n"                                                \
            ".text\n")

/*
 * The time in ns on CLOCK_MONOTONIC, which applications read with
 * clock_gettime(). Takes `allow = ["time"]`. Costs 128 units of fuel.
 */
ASHWAY_IMPORT("now_ns") unsigned long long now_ns(void);

/*
 * Writes a line for whoever runs the node (`ashway handler log NAME`): its first 104
 * bytes, and of an activation the first four lines; what is more is counted. Kept
 * however the handler ends. Takes `allow = ["log"]`.
 */
ASHWAY_IMPORT("log") void ashway_log(const void *from, unsigned len);

/* What `send` and `msg_clone` answer. */
enum {
    ASHWAY_SENT = 0,       /* it leaves when the handler has ended */
    ASHWAY_NO_CHANNEL = 1, /* no channel has this number */
    ASHWAY_SENT_ENOUGH = 2, /* 16 messages were sent already */
    ASHWAY_TOO_LONG = 3,   /* more than 4096 bytes */
};

/*
 * Sends a message of `len` bytes to a channel: one of the peers that the
 * configuration names (`channels`), from 0. The bytes are taken now; they leave when
 * the handler has ended, before its verdict is carried out, and never if it aborts or
 * is stopped. Takes `allow = ["send"]`. User tier only. `msg_clone` sends the message
 * itself, as it is now.
 */
ASHWAY_IMPORT("send") unsigned send(unsigned channel, const void *from, unsigned len);
ASHWAY_IMPORT("msg_clone") unsigned msg_clone(unsigned channel);

/*
 * Has `on_timer(0, id)` run in `ns` nanoseconds, once, or never again with
 * ASHWAY_NEVER; what was set for this number before is forgotten. Numbers are 0 to
 * 63, else the answer is 1. Not sooner than in 100 us. It counts from the end of the
 * handler, and not at all if that aborts or is stopped. Takes `allow = ["timer"]`.
 * User tier only.
 *
 *     ASHWAY_HANDLER int on_timer(int len, int id) { ... return ASHWAY_CONSUME; }
 */
#define ASHWAY_NEVER 0xffffffffffffffffULL
ASHWAY_IMPORT("timer_set") unsigned timer_set(unsigned id, unsigned long long ns);

/*
 * Declares a list of pipes: what data passes on its way, as one loop that is made
 * when the handler is loaded (`ashway pipe list`, docs/guide/pipes.md). Lists are
 * numbered from 0 in the order of the file; at most 16, in one of the C files.
 *
 *     ASHWAY_PIPES("cksum16 | bswap32");
 *     ASHWAY_PIPES("flip:8 | cksum16");
 *     enum { SUM_AND_SWAP, FLIP_AND_SUM };
 *
 *     ASHWAY_EXPORT unsigned flip(unsigned byte) { return byte ^ 0xff; }
 *
 * `flip:8` is a function of the handler itself, for words of 8 bits: straight code,
 * `(word, state...) -> (word, state...)`. The custom section `ashway.pipes` holds the
 * lists, each on a line.
 */
#define ASHWAY_PIPES(list)                                                       \
    __asm__(".section .custom_section.ashway.pipes,\"\",@\n"                     \
            ".ascii \"" list "\\n\"\n"                                           \
            ".text\n")

/*
 * Runs a list over `len` bytes: from the message, from `at` on, into memory; from
 * memory into the message; in memory. Bounds and causes are those of `msg_read` and
 * `msg_write`, but `at` begins at 0; a list that there is not stops with cause
 * `table_bounds`. The cost grows with `len` and the list. Takes `allow = ["pipe"]`.
 *
 * Between runs a list's registers keep what they hold: `pipe_set` exports a number to
 * one before a run, `pipe_get` imports it behind. Registers of all lists are numbered
 * through, from 0; `ashway handler check` prints them.
 */
ASHWAY_IMPORT("pipe_read") void pipe_read(unsigned at, void *into, unsigned len, unsigned list);
ASHWAY_IMPORT("pipe_write") void pipe_write(unsigned at, const void *from, unsigned len, unsigned list);
ASHWAY_IMPORT("pipe_in_place") void pipe_in_place(void *data, unsigned len, unsigned list);
ASHWAY_IMPORT("pipe_set") void pipe_set(unsigned number, unsigned long long value);
ASHWAY_IMPORT("pipe_get") unsigned long long pipe_get(unsigned number);

#endif
