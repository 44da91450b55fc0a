/* fothers.c - packets to fgpu that are no samples, or that spoil samples: descriptors, stop heaps, packets of a host
 * that recv.from does not name, packets with one mistake, halves of packets, and second copies with other samples.
 * fgpu must count each packet under the reason of its kind.  See fworld.h. */
#include "tests/world/fworld.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <arpa/inet.h>
#include <stdio.h>

#define CTRL_STOP     2
#define FIRST_SPOILED 60 /* packets before are not spoiled, because the daemon does not know the time of the data */

enum kind { DESCRIPTOR, STOP, FORGED, NO_ITEMS, BAD_SOURCE, HEAP_SIZE, ALIGNMENT, BAD_CRC, N_KINDS };

static const struct {
    const char *reason;
    bool is_ignored;
} kinds[N_KINDS] = {
    [DESCRIPTOR] = {"descriptor", true},  [STOP] = {"stop", true},
    [FORGED] = {"bad_sender", false},     [NO_ITEMS] = {"no_items", false},
    [BAD_SOURCE] = {"bad_source", false}, [HEAP_SIZE] = {"heap_size", false},
    [ALIGNMENT] = {"alignment", false},   [BAD_CRC] = {"crc", false},
};

static struct count {
    unsigned kind;
    uint64_t n_read;
} counts[N_KINDS];
static uint64_t n_halves_read, n_flipped_read;

void others_draw(void)
{
    bool is_steady = model_is_known && faults.digitiser == RUNNING && faults.clock < UNSYNCHRONISED;

    for (unsigned kind = 0; kind < N_KINDS; kind++)
        counts[kind] = (struct count){.kind = kind};
    n_halves_read = n_flipped_read = 0;
    s.has_others = model_is_known && run_draw("others", 3) == 2;
    s.has_crc = model_is_known && run_draw("crc", 3) == 2;
    s.halve = is_steady && run_draw("halve", 8) == 7 ? 0.01 : 0;
    s.contest = is_steady && run_draw("contest", 8) == 7 ? 0.01 : 0;
    for (unsigned i = 0; i < 2 * MAX_ANTS; i++)
        s.n_clipped[i] = (unsigned)world_random(PACKET);
}

/* ---- Packets of other kinds -------------------------------------------------------------------------------------- */

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    struct count *count = arg;

    count->n_read += delivery->was_read && (delivery->is_whole || count->kind == FORGED);
}

/* Makes a packet of samples wrong.  The packet has the items timestamp, digitiser id, status and samples. */
static void spoil(enum kind kind, struct wire_packet *packet)
{
    switch (kind) {
    case NO_ITEMS: packet->items[world_random(3)] = packet->items[--packet->n_items]; break;
    case BAD_SOURCE: packet->items[1].value ^= 1; break;
    case HEAP_SIZE: packet->heap_bytes += 1 + world_random(1000); break;
    case ALIGNMENT:
        packet->offset = 1 + world_random(7);
        packet->payload_bytes -= 8;
        break;
    case DESCRIPTOR:
        *packet = (struct wire_packet){.heap_bytes = packet->payload_bytes,
                                       .payload_bytes = packet->payload_bytes,
                                       .payload = packet->payload,
                                       .n_items = 1,
                                       .items = {{WIRE_DESCRIPTOR, true, 0}}};
        break;
    case STOP:
        *packet = (struct wire_packet){.heap_bytes = 1,
                                       .payload_bytes = 1,
                                       .payload = packet->payload,
                                       .n_items = 1,
                                       .items = {{WIRE_STREAM_CTRL, false, CTRL_STOP}}};
        break;
    default: break;
    }
}

void others_send(struct network_port *port, const struct wire_packet *packet)
{
    uint8_t bytes[PACKET * BITS / 8 + 256];
    enum kind kind = (enum kind)world_random(N_KINDS);
    struct wire_packet other = *packet;

    if (!s.has_others || world_random(10) != 0 || (kind == BAD_CRC && !s.has_crc))
        return;
    spoil(kind, &other);
    size_t n_bytes = wire_write(&other, bytes);
    wire_add_crc(bytes, n_bytes);
    if (kind == BAD_CRC)
        bytes[n_bytes - 1] ^= 1;
    network_send_from(port, inet_addr(kind == FORGED ? "10.0.0.2" : "10.0.0.1"), bytes, n_bytes, on_seen,
                      &counts[kind]);
}

/* ---- Spoiled samples --------------------------------------------------------------------------------------------- */

