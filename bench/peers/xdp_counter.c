/*
 * Remote increment as one would write it by hand for XDP, or with TC for traffic control's
 * ingress (tc_counter.c): what Ashway's kernel-tier counter is measured against.
 *
 * It checks what Ashway's entry program checks (codegen/src/entry.rs), in the
 * same order: destination is the interface, IPv4 without options, UDP, the port, not
 * a fragment, the three lengths, the IPv4 header checksum, and the UDP checksum
 * (none, the pseudo-header's half, or whole). It adds the request's number to a
 * counter in an array that user space can map, answers with the sum from the
 * same buffer (fresh TTL, whole UDP checksum), and counts one outcome. Port and
 * offsets are constants; there is one path and no dispatch.
 *
 * For the same request and counter the reply equals Ashway's byte for byte
 * (bench/tests/peers.rs).
 *
 * Built by `ashway bench counter` (bench/src/peers.rs), needs libbpf-dev.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORT 7777
/* 02:00:00:00:00:0b, as its words are loaded. */
#define MAC_HIGH 0x00000002
#define MAC_LOW 0x0b00
#define TTL 64

#ifdef TC
#define HOOK SEC("tc")
#define CONTEXT struct __sk_buff
#define PASS (-1) /* TCX_NEXT */
#define DROP 2 /* TCX_DROP */
#define ANSWER bpf_redirect(ctx->ifindex, 0)
#else
#define HOOK SEC("xdp")
#define CONTEXT struct xdp_md
#define PASS XDP_PASS
#define DROP XDP_DROP
#define ANSWER XDP_TX
#endif

enum outcome { ANSWERED, PASSED, BAD_LENGTH, BAD_CHECKSUM, FRAGMENT, NO_SENDER, OUTCOMES };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} counter SEC(".maps");

#include "xdp_common.h"

/* Neither nobody's, nor the host's own (127/8), nor a group's (224.0.0.0 up). */
static __always_inline int is_host(__be32 address)
{
    __u32 first = address & bpf_htonl(0xff000000);

    return address != 0 && first != 127 && first < 224;
}

HOOK
int ashway_by_hand(CONTEXT *ctx)
{
    void *data = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    __be32 *number = (void *)(udp + 1);

    if ((void *)(udp + 1) > end)
        return PASS;
    if (*(__u32 *)eth->h_dest != MAC_HIGH || *(__u16 *)(eth->h_dest + 4) != MAC_LOW ||
        eth->h_proto != bpf_htons(ETH_P_IP))
        return PASS;
    if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x1fff))
        return PASS;
    if (*(__u8 *)ip != 0x45 || udp->dest != bpf_htons(PORT))
        return PASS;

    if (ip->frag_off & bpf_htons(0x2000))
        return finish(FRAGMENT, DROP);
    __u32 ip_len = bpf_ntohs(ip->tot_len);
    __u32 udp_len = bpf_ntohs(udp->len);
    if (udp_len < sizeof(*udp) || sizeof(*ip) + udp_len > ip_len ||
        ip_len > LONGEST || (void *)ip + ip_len > end)
        return finish(BAD_LENGTH, DROP);

    const __u32 *words = (const __u32 *)ip;
    __u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
    if (fold(sum) != 0xffff)
        return finish(BAD_CHECKSUM, DROP);

    /* The pseudo-header's sum does not mind which end is which, nor does the
     * sum of the ports: one pass over the message serves request and reply. */
    __u64 pseudo = (__u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP) + udp->len;
    __u64 body = sum_of(number, udp_len - sizeof(*udp), end);
    body += (__u64)udp->source + udp->dest + udp->len;
    if (udp->check != 0 && udp->check != fold(pseudo) &&
        fold(pseudo + body + udp->check) != 0xffff)
        return finish(BAD_CHECKSUM, DROP);

    /* The second comparison follows from the first, which the compiler sees and
     * the verifier does not. */
    barrier_var(end);
    if (udp_len < sizeof(*udp) + sizeof(*number) || (void *)(number + 1) > end)
        return finish(PASSED, PASS);
    if (eth->h_source[0] & 1 || !is_host(ip->saddr) || !is_host(ip->daddr) ||
        udp->source == 0)
        return finish(NO_SENDER, DROP);
    __u32 zero = 0;
    __u32 *value = bpf_map_lookup_elem(&counter, &zero);
    if (!value)
        return PASS;
#ifdef TURNS
    volatile __u32 word;
#pragma clang loop unroll(disable)
    for (int left = TURNS; left > 0; left--)
        word = left;
    (void)word;
#endif
    __u32 add = bpf_ntohl(*number);
    __be32 reply = bpf_htonl(__sync_fetch_and_add(value, add) + add);
    body += (__u64)(~*number & 0xffffffff) + reply;
    *number = reply;

    __u8 mac[ETH_ALEN];
    __builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, mac, ETH_ALEN);
    __be32 address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    __be16 port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;

    /* RFC 1624 equation 3 on the word of TTL and protocol. */
    __u16 *ttl_word = (__u16 *)&ip->ttl;
    __u16 before = *ttl_word;
    ip->ttl = TTL;
    ip->check = ~fold((__u64)(__u16)~ip->check + (__u16)~before + *ttl_word);
#ifdef TC
    /* A socket buffer has its half completed on the way out; it is the same both ways. */
    if (udp->check == fold(pseudo))
        return finish(ANSWERED, ANSWER);
#endif
    __u16 check = ~fold(pseudo + body);
    udp->check = check ? check : 0xffff;
    return finish(ANSWERED, ANSWER);
}

/* What running any program costs: subtracted from both. */
HOOK
int ashway_empty(CONTEXT *ctx)
{
    return DROP;
}

char licence[] SEC("license") = "Dual MIT/GPL";
