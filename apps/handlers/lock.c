/*
 * Remote lock: acquires and releases 256 locks for remote owners.
 *
 *   request  0: operation (8 bits): 1 acquire, 2 release
 *            1: zero (8 bits)
 *            2: lock (16 bits, big-endian): 0 to 255
 *            4: owner (32 bits, big-endian): not 0
 *   reply    the request, with the operation replaced by the status:
 *            0 granted, 1 held by another, 2 not the owner, 3 bad request
 *
 * Acquiring a lock one already holds is granted again, so that a client whose
 * reply was lost may repeat its request. Messages too short for a request go to
 * the host's stack.
 *
 * Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), section I: remote lock
 * acquisition as the example of control initiation.
 */
#include <ashway.h>

enum { ACQUIRE = 1, RELEASE = 2 };
enum { GRANTED = 0, HELD = 1, NOT_OWNER = 2, BAD_REQUEST = 3 };
enum { LOCKS = 256, FREE = 0 };

/*
 * The owner of each lock. The application may read it and may write it, for
 * instance to free the locks of a client that died.
 */
ASHWAY_SHARED unsigned locks[LOCKS];

static int acquire(unsigned lock, unsigned owner)
{
    if (locks[lock] != FREE && locks[lock] != owner)
        return HELD;
    locks[lock] = owner;
    return GRANTED;
}

static int release(unsigned lock, unsigned owner)
{
    if (locks[lock] != owner)
        return NOT_OWNER;
    locks[lock] = FREE;
    return GRANTED;
}

static int serve(unsigned operation, unsigned zero, unsigned lock, unsigned owner)
{
    if (zero != 0 || lock >= LOCKS || owner == FREE)
        return BAD_REQUEST;
    if (operation == ACQUIRE)
        return acquire(lock, owner);
    if (operation == RELEASE)
        return release(lock, owner);
    return BAD_REQUEST;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 8)
        return ASHWAY_PASS;
    msg_store8(0, serve(msg_load8(0), msg_load8(1), msg_load16be(2), msg_load32be(4)));
    return ASHWAY_REPLY;
}
