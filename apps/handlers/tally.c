/*
 * A count over all CPUs: built to run on several of them at once
 * (`instances = "parallel"`), with `-matomics -mbulk-memory`.
 *
 *   request  0: number (32 bits, big-endian), added to the count
 *            4: sent back as it is
 *   reply    0: for the number 0xffffffff, messages that found their variables
 *               changed by another CPU; for 0xfffffffe, the count without
 *               atomics; else the count before the addition
 *
 * `counter` is what was sent, whoever adds to it meanwhile. `lossy` counts the
 * same by a load and a store, and may lose what another CPU adds between the
 * two. What is on the stack is each CPU's own. Messages too short for a number
 * go to the host's stack.
 */
#include <ashway.h>

/* Turns of the loop that keeps a message busy. */
ASHWAY_PARAM(turns, 400);

/* The application reads them by these names in its own mapping. */
ASHWAY_SHARED unsigned counter;
ASHWAY_SHARED volatile unsigned lossy;
ASHWAY_SHARED unsigned torn;

#define WORDS 16

/* Whether what lies on the stack is still there after a while. */
static int keeps(unsigned mark)
{
    volatile unsigned words[WORDS];

    for (unsigned i = 0; i < WORDS; i++)
        words[i] = mark + i;
    for (unsigned turn = 0; turn < (unsigned)ashway_param_turns; turn++)
        if (words[turn % WORDS] != mark + turn % WORDS)
            return 0;
    return 1;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned number, before;

    if (len < 4)
        return ASHWAY_PASS;
    number = msg_load32be(0);
    if (number == 0xffffffffu) {
        msg_store32be(0, __atomic_load_n(&torn, __ATOMIC_RELAXED));
        return ASHWAY_REPLY;
    }
    if (number == 0xfffffffeu) {
        msg_store32be(0, lossy);
        return ASHWAY_REPLY;
    }
    lossy += number;
    before = __atomic_fetch_add(&counter, number, __ATOMIC_RELAXED);
    /* Its product is another for each message. */
    if (!keeps(before * 2654435761u))
        __atomic_fetch_add(&torn, 1, __ATOMIC_RELAXED);
    msg_store32be(0, before);
    return ASHWAY_REPLY;
}
