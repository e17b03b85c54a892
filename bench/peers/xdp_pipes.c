/*
 * What a list of pipes does, as one would write it by hand for XDP: a message goes to
 * a map's value, is summed on the way, and swapped and masked (`ashway bench pipes`).
 *
 * A frame is one of Ashway's small program around a handler (codegen/src/stub.rs):
 * the message's length, and the message behind 64 bytes. What came of it is left in
 * the frame: the sum at 8, the last word that was stored at 16. Lengths are multiples
 * of 64, whatever else there is would take more branches.
 *
 * Built by bench/src/peers.rs, needs libbpf-dev.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define HEADER 64
#define CHUNK 64
#define LONGEST 2048
#define KEY 0xdeadbeefdeadbeef

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u8[LONGEST]);
} memory SEC(".maps");

/* The bytes of both halves in reverse order. */
static __always_inline __u64 swap(__u64 word)
{
    word = (word & 0x00ff00ff00ff00ff) << 8 | (word >> 8 & 0x00ff00ff00ff00ff);
    return (word & 0x0000ffff0000ffff) << 16 | (word >> 16 & 0x0000ffff0000ffff);
}

static __always_inline int pass(struct xdp_md *ctx, int sums, int swaps)
{
    void *data = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    __u32 zero = 0;
    __u8 *to = bpf_map_lookup_elem(&memory, &zero);
    __u64 sum = 0, word = 0;

    if (!to || data + HEADER > end)
        return XDP_DROP;
    __u32 len = *(__u32 *)data;
    for (__u32 at = 0; at + CHUNK <= len && at + CHUNK <= LONGEST; at += CHUNK) {
        const __u64 *from = data + HEADER + at;
        __u64 *into = (__u64 *)(to + at);

        if ((void *)from + CHUNK > end)
            return XDP_DROP;
#pragma unroll
        for (int i = 0; i < CHUNK / 8; i++) {
            word = from[i];
            if (sums)
                sum += (word & 0xffffffff) + (word >> 32);
            if (swaps)
                word = swap(word) ^ KEY;
            into[i] = word;
        }
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    for (int i = 0; i < 3; i++)
        sum = (sum & 0xffff) + (sum >> 16);
    *(__u32 *)(data + 8) = sum;
    *(__u64 *)(data + 16) = word;
    return XDP_PASS;
}

SEC("xdp")
int ashway_copy(struct xdp_md *ctx)
{
    return pass(ctx, 0, 0);
}

SEC("xdp")
int ashway_sum(struct xdp_md *ctx)
{
    return pass(ctx, 1, 0);
}

SEC("xdp")
int ashway_all(struct xdp_md *ctx)
{
    return pass(ctx, 1, 1);
}

/* What running any program costs. */
SEC("xdp")
int ashway_empty(struct xdp_md *ctx)
{
    return XDP_PASS;
}

char licence[] SEC("license") = "Dual MIT/GPL";
