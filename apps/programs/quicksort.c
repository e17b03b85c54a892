/*
 * Sorts the numbers of the message.
 *
 *   request  4: 1 to 512 numbers (32 bits, signed, little-endian)
 *   reply    0: the one in the middle, the lower if there are two
 *            4: the numbers as they were
 *
 * The application finds them in ascending order in `numbers`. Hoare's partition; the parts that wait are on a stack of its own, the smaller
 * one first, so that its depth is bounded. Source: Hoare 1961, "Algorithm 64".
 */
#include <ashway.h>

#define MOST 512

ASHWAY_SHARED int numbers[MOST];

static void sort(int count)
{
    struct {
        int low, high;
    } waiting[16];
    int depth = 0, low = 0, high = count - 1;
    for (;;) {
        while (low < high) {
            int pivot = numbers[low + (high - low) / 2];
            int i = low - 1, j = high + 1;
            for (;;) {
                do
                    i++;
                while (numbers[i] < pivot);
                do
                    j--;
                while (numbers[j] > pivot);
                if (i >= j)
                    break;
                int swapped = numbers[i];
                numbers[i] = numbers[j];
                numbers[j] = swapped;
            }
            if (j - low < high - j - 1) {
                waiting[depth].low = j + 1;
                waiting[depth++].high = high;
                high = j;
            } else {
                waiting[depth].low = low;
                waiting[depth++].high = j;
                low = j + 1;
            }
        }
        if (depth == 0)
            return;
        low = waiting[--depth].low;
        high = waiting[depth].high;
    }
}

ASHWAY_HANDLER int on_rx(int len, int channel)
{
    if (len < 8 || len % 4 != 0 || (unsigned)len > 4 + sizeof numbers)
        return ASHWAY_PASS;
    int count = len / 4 - 1;
    msg_read(4, numbers, 4 * (unsigned)count);
    sort(count);
    msg_store32le(0, (unsigned)numbers[(count - 1) / 2]);
    return ASHWAY_REPLY;
}
