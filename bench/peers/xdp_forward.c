/*
 * The UDP relay as one would write it by hand for XDP: what Ashway's kernel-tier
 * forwarding is measured against.
 *
 * It checks what Ashway's entry program checks, in the same order: destination is
 * the interface, IPv4 without options, UDP, the port, not a fragment, the three
 * lengths, the IPv4 header checksum, and the UDP checksum (none, the
 * pseudo-header's half, or whole). It writes new headers as Ashway's forward
 * program does (fresh TTL, nothing of the old header, whole UDP checksum),
 * redirects, and counts one outcome. Everything about the path is a constant:
 * there is one path, no map of hops and no dispatch, and headers stay as long as
 * they were, padding included. The payload is summed once for both checksums.
 *
 * Built by `ashway bench forward` (bench/src/peers.rs), needs libbpf-dev.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORT 9000
/* 02:00:00:00:00:0b, as its words are loaded. */
#define MAC_HIGH 0x00000002
#define MAC_LOW 0x0b00
#define TTL 64
/* The next hop: C by the interface 77 of B. */
#define OUT 77
#define OWN bpf_htonl(0x0a000301)
#define NEXT bpf_htonl(0x0a000302)
#define OWN_PORT bpf_htons(7000)
#define NEXT_PORT bpf_htons(9001)

enum outcome { FORWARDED, BAD_LENGTH, BAD_CHECKSUM, FRAGMENT, OUTCOMES };

#include "xdp_common.h"

SEC("xdp")
int ashway_by_hand(struct xdp_md *ctx)
{
    static const __u8 macs[12] = {2, 0, 0, 0, 0, 0x0c, 2, 0, 0, 0, 0, 0x1b};
    void *data = (void *)(long)ctx->data;
    void *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);

    if ((void *)(udp + 1) > end)
        return XDP_PASS;
    if (*(__u32 *)eth->h_dest != MAC_HIGH || *(__u16 *)(eth->h_dest + 4) != MAC_LOW ||
        eth->h_proto != bpf_htons(ETH_P_IP))
        return XDP_PASS;
    if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x1fff))
        return XDP_PASS;
    if (*(__u8 *)ip != 0x45 || udp->dest != bpf_htons(PORT))
        return XDP_PASS;

    if (ip->frag_off & bpf_htons(0x2000))
        return finish(FRAGMENT, XDP_DROP);
    __u32 ip_len = bpf_ntohs(ip->tot_len);
    __u32 udp_len = bpf_ntohs(udp->len);
    if (udp_len < sizeof(*udp) || sizeof(*ip) + udp_len > ip_len ||
        ip_len > LONGEST || (void *)ip + ip_len > end)
        return finish(BAD_LENGTH, XDP_DROP);

    const __u32 *words = (const __u32 *)ip;
    __u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
    if (fold(sum) != 0xffff)
        return finish(BAD_CHECKSUM, XDP_DROP);

    /* One pass over the message serves both checksums. */
    __u64 pseudo = (__u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP) + udp->len;
    __u64 body = sum_of(udp + 1, udp_len - sizeof(*udp), end) + udp->len;
    if (udp->check != 0 && udp->check != fold(pseudo) &&
        fold(pseudo + body + udp->source + udp->dest + udp->check) != 0xffff)
        return finish(BAD_CHECKSUM, XDP_DROP);

    __builtin_memcpy(eth, macs, sizeof(macs));
    ip->tos = 0;
    ip->id = 0;
    ip->frag_off = bpf_htons(0x4000); /* RFC 6864, 4.1 */
    ip->ttl = TTL;
    ip->tot_len = bpf_htons(sizeof(*ip) + udp_len);
    ip->saddr = OWN;
    ip->daddr = NEXT;
    ip->check = 0;
    sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];
    ip->check = ~fold(sum);
    udp->source = OWN_PORT;
    udp->dest = NEXT_PORT;
    sum = (__u64)OWN + NEXT + bpf_htons(IPPROTO_UDP) + udp->len;
    __u16 check = ~fold(sum + body + OWN_PORT + NEXT_PORT);
    udp->check = check ? check : 0xffff;
    return finish(FORWARDED, bpf_redirect(OUT, 0));
}

char licence[] SEC("license") = "Dual MIT/GPL";
