/*
 * Inbox: counts every message in its first four bytes, then leaves it to the
 * application.
 *
 *     [handler.inbox]
 *     file = "inbox.wasm"
 *     endpoint = 256
 *
 *     ashway handler map inbox --endpoint -- inbox_app sleep
 */
#include <ashway.h>

ASHWAY_SHARED unsigned seen;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len >= 4)
        msg_store32be(0, ++seen);
    return ASHWAY_DELIVER;
}
