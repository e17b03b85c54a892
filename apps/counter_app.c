/*
 * The application of the counter handler: prints the counter as it stands in
 * memory, once for each line on standard input, until that ends. A line with a
 * number sets the counter first.
 *
 *     ashway handler map counter -- counter_app
 *
 * It exchanges no message with anyone: the handler's variable is a variable of
 * this process too.
 */
#include <ashway_app.h>

#include <ctype.h>
#include <err.h>
#include <stdio.h>

int main(void)
{
    struct ashway_memory memory;

    if (ashway_memory_open(&memory) != 0)
        err(1, "cannot map the handler's memory (started by `ashway handler map`?)");
    volatile unsigned *counter = ashway_symbol(&memory, "counter");
    if (counter == NULL)
        errx(1, "the handler shares no variable named `counter`");

    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (isdigit((unsigned char)line[0]))
            *counter = (unsigned)strtoul(line, NULL, 10);
        printf("%u\n", *counter);
        fflush(stdout);
    }
    ashway_memory_close(&memory);
    return 0;
}
