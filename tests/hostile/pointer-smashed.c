// both: indirect_call at here. A function pointer behind a buffer, overwritten by the message that is copied there.
#include <ashway.h>

static int answer(void) { return ASHWAY_CONSUME; }
static int refuse(void) { return ASHWAY_DROP; }

static struct {
    char text[8];
    int (*volatile then)(void);
} request;

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    request.then = len & 1 ? answer : refuse;
    msg_read(0, request.text, len < 12 ? len : 12); /* room for 8 */
    return request.then(); /* here */
}
