/*
 * What the host calls of native.h are for a program in Rust, which links to them by name.
 */
#include "../../apps/programs/native.h"

extern void calls_read(unsigned at, void *into, unsigned len) __asm__("msg_read");
extern void calls_store32le(unsigned at, unsigned value) __asm__("msg_store32le");

void calls_read(unsigned at, void *into, unsigned len)
{
    msg_read(at, into, len);
}

void calls_store32le(unsigned at, unsigned value)
{
    msg_store32le(at, value);
}
