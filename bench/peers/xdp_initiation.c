/*
 * What a handler begins by itself, as one could begin it within the kernel: several
 * messages from one, a message of its own, a timer (`ashway bench initiation`).
 *
 * One program at `b0` does what the port of a request says; the request's first byte
 * says how many messages are wanted. All go back to its sender, with no UDP checksum:
 * what the sums would take is in none of them. Names that begin with `may_` are not run:
 * whether the verifier takes them is the question.
 *
 * Built by bench/src/peers.rs, needs libbpf-dev.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum port { REPLY = 7200, RESIZED, TIMER, BROADCAST, EACH, TC, PAIR };

/* Of a request, and of a message of one's own. */
#define ASKED 64
#define OWN 200
#define MOST 16
#define CLOCK_MONOTONIC 1

#define PEERS(name, count)                       \
    struct {                                     \
        __uint(type, BPF_MAP_TYPE_DEVMAP);       \
        __uint(max_entries, count);              \
        __type(key, __u32);                      \
        __type(value, struct bpf_devmap_val);    \
    } name SEC(".maps")

/* The loader fills them: all are `b0`; those whose names begin with `each` have the
 * program `each` at every entry, `pair` has `first` and `second`. */
PEERS(same_1, 1);
PEERS(same_2, 2);
PEERS(same_4, 4);
PEERS(same_16, 16);
PEERS(each_1, 1);
PEERS(each_2, 2);
PEERS(each_4, 4);
PEERS(each_16, 16);
PEERS(pair, 2);

/* What the messages of one's own say. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST);
    __type(key, __u32);
    __type(value, __u8[OWN]);
} messages SEC(".maps");

/* Which copy comes next on this CPU. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} copies SEC(".maps");

struct slot {
    struct bpf_timer timer;
    __u64 due;
    __u64 begun;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

/* One page, which the loader maps at ARENA and touches. */
#define BPF_MAP_TYPE_ARENA_ 33
#define ARENA (1ull << 44)
#define __arena __attribute__((address_space(1)))

struct {
    __uint(type, BPF_MAP_TYPE_ARENA_);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
} arena SEC(".maps");

/* Makes this a program with the arena. */
#define USES_ARENA asm volatile("" ::"r"(&arena))
#define LATE (*(volatile __u64 __arena *)ARENA)

struct headers {
    struct ethhdr eth;
    struct iphdr ip;
    struct udphdr udp;
} __attribute__((packed));

static __always_inline void turn(struct headers *it)
{
    __u8 mac[ETH_ALEN];

    __builtin_memcpy(mac, it->eth.h_dest, ETH_ALEN);
    __builtin_memcpy(it->eth.h_dest, it->eth.h_source, ETH_ALEN);
    __builtin_memcpy(it->eth.h_source, mac, ETH_ALEN);
    __be32 address = it->ip.saddr;
    it->ip.saddr = it->ip.daddr;
    it->ip.daddr = address;
    __be16 port = it->udp.source;
    it->udp.source = it->udp.dest;
    it->udp.dest = port;
    it->udp.check = 0;
}

/* Lengths of a message of one's own; RFC 1624, equation 3. */
static __always_inline void lengthen(struct headers *it)
{
    __be16 len = bpf_htons(sizeof(it->ip) + sizeof(it->udp) + OWN);
    __u32 sum = (__u16)~it->ip.check + (__u16)~it->ip.tot_len + len;

    sum = (sum & 0xffff) + (sum >> 16);
    it->ip.check = ~(sum + (sum >> 16));
    it->ip.tot_len = len;
    it->udp.len = bpf_htons(sizeof(it->udp) + OWN);
}

/* The message of this number into the frame. */
static __always_inline int fill(void *data, void *end, __u32 number)
{
    __u8 *payload = data + sizeof(struct headers);
    const __u8 *message = bpf_map_lookup_elem(&messages, &number);

    if (!message || (void *)(payload + OWN) > end)
        return 0;
    __builtin_memcpy(payload, message, OWN);
    payload[0] = number;
    return 1;
}

