/* xothers.c - packets to xbgpu that are no voltages of an F-engine: descriptors, stop heaps, packets of a host that
 * recv.from does not name, and packets with one mistake.  xbgpu must count each packet under the reason of its kind.
 * See xworld.h. */
#include "tests/world/network.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"

#include <arpa/inet.h>
#include <stdio.h>

#define CTRL_STOP 2

enum kind {
    DESCRIPTOR,
    STOP,
    FORGED,
    NO_ITEMS,
    BAD_SOURCE,
    BAD_FREQUENCY,
    HEAP_SIZE,
    ALIGNMENT,
    BAD_TIMESTAMP,
    BAD_CRC,
    FAR, /* counted as jump, or as clock if the evidence of a jump is enough */
    N_KINDS
};

static const struct {
    const char *reason;
    bool is_ignored;
    bool by_all; /* each receive thread counts the packet; false: only the thread of the F-engine does */
} kinds[N_KINDS] = {
    [DESCRIPTOR] = {"descriptor", true, true},
    [STOP] = {"stop", true, true},
    [FORGED] = {"bad_sender", false, true},
    [NO_ITEMS] = {"no_items", false, true},
    [BAD_SOURCE] = {"bad_source", false, true},
    [BAD_FREQUENCY] = {"bad_frequency", false, false},
    [HEAP_SIZE] = {"heap_size", false, false},
    [ALIGNMENT] = {"alignment", false, false},
    [BAD_TIMESTAMP] = {"bad_timestamp", false, false},
    [BAD_CRC] = {"crc", false, false},
    [FAR] = {"jump", false, false},
};

/* The packets of a kind to a receive thread. */
struct count {
    unsigned kind, thread;
    uint64_t n_read;
};
static struct count counts[N_KINDS][MAX_ANTS]; /* by thread */

void others_draw(void)
{
    for (unsigned kind = 0; kind < N_KINDS; kind++)
        for (unsigned thread = 0; thread < MAX_ANTS; thread++)
            counts[kind][thread] = (struct count){.kind = kind, .thread = thread};
}

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    struct count *count = arg;

    count->n_read += delivery->was_read && (delivery->is_whole || count->kind == FORGED) &&
                     (kinds[count->kind].by_all || delivery->socket == count->thread);
}

/* Makes a packet of an F-engine wrong.  The packet has the items timestamp, feng_id, frequency and
 * voltages. */
static void spoil(enum kind kind, struct wire_packet *packet)
{
    switch (kind) {
    case NO_ITEMS: packet->items[1 + world_random(2)] = packet->items[--packet->n_items]; break;
    case BAD_SOURCE: packet->items[1].value = s.n_ants + world_random(100); break;
    case BAD_FREQUENCY: packet->items[2].value += 1 + world_random(1000); break;
    case HEAP_SIZE: packet->heap_bytes += world_random(2) ? 8 : 1 + world_random(1000); break;
    case ALIGNMENT:
        if (world_random(2))
            packet->payload_bytes = 0;
        else
            packet->offset = 1 + world_random(7);
        packet->payload_bytes -= packet->payload_bytes > 0 ? 8 : 0;
        break;
    case BAD_TIMESTAMP: packet->items[0].value += 1 + world_random((uint64_t)s.batch_samples - 1); break;
    case DESCRIPTOR:
        *packet = (struct wire_packet){
            .heap_bytes = 64, .payload_bytes = 64, .n_items = 1, .items = {{WIRE_DESCRIPTOR, true, 0}}};
        break;
    case STOP:
        *packet = (struct wire_packet){
            .heap_bytes = 1, .payload_bytes = 1, .n_items = 1, .items = {{WIRE_STREAM_CTRL, false, CTRL_STOP}}};
        break;
    case FAR: packet->items[0].value += (uint64_t)(s.far_batches * s.batch_samples); break;
    default: break;
    }
}

/* Sends a packet whose payload is garbage. */
static void send_other(struct network_port *port, enum kind kind, unsigned ant, unsigned b)
{
    uint8_t payload[64], bytes[512];
    uint64_t heap_bytes = (uint64_t)s.n_chan * s.n_spectra * 4;
    struct wire_packet packet = {.heap_cnt = world_random(1000),
                                 .heap_bytes = heap_bytes,
                                 .payload_bytes = sizeof(payload),
                                 .n_items = 4,
                                 .items = {{WIRE_TIMESTAMP, false, (uint64_t)(batch_of(b) * s.batch_samples)},
                                           {WIRE_FENG_ID, false, ant},
                                           {WIRE_FREQUENCY, false, s.first_chan},
                                           {WIRE_FENG_RAW, true, 0}}};

    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)world_random(256);
    spoil(kind, &packet);
    packet.payload = payload;
    bool lacks_crc = kind == BAD_CRC && world_random(2);
    if (s.has_crc && !lacks_crc)
        packet.items[packet.n_items++] = (struct wire_item){WIRE_CRC, false, 0};
    size_t n_bytes = wire_write(&packet, bytes);
    wire_add_crc(bytes, n_bytes);
    if (kind == BAD_CRC)
        bytes[n_bytes - 1] ^= 1;
    network_send_from(port, inet_addr(kind == FORGED ? "10.0.0.2" : "10.0.0.1"), bytes, n_bytes, on_seen,
                      &counts[kind][thread_of(ant)]);
}

void others_send(struct network_port *port, unsigned b)
{
    if (s.has_forger && world_random(4) == 0)
        send_other(port, FORGED, (unsigned)world_random(s.n_ants), b);
    if (world_random(8) != 0)
        return;
    enum kind kind = (enum kind)world_random(FAR);
    if ((kind != FORGED || s.has_forger) && (kind != BAD_CRC || s.has_crc))
        send_other(port, kind, (unsigned)world_random(s.n_ants), b);
}

void others_send_far(struct network_port *port, unsigned ant, unsigned b)
{
    if (heaps_heard(thread_of(ant), s.far_from))
        send_other(port, FAR, ant, b);
}

/* Flipped bits may turn voltages into packets of a kind. */
void others_check(bool has_flips)
{
    for (unsigned kind = 0; kind < N_KINDS; kind++) {
        uint64_t n_read = 0;
        char label[64];
        for (unsigned thread = 0; thread < s.n_threads; thread++)
            n_read += counts[kind][thread].n_read;
        snprintf(label, sizeof(label), "reason=\"%s\"", kinds[kind].reason);
        uint64_t n_counted = run_counter(
            kinds[kind].is_ignored ? "xbgpu_input_ignored_packets_total" : "xbgpu_input_rejected_packets_total", label);
        if (kind == FAR)
            n_counted += run_counter("xbgpu_input_rejected_packets_total", "reason=\"clock\"");
        if (n_counted < n_read || (n_counted > n_read && !has_flips && kind != FAR))
            world_fail("%llu packets of the kind %s were read, and the counter says %llu", (unsigned long long)n_read,
                       kinds[kind].reason, (unsigned long long)n_counted);
    }
}
