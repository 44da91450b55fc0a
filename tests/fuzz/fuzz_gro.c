/* fuzz_gro.c - coalesced messages cut into packets, whatever their control messages say.  All bytes are lent once and
 * in order.  Packets have the size that the kernel named; the last packet of a message may be shorter.
 *
 * Input: commands.  A command is a message with control messages of any kind, or a number of slots to fill. */
#include "common/recv/gro.h"
#include "tests/fuzz/fuzz_input.h"

#include <netinet/udp.h>

enum { CONTROL_MAX = 96, MESSAGE_MAX = 65535 };

static struct gro_queue queue;
static uint8_t message_bytes[PACKET_BATCH_MAX][MESSAGE_MAX];

/* What was added and has not come back. */
static struct {
    size_t n_bytes, segment_bytes, n_lent;
    unsigned endpoint;
    uint32_t sender;
} added[PACKET_BATCH_MAX];
static size_t n_added, n_done;

struct controls {
    _Alignas(struct cmsghdr) uint8_t memory[CONTROL_MAX];
    size_t n_bytes;
    int named; /* size that the first usable UDP_GRO among them names; 0: there is none */
};

/* A control message as the kernel writes them: a length, level and type, and that much.  Where the room ends, the kernel
 * cuts the last one, and its length says so. */
static void add_control(struct fuzz_input *input, struct controls *controls, size_t room, size_t n_message_bytes)
{
    unsigned how = fuzz_u8(input);
    bool is_gro = how & 1;
    int value = (how & 2) ? -(int)fuzz_u16(input) : (int)fuzz_u16(input);
    size_t data_bytes = (how & 4) ? fuzz_u8(input) % 24 : sizeof(value);
    size_t left = room - controls->n_bytes, bytes = CMSG_LEN(data_bytes) < left ? CMSG_LEN(data_bytes) : left;
    struct cmsghdr header = {bytes, is_gro ? SOL_UDP : SOL_SOCKET, is_gro ? UDP_GRO : (int)(how >> 3)};
    uint8_t *at = controls->memory + controls->n_bytes;

    if (left < sizeof(header))
        return;
    size_t copied = bytes - CMSG_LEN(0) < sizeof(value) ? bytes - CMSG_LEN(0) : sizeof(value);
    memcpy(at, &header, sizeof(header));
    memcpy(at + CMSG_LEN(0), &value, copied);
    controls->n_bytes += CMSG_ALIGN(bytes) < left ? CMSG_ALIGN(bytes) : left;
    if (is_gro && copied == sizeof(value) && controls->named == 0 && value > 0 && (size_t)value < n_message_bytes)
        controls->named = value;
}

static void add_message(struct fuzz_input *input)
{
    struct controls controls = {.n_bytes = 0};
    size_t i = n_added, n_bytes = fuzz_u16(input);
    unsigned n_controls = fuzz_u8(input) % 6;
    size_t room = fuzz_u8(input) % (CONTROL_MAX + 1);

    if (n_added == PACKET_BATCH_MAX)
        return;
    for (unsigned c = 0; c < n_controls; c++)
        add_control(input, &controls, room, n_bytes);
    /* Exact memory: a look behind the last control message is seen. */
    void *memory = fuzz_exact(controls.n_bytes);
    if (controls.n_bytes)
        memcpy(memory, controls.memory, controls.n_bytes);
    struct msghdr message = {.msg_control = memory, .msg_controllen = controls.n_bytes};
    size_t segment_bytes = gro_segment_bytes(&message, n_bytes);
    free(memory);
    assert(segment_bytes == (controls.named ? (size_t)controls.named : n_bytes));
    added[i].n_bytes = n_bytes;
    added[i].segment_bytes = segment_bytes;
    added[i].n_lent = 0;
    added[i].endpoint = fuzz_u8(input);
    added[i].sender = fuzz_u16(input);
    n_added++;
    gro_add(&queue,
            &(struct gro_message){message_bytes[i], n_bytes, segment_bytes, added[i].endpoint, added[i].sender});
}

/* The next packet is this slot. */
static void check_slot(const struct packet_slot *slot)
{
    assert(n_done < n_added);
    size_t left = added[n_done].n_bytes - added[n_done].n_lent;
    size_t expected = left < added[n_done].segment_bytes ? left : added[n_done].segment_bytes;

    assert(slot->zero_copy && !slot->truncated && slot->header == message_bytes[n_done] + added[n_done].n_lent);
    assert(slot->header_bytes == expected && slot->packet_bytes == expected && slot->payload_bytes == 0);
    assert(slot->endpoint == added[n_done].endpoint && slot->sender == added[n_done].sender);
    added[n_done].n_lent += expected;
    if (added[n_done].n_lent == added[n_done].n_bytes)
        n_done++;
}

static void lend(size_t n_slots)
{
    struct packet_slot slots[PACKET_BATCH_MAX];

    memset(slots, 0x5a, sizeof(slots));
    size_t n = gro_next_packets(&queue, slots, n_slots);
    assert(n <= n_slots);
    for (size_t i = 0; i < n; i++)
        check_slot(&slots[i]);
    assert(n == n_slots || n_done == n_added);
    assert(gro_is_empty(&queue) == (n_done == n_added));
    if (n_done == n_added)
        n_done = n_added = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};

    memset(&queue, 0, sizeof(queue));
    n_added = n_done = 0;
    while (!fuzz_ended(&input)) {
        unsigned command = fuzz_u8(&input);
        if (command & 1)
            add_message(&input);
        else
            lend(1 + (command >> 1) % PACKET_BATCH_MAX);
    }
    while (n_added > 0)
        lend(PACKET_BATCH_MAX);
    return 0;
}