/* A frame for a message of one's own. It grows in front, where every driver leaves 256
 * bytes: behind a short frame a veth leaves less than 64. */
static __always_inline struct headers *longer(struct xdp_md *ctx)
{
    struct headers *it = (void *)(long)ctx->data;

    if ((void *)(it + 1) > (void *)(long)ctx->data_end)
        return 0;
    struct headers headers = *it;
    if (bpf_xdp_adjust_head(ctx, ASKED - OWN))
        return 0;
    it = (void *)(long)ctx->data;
    if ((void *)(it + 1) + OWN > (void *)(long)ctx->data_end)
        return 0;
    *it = headers;
    lengthen(it);
    return it;
}

static int on_due(void *map, __u32 *key, struct slot *slot)
{
    USES_ARENA;
    LATE = bpf_ktime_get_ns() - slot->due;
    return 0;
}

/* `arm`: or everything but that. */
static __always_inline int set_timer(__u32 number, __u64 ns, int arm)
{
    struct slot *slot = bpf_map_lookup_elem(&slots, &number);

    if (!slot)
        return 0;
    if (!slot->begun) {
        slot->begun = 1;
        bpf_timer_init(&slot->timer, &slots, CLOCK_MONOTONIC);
        bpf_timer_set_callback(&slot->timer, on_due);
    }
    slot->due = bpf_ktime_get_ns() + ns;
    if (arm)
        bpf_timer_start(&slot->timer, ns, 0);
    return 1;
}

/* As Ashway answers on a veth: `XDP_TX` arrives only where the peer has a program, too. */
static __always_inline int back(struct xdp_md *ctx)
{
    return bpf_redirect(ctx->ingress_ifindex, 0);
}

