/*
 * Seats of a hall: reserves several at once, all or none.
 *
 *   request  0: how many (32 bits, big-endian): 1 to 16
 *            4: the seats (16 bits each, big-endian): 0 to 255
 *   reply    the request, with the number of seats still free in place of the
 *            first field
 *
 * In three parts: a request that is none goes to the host; while the application
 * holds the hall, or if a seat is taken, the handler aborts, nothing is reserved,
 * and the next choice answers the request in its own way.
 */
#include <ashway.h>

enum { SEATS = 256, MOST = 16 };
enum { FREE = 0, TAKEN = 1 };

/* The application holds the hall: it may be in the middle of a change. */
ASHWAY_SHARED volatile unsigned held;

ASHWAY_SHARED unsigned char seats[SEATS];
ASHWAY_SHARED unsigned left = SEATS;

/* What has been done for this message, to be undone. */
static unsigned char journal[MOST];
static int done;

static int examine(int len, int channel)
{
    if (len < 4)
        return ASHWAY_PASS;
    unsigned count = msg_load32be(0);
    if (count == 0 || count > MOST || (unsigned)len != 4 + 2 * count)
        return ASHWAY_PASS;
    return held ? ASHWAY_ABORT : ASHWAY_GO_ON;
}

static int manipulate(int len)
{
    for (int at = 4; at < len; at += 2) {
        unsigned seat = msg_load16be(at);
        if (seat >= SEATS || seats[seat] != FREE)
            return ASHWAY_ABORT;
        seats[seat] = TAKEN;
        journal[done++] = seat;
        left -= 1;
    }
    return ASHWAY_GO_ON;
}

static void forget(void)
{
    while (done > 0)
        journal[--done] = 0;
}

static int commit(int len)
{
    /* The application may have taken the hall in between. */
    if (held)
        return ASHWAY_ABORT;
    forget();
    msg_store32be(0, left);
    return ASHWAY_REPLY;
}

static void undo(void)
{
    for (int i = 0; i < done; i++)
        seats[journal[i]] = FREE;
    left += done;
    forget();
}

ASHWAY_THREE_PARTS(on_rx, examine, manipulate, commit, undo)
