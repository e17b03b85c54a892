/*
 * A key-value store: a hash table with open addressing, keys are strings.
 *
 *   request  0: operation (0 get, 1 set)
 *            1: length of the key (1..32)
 *            2: length of the value (0..32; of the room for it, if a get)
 *            4: key, then value
 *   reply    2: length of the value
 *            3: status (0 found or stored, 1 not found, 2 full)
 *            4: key, then value
 *
 * The same message again gives the same reply, so that it can be timed. Messages of another form go to the host's stack.
 */
#include <ashway.h>

#define SLOTS 1024
#define LONGEST 32

struct slot {
    unsigned char key_len; /* 0: free */
    unsigned char value_len;
    unsigned char key[LONGEST];
    unsigned char value[LONGEST];
};

static struct slot slots[SLOTS];

/* Fowler, Noll, Vo: FNV-1a, 32 bits. */
static unsigned hash(const unsigned char *key, unsigned len)
{
    unsigned h = 2166136261u;
    for (unsigned i = 0; i < len; i++)
        h = (h ^ key[i]) * 16777619u;
    return h;
}

static int is_key(const struct slot *slot, const unsigned char *key, unsigned len)
{
    if (slot->key_len != len)
        return 0;
    for (unsigned i = 0; i < len; i++)
        if (slot->key[i] != key[i])
            return 0;
    return 1;
}

/* The key's slot, or the free one where it belongs, or none. */
static struct slot *find(const unsigned char *key, unsigned len)
{
    unsigned at = hash(key, len);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[(at + i) % SLOTS];
        if (slot->key_len == 0 || is_key(slot, key, len))
            return slot;
    }
    return 0;
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    unsigned char key[LONGEST];
    if (len < 4)
        return ASHWAY_PASS;
    unsigned set = msg_load8(0), key_len = msg_load8(1), value_len = msg_load8(2);
    if (set > 1 || key_len - 1 >= LONGEST || value_len > LONGEST ||
        (unsigned)len != 4 + key_len + value_len)
        return ASHWAY_PASS;
    msg_read(4, key, key_len);
    struct slot *slot = find(key, key_len);
    if (!slot) {
        msg_store8(3, 2);
    } else if (set) {
        slot->key_len = (unsigned char)key_len;
        for (unsigned i = 0; i < key_len; i++)
            slot->key[i] = key[i];
        slot->value_len = (unsigned char)value_len;
        msg_read(4 + key_len, slot->value, value_len);
        msg_store8(3, 0);
    } else if (slot->key_len == 0) {
        msg_store8(3, 1);
    } else {
        unsigned fits = slot->value_len < value_len ? slot->value_len : value_len;
        msg_store8(3, 0);
        msg_store8(2, slot->value_len);
        msg_write(4 + key_len, slot->value, fits);
    }
    return ASHWAY_REPLY;
}
