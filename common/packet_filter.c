/* packet_filter.c - see packet_filter.h.  The program is classic BPF (Linux, Documentation/networking/filter.rst), which
 * has no loops: the look at an item is there once for each.  Offsets are from the UDP header, and a load from behind the
 * packet's end would refuse it, so lengths come first. */
#include "common/packet_filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define UDP_HEADER_BYTES 8
#define N_ITEMS_AT       (UDP_HEADER_BYTES + 6)
#define ITEM_AT(i)       (UDP_HEADER_BYTES + 8 + 8 * (i))
#define ITEMS_MAX        16
#define IMMEDIATE        0x8000u

/* Where the program's parts begin. */
#define FIRST_LENGTH 3 /* instructions */
#define ITEM_LENGTH  10
#define NOT_FOUND_AT (FIRST_LENGTH + ITEMS_MAX * ITEM_LENGTH)
#define CHECK_AT     (NOT_FOUND_AT + 1)
#define OTHERS_AT    (CHECK_AT + 2)
#define WHOLE_AT     (OTHERS_AT + 1)
#define LENGTH       (WHOLE_AT + 1)

struct program {
    struct sock_filter code[LENGTH];
    size_t n;
};

static void put(struct program *p, uint16_t code, uint32_t k)
{
    assert(p->n < LENGTH);
    p->code[p->n++] = (struct sock_filter)BPF_STMT(code, k);
}

/* A jump to the instructions at 'yes' and 'no'. */
static void put_jump(struct program *p, uint16_t comparison, uint32_t k, size_t yes, size_t no)
{
    size_t next = p->n + 1;

    assert(p->n < LENGTH && yes >= next && yes - next < 256 && no >= next && no - next < 256);
    p->code[p->n++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | comparison | BPF_K, k, (uint8_t)(yes - next), (uint8_t)(no - next));
}

static void look_at_item(struct program *p, const struct packet_share *share, uint32_t i)
{
    size_t begin = p->n, next = begin + ITEM_LENGTH;

    put(p, BPF_LD | BPF_W | BPF_LEN, 0);
    put_jump(p, BPF_JGE, ITEM_AT(i + 1), p->n + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_H | BPF_ABS, N_ITEMS_AT);
    put_jump(p, BPF_JGT, i, p->n + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_H | BPF_ABS, ITEM_AT(i));
    put_jump(p, BPF_JEQ, IMMEDIATE | share->item_id, p->n + 1, next);
    put(p, BPF_LD | BPF_H | BPF_ABS, ITEM_AT(i) + 2); /* the upper bits of the value */
    put_jump(p, BPF_JEQ, 0, p->n + 1, WHOLE_AT);
    put(p, BPF_LD | BPF_W | BPF_ABS, ITEM_AT(i) + 4);
    put(p, BPF_JMP | BPF_JA, (uint32_t)(CHECK_AT - p->n - 1));
    assert(p->n == next);
}

int packet_filter_attach(int fd, const struct packet_share *share)
{
    struct program p = {.n = 0};

    put(&p, BPF_LD | BPF_W | BPF_LEN, 0);
    put_jump(&p, BPF_JGE, ITEM_AT(0), FIRST_LENGTH, p.n + 1);
    put(&p, BPF_RET | BPF_K, UINT32_MAX);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        look_at_item(&p, share, i);
    assert(p.n == NOT_FOUND_AT);
    put(&p, BPF_RET | BPF_K, UINT32_MAX);
    assert(p.n == CHECK_AT && share->first <= UINT32_MAX);
    put_jump(&p, BPF_JGE, (uint32_t)share->first, p.n + 1, OTHERS_AT);
    if (share->end > UINT32_MAX)
        put(&p, BPF_JMP | BPF_JA, WHOLE_AT - CHECK_AT - 2);
    else
        put_jump(&p, BPF_JGE, (uint32_t)share->end, OTHERS_AT, WHOLE_AT);
    put(&p, BPF_RET | BPF_K, UDP_HEADER_BYTES);
    put(&p, BPF_RET | BPF_K, UINT32_MAX);
    assert(p.n == LENGTH);
    const struct sock_fprog program = {.len = LENGTH, .filter = p.code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}
