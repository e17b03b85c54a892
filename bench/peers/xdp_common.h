/*
 * What the XDP programs by hand share: a count of each outcome, of which the including
 * file says how many there are (OUTCOMES), and the Internet checksum.
 */
/* More than an MTU of 1500; a power of two. */
#define LONGEST 2048

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, OUTCOMES);
    __type(key, __u32);
    __type(value, __u64);
} outcomes SEC(".maps");

static __always_inline int finish(__u32 outcome, int action)
{
    __u64 *count = bpf_map_lookup_elem(&outcomes, &outcome);

    if (count)
        ++*count;
    return action;
}

/* RFC 1071: a 64-bit sum of 16-bit words down to 16 bits. */
static __always_inline __u16 fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Sum of the `bytes` at `at`; 0 also where the frame ends before (the caller
 * has compared the lengths, the verifier does not remember). */
static __always_inline __u64 sum_of(const void *at, __u32 bytes, const void *end)
{
    __u64 sum = 0;
    __u32 i;

    for (i = 0; i + 8 <= bytes && i < LONGEST; i += 8) {
        const __u32 *words = at + i;
        if ((const void *)(words + 2) > end)
            return 0;
        sum += words[0];
        sum += words[1];
    }
    at += i & (LONGEST - 1);
    if (bytes & 4) {
        if (at + 4 > end)
            return 0;
        sum += *(const __u32 *)at;
        at += 4;
    }
    if (bytes & 2) {
        if (at + 2 > end)
            return 0;
        sum += *(const __u16 *)at;
        at += 2;
    }
    if (bytes & 1) {
        if (at + 1 > end)
            return 0;
        sum += *(const __u8 *)at;
    }
    return sum;
}
