/* Answers with a text from the configuration, whatever it is asked. */
#include <ashway.h>

ASHWAY_GROWS(64);
ASHWAY_TEXT_PARAM(greeting, 32, "hello");

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (msg_resize(ashway_text_greeting.len) != ASHWAY_RESIZED)
        return ASHWAY_PASS;
    msg_write(0, ashway_text_greeting.bytes, ashway_text_greeting.len);
    return ASHWAY_REPLY;
}