#define TO_PEERS(name, wanted, flags)                                \
    ((wanted) == 1   ? bpf_redirect_map(&name##_1, 0, flags)         \
     : (wanted) == 2 ? bpf_redirect_map(&name##_2, 0, flags)         \
     : (wanted) == 4 ? bpf_redirect_map(&name##_4, 0, flags)         \
                     : bpf_redirect_map(&name##_16, 0, flags))

SEC("xdp")
int ashway_begin(struct xdp_md *ctx)
{
    struct headers *it = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    __u8 *payload = (void *)(it + 1);

    if ((void *)(payload + ASKED) > end)
        return XDP_PASS;
    if (it->eth.h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)&it->ip != 0x45 ||
        it->ip.protocol != IPPROTO_UDP)
        return XDP_PASS;
    int port = bpf_ntohs(it->udp.dest);
    __u8 wanted = payload[0];
    /* The rest of the way is tc's. */
    if (port < REPLY || port > PAIR || port == TC)
        return XDP_PASS;
    turn(it);
    switch (port) {
    case RESIZED:
        it = longer(ctx);
        if (!it || !fill(it, (void *)(long)ctx->data_end, 0))
            return XDP_DROP;
        return back(ctx);
    case TIMER: {
        USES_ARENA;
        __be32 *word = (__be32 *)payload;
        __u32 ns = bpf_ntohl(*word);
        *word = bpf_htonl(LATE);
        /* Until it is over. */
        LATE = 0xffffffff;
        return set_timer(0, ns, 1) ? back(ctx) : XDP_DROP;
    }
    case BROADCAST:
        return TO_PEERS(same, wanted, BPF_F_BROADCAST);
    case EACH:
        it = longer(ctx);
        if (!it)
            return XDP_DROP;
        *(__u8 *)(it + 1) = wanted;
        return TO_PEERS(each, wanted, BPF_F_BROADCAST);
    case PAIR:
        return bpf_redirect_map(&pair, 0, BPF_F_BROADCAST);
    default:
        return back(ctx);
    }
}

/* Makes each copy another message; nobody tells it which one it has. */
SEC("xdp/devmap")
int each(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    __u8 *wanted = data + sizeof(struct headers);
    __u32 zero = 0, *next = bpf_map_lookup_elem(&copies, &zero);

    /* How many there are the main program has left in the frame. */
    if (!next || (void *)(wanted + 1) > end)
        return XDP_DROP;
    __u32 number = *next;
    *next = number + 1 >= *wanted ? 0 : number + 1;
    return fill(data, end, number) ? XDP_PASS : XDP_DROP;
}

static __always_inline int mark(struct xdp_md *ctx, __u8 number)
{
    __u8 *payload = (void *)(long)ctx->data + sizeof(struct headers);

    if ((void *)(payload + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    *payload = number;
    return XDP_PASS;
}

SEC("xdp/devmap")
int first(struct xdp_md *ctx)
{
    return mark(ctx, 1);
}

SEC("xdp/devmap")
int second(struct xdp_md *ctx)
{
    return mark(ctx, 2);
}

SEC("tc")
int ashway_clones(struct __sk_buff *skb)
{
    __u32 ifindex = skb->ifindex;
    struct headers *it = (void *)(long)skb->data;

    if ((void *)(it + 1) + 1 > (void *)(long)skb->data_end)
        return TC_ACT_OK;
    if (it->eth.h_proto != bpf_htons(ETH_P_IP) || it->udp.dest != bpf_htons(TC))
        return TC_ACT_OK;
    __u32 wanted = *(__u8 *)(it + 1);
    turn(it);
    lengthen(it);
    if (bpf_skb_change_tail(skb, sizeof(*it) + OWN, 0))
        return TC_ACT_SHOT;
    for (__u32 number = 0; number < MOST && number < wanted; number++) {
        /* A clone shares the frame, so what is written makes a copy of it first. */
        if (bpf_skb_pull_data(skb, sizeof(*it) + OWN))
            return TC_ACT_SHOT;
        if (!fill((void *)(long)skb->data, (void *)(long)skb->data_end, number))
            return TC_ACT_SHOT;
        bpf_clone_redirect(skb, ifindex, 0);
    }
    return TC_ACT_SHOT;
}

/* What setting a timer takes: the first less the second. */
SEC("xdp")
int arm(struct xdp_md *ctx)
{
    USES_ARENA;
    set_timer(1, 1000000000, 1);
    return XDP_DROP;
}

SEC("xdp")
int arm_not(struct xdp_md *ctx)
{
    USES_ARENA;
    set_timer(1, 1000000000, 0);
    return XDP_DROP;
}

/* Whether the verifier takes it. */

SEC("?xdp")
int may_clone_a_frame(struct xdp_md *ctx)
{
    return bpf_clone_redirect((void *)ctx, 1, 0);
}

#define IN_TIMER(name, work)                                               \
    static int on_##name(void *map, __u32 *key, struct slot *slot)         \
    {                                                                      \
        work;                                                              \
        return 0;                                                          \
    }                                                                      \
    SEC("?xdp") int may_##name##_in_timer(struct xdp_md *ctx)              \
    {                                                                      \
        __u32 zero = 0;                                                    \
        struct slot *slot = bpf_map_lookup_elem(&slots, &zero);            \
        if (slot)                                                          \
            bpf_timer_set_callback(&slot->timer, on_##name);               \
        return XDP_DROP;                                                   \
    }

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} programs SEC(".maps");

IN_TIMER(write_the_arena, USES_ARENA; LATE = 1)
IN_TIMER(wake_the_worker, bpf_ringbuf_output(&ring, &slot->due, 8, 0))
IN_TIMER(set_a_timer, bpf_timer_start(&slot->timer, 100000, 0))
IN_TIMER(send_a_frame, bpf_clone_redirect(map, 1, 0))
IN_TIMER(tail_call, bpf_tail_call(map, &programs, 0))

SEC("?xdp")
int may_keep_a_timer_in_the_arena(struct xdp_md *ctx)
{
    USES_ARENA;
    return bpf_timer_start((struct bpf_timer *)(struct bpf_timer __arena *)ARENA, 100000, 0);
}

char licence[] SEC("license") = "Dual MIT/GPL";
