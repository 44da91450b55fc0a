/* packet_filter.c - see packet_filter.h.  The filter is a program of classic BPF (Linux,
 * Documentation/networking/filter.rst).  Classic BPF has no loops, so the code is repeated for each network and each
 * item.  Offsets count from the UDP header; offsets from SKF_NET_OFF on count from the IP header.  A load beyond the
 * end of the packet would make the filter refuse the packet, so the program checks lengths first. */
#include "common/net/packet_filter.h"

#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define SENDER_AT        (SKF_NET_OFF + 12) /* offset of the source address in the IPv4 header */
#define UDP_HEADER_BYTES 8
#define N_ITEMS_AT       (UDP_HEADER_BYTES + 6)
#define ITEM_AT(i)       (UDP_HEADER_BYTES + 8 + 8 * (i))
#define ITEMS_MAX        16
#define IMMEDIATE        0x8000u

/* Offsets in the part of the filter that selects a thread's share of the packets.  This part follows the check of
 * senders. */
#define FIRST_LENGTH 3 /* instructions */
#define ITEM_LENGTH  10
#define NOT_FOUND_AT (FIRST_LENGTH + ITEMS_MAX * ITEM_LENGTH)
#define CHECK_AT     (NOT_FOUND_AT + 1)
#define OTHERS_AT    (CHECK_AT + 2)
#define WHOLE_AT     (OTHERS_AT + 1)
#define LENGTH       (WHOLE_AT + 1)

#define NETWORK_LENGTH 3 /* number of instructions that check one network of senders */

struct program {
    struct sock_filter code[LENGTH + KATCP_MAX_NETWORKS * NETWORK_LENGTH + 1];
    size_t n;
    size_t share_at; /* index of the first instruction that selects the share */
};

static void put(struct program *p, uint16_t code, uint32_t k)
{
    assert(p->n < ARRAY_LEN(p->code));
    p->code[p->n++] = (struct sock_filter)BPF_STMT(code, k);
}

/* Appends an instruction that compares the accumulator with 'k'.  The instruction jumps to instruction 'yes' if the
 * comparison is true, else to 'no'.  'yes' and 'no' are indices of instructions, counted from the program's start. */
static void put_jump_to(struct program *p, uint16_t comparison, uint32_t k, size_t yes, size_t no)
{
    size_t next = p->n + 1;

    assert(next <= ARRAY_LEN(p->code) && yes >= next && yes - next < 256 && no >= next && no - next < 256);
    p->code[p->n++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | comparison | BPF_K, k, (uint8_t)(yes - next), (uint8_t)(no - next));
}

/* ---- Senders ----------------------------------------------------------------------------------------------------- */

/* Appends the check of senders.  If a packet comes from a network in 'from', the filter goes on to check the share.
 * The filter cuts other packets to empty datagrams. */
static void check_sender(struct program *p, const struct access *from)
{
    size_t begin = p->n;

    p->share_at = begin + from->n * NETWORK_LENGTH + 1;
    for (size_t i = 0; i < from->n; i++) {
        put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)SENDER_AT);
        put(p, BPF_ALU | BPF_AND | BPF_K, from->networks[i].mask);
        put_jump_to(p, BPF_JEQ, from->networks[i].address, p->share_at, p->n + 1);
    }
    put(p, BPF_RET | BPF_K, UDP_HEADER_BYTES);
    assert(p->n == p->share_at);
}

/* ---- Share of a group -------------------------------------------------------------------------------------------- */

static size_t here(const struct program *p)
{
    return p->n - p->share_at;
}

/* Appends a comparison and a jump, as put_jump_to() does.  Here 'yes' and 'no' are distances from the start of the
 * share's program. */
static void put_jump(struct program *p, uint16_t comparison, uint32_t k, size_t yes, size_t no)
{
    put_jump_to(p, comparison, k, p->share_at + yes, p->share_at + no);
}

static void look_at_item(struct program *p, const struct packet_fanout *share, uint32_t i)
{
    size_t next = here(p) + ITEM_LENGTH;

    put(p, BPF_LD | BPF_W | BPF_LEN, 0);
    put_jump(p, BPF_JGE, ITEM_AT(i + 1), here(p) + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_H | BPF_ABS, N_ITEMS_AT);
    put_jump(p, BPF_JGT, i, here(p) + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_H | BPF_ABS, ITEM_AT(i));
    put_jump(p, BPF_JEQ, IMMEDIATE | share->item_id, here(p) + 1, next);
    put(p, BPF_LD | BPF_H | BPF_ABS, ITEM_AT(i) + 2); /* the upper 16 bits of the value */
    put_jump(p, BPF_JEQ, 0, here(p) + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_W | BPF_ABS, ITEM_AT(i) + 4);
    put(p, BPF_JMP | BPF_JA, (uint32_t)(CHECK_AT - here(p) - 1));
    assert(here(p) == next);
}

static void check_share(struct program *p, const struct packet_fanout *share)
{
    put(p, BPF_LD | BPF_W | BPF_LEN, 0);
    put_jump(p, BPF_JGE, ITEM_AT(0), FIRST_LENGTH, here(p) + 1);
    put(p, BPF_RET | BPF_K, UINT32_MAX);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        look_at_item(p, share, i);
    assert(here(p) == NOT_FOUND_AT);
    put(p, BPF_RET | BPF_K, UINT32_MAX);
    assert(here(p) == CHECK_AT && share->first <= UINT32_MAX);
    put_jump(p, BPF_JGE, (uint32_t)share->first, here(p) + 1, OTHERS_AT);
    if (share->end > UINT32_MAX)
        put(p, BPF_JMP | BPF_JA, WHOLE_AT - CHECK_AT - 2);
    else
        put_jump(p, BPF_JGE, (uint32_t)share->end, OTHERS_AT, WHOLE_AT);
    put(p, BPF_RET | BPF_K, UDP_HEADER_BYTES);
    put(p, BPF_RET | BPF_K, UINT32_MAX);
    assert(here(p) == LENGTH);
}

int packet_filter_attach(int fd, const struct access *from, const struct packet_fanout *share)
{
    struct program p = {.n = 0};

    if (from && from->n > 0)
        check_sender(&p, from);
    if (share)
        check_share(&p, share);
    else
        put(&p, BPF_RET | BPF_K, UINT32_MAX);
    const struct sock_fprog program = {.len = (unsigned short)p.n, .filter = p.code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}