static void on_half(void *arg, const struct network_delivery *delivery)
{
    struct sent *sent = arg;

    if (!delivery->was_read)
        return;
    bool is_taken = delivery->is_whole || (delivery->is_flipped && others_flipped(delivery));
    n_halves_read += is_taken;
    sent->half_arrived |= is_taken;
}

bool others_send_half(struct network_port *port, const struct wire_packet *packet, struct sent *sent, unsigned p)
{
    uint8_t bytes[PACKET * BITS / 8 + 256];
    struct wire_packet half = *packet;

    if (p < FIRST_SPOILED || !world_chance(s.halve))
        return false;
    half.payload_bytes /= 2;
    size_t n_bytes = wire_write(&half, bytes);
    wire_add_crc(bytes, n_bytes);
    network_send(port, bytes, n_bytes, on_half, sent);
    world_note("digitisers: half of a packet");
    return true;
}

static void on_contest(void *arg, const struct network_delivery *delivery)
{
    struct sent *sent = arg;

    if (!delivery->was_read)
        return;
    bool is_taken = delivery->is_whole || (delivery->is_flipped && others_flipped(delivery));
    if (!is_taken)
        return;
    sent->was_contested = true;
    sent->contested_in_time |= judge_is_in_time(delivery->read_ns - sent->sent_ns);
}

void others_contest(struct network_port *port, const struct wire_packet *packet, struct sent *sent, unsigned p)
{
    uint8_t samples[PACKET * BITS / 8], bytes[sizeof(samples) + 256];
    struct wire_packet other = *packet;

    if (p < FIRST_SPOILED || !world_chance(s.contest))
        return;
    for (size_t i = 0; i < sizeof(samples); i++)
        samples[i] = packet->payload[i] ^ (uint8_t)(1 + world_random(255));
    other.payload = samples;
    size_t n_bytes = wire_write(&other, bytes);
    wire_add_crc(bytes, n_bytes);
    network_send(port, bytes, n_bytes, on_contest, sent);
    world_note("digitisers: a second copy with other samples");
}

bool others_flipped(const struct network_delivery *delivery)
{
    struct wire_packet packet;
    bool is_readable = wire_read(delivery->bytes, delivery->n_bytes, &packet);
    const struct wire_item *crc = is_readable ? wire_find(&packet, WIRE_CRC) : NULL;
    bool lacks_crc = is_readable && (!crc || crc->is_address);

    n_flipped_read += !lacks_crc;
    return lacks_crc;
}

/* ---- Counters ---------------------------------------------------------------------------------------------------- */

static void check_kinds(bool has_flips)
{
    for (unsigned kind = 0; kind < N_KINDS; kind++) {
        char label[64];
        snprintf(label, sizeof(label), "reason=\"%s\"", kinds[kind].reason);
        uint64_t n_counted = run_counter(
            kinds[kind].is_ignored ? "fgpu_input_ignored_packets_total" : "fgpu_input_rejected_packets_total", label);
        if (n_counted < counts[kind].n_read || (n_counted > counts[kind].n_read && !has_flips))
            world_fail("%llu packets of the kind %s were read, and the counter says %llu",
                       (unsigned long long)counts[kind].n_read, kinds[kind].reason, (unsigned long long)n_counted);
    }
    if (run_counter("fgpu_input_rejected_packets_total", "") < n_flipped_read)
        world_fail("%llu packets with a flipped bit were read, and fewer were refused",
                   (unsigned long long)n_flipped_read);
}

/* Checks that the samples that digitisers report as saturated are counted for each packet that was received. */
static void check_saturated(void)
{
    for (unsigned i = 0; i < 2 * s.n_ants; i++) {
        char label[64];
        snprintf(label, sizeof(label), "antenna=\"m%u\",pol=\"%u\"", i / 2, i % 2);
        uint64_t n_samples = run_counter("fgpu_input_samples_total", label),
                 n_clipped = run_counter("fgpu_input_clipped_samples_total", label);
        if (n_clipped != n_samples / PACKET * s.n_clipped[i])
            world_fail("%s: %llu samples with %u of %d saturated, and the counter says %llu", label,
                       (unsigned long long)n_samples, s.n_clipped[i], PACKET, (unsigned long long)n_clipped);
    }
}

void others_check(bool has_flips)
{
    uint64_t n_incomplete = run_counter("fgpu_input_incomplete_heaps_total", "");

    check_kinds(has_flips);
    check_saturated();
    if (n_incomplete > n_halves_read || (n_incomplete == 0 && n_halves_read > 0 && s.is_prompt))
        world_fail("%llu halves of packets were read, and the counter says %llu", (unsigned long long)n_halves_read,
                   (unsigned long long)n_incomplete);
    s.n_contested = run_counter("fgpu_input_contested_heaps_total", "");
}
