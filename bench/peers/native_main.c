/*
 * Runs a program of apps/programs as an ordinary one.
 *
 *     NAME answer < MESSAGES     for each message: verdict, message as it is then
 *     NAME time REPEAT < MESSAGE ns per call of REPEAT calls on the first message
 *
 * A message is its length (32 bits) and its bytes; a verdict has 32 bits.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LONGEST 65536

int native_run(unsigned char *message, int len);

static unsigned char message[LONGEST];

static int next(uint32_t *len)
{
    return fread(len, sizeof *len, 1, stdin) == 1 && *len <= LONGEST &&
           fread(message, 1, *len, stdin) == *len;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int argc, char **argv)
{
    uint32_t len;

    if (argc == 2 && !strcmp(argv[1], "answer")) {
        while (next(&len)) {
            int verdict = native_run(message, len);
            fwrite(&verdict, sizeof verdict, 1, stdout);
            fwrite(message, 1, len, stdout);
        }
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "time") && next(&len)) {
        long repeat = atol(argv[2]);
        double begin = now();
        for (long i = 0; i < repeat; i++)
            native_run(message, len);
        printf("%f\n", (now() - begin) / repeat);
        return 0;
    }
    fprintf(stderr, "usage: %s answer|time REPEAT < MESSAGES\n", argv[0]);
    return 2;
}
