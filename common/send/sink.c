/* sink.c - the way out: which implementation serves a sink, and what all of them do alike. */
#include "common/send/sink.h"

#include "common/base/clock.h"
#include "common/device/device.h"

#include <assert.h>

#define FLUSH_PAUSE_NS (50 * NS_PER_US)

int packet_sink_open(const struct packet_sink_config *config, struct packet_sink **sink, char *why, size_t why_bytes)
{
    assert(config->destinations->n > 0);
    if (config->pcap_file)
        return packet_sink_pcap_open(config, sink, why, why_bytes);
    if (config->transport == TRANSPORT_IBVERBS)
        return packet_sink_verbs_open(config, sink, why, why_bytes);
    return packet_sink_udp_open(config, sink, why, why_bytes);
}

void packet_sink_close(struct packet_sink *sink)
{
    if (!sink)
        return;
    packet_sink_flush(sink);
    sink->ops->close(sink);
}

int packet_sink_add_memory(struct packet_sink *sink, const void *base, size_t n_bytes, char *why, size_t why_bytes)
{
    return sink->ops->add_memory ? sink->ops->add_memory(sink, base, n_bytes, -1, why, why_bytes) : 0;
}

int packet_sink_add_exported(struct packet_sink *sink, const struct device_exported *memory, char *why,
                             size_t why_bytes)
{
    assert(sink->ops->add_memory); /* others would read it themselves */
    return sink->ops->add_memory(sink, memory->card, memory->bytes, memory->fd, why, why_bytes);
}

void packet_sink_forget_memory(struct packet_sink *sink)
{
    if (sink->ops->forget_memory)
        sink->ops->forget_memory(sink);
}

void packet_sink_lift_rate(struct packet_sink *sink)
{
    if (sink->ops->lift_rate)
        sink->ops->lift_rate(sink);
}

void packet_sink_give_up_at(struct packet_sink *sink, int64_t give_up_ns)
{
    sink->give_up_ns = give_up_ns;
}

bool packet_sink_has_given_up(const struct packet_sink *sink)
{
    int64_t give_up_ns = sink->give_up_ns;

    return give_up_ns && clock_monotonic_ns() >= give_up_ns;
}

struct packet_out *packet_sink_alloc(struct packet_sink *sink, size_t n)
{
    assert(n > 0 && n <= PACKET_SINK_BATCH_MAX);
    for (size_t i = 0; i < n; i++)
        sink->packets[i] = (struct packet_out){.header = sink->headers[i]};
    if (sink->ops->place_headers)
        sink->ops->place_headers(sink, n);
    return sink->packets;
}

size_t packet_sink_send(struct packet_sink *sink, struct packet_out *packets, size_t n)
{
    assert(packets == sink->packets && n > 0 && n <= PACKET_SINK_BATCH_MAX);
    return sink->ops->send(sink, packets, n);
}

bool packet_sink_has_room(struct packet_sink *sink)
{
    return !sink->ops->has_room || sink->ops->has_room(sink);
}

size_t packet_sink_reap(struct packet_sink *sink)
{
    return sink->ops->reap ? sink->ops->reap(sink) : 0;
}

void packet_sink_flush(struct packet_sink *sink)
{
    while (packet_sink_reap(sink) > 0)
        clock_sleep_until(clock_monotonic_ns() + FLUSH_PAUSE_NS);
}

uint64_t packet_sink_n_failed(const struct packet_sink *sink, int *last_errno)
{
    *last_errno = atomic_load_explicit(&sink->last_errno, memory_order_relaxed);
    return atomic_load_explicit(&sink->n_failed, memory_order_relaxed);
}

uint64_t packet_sink_take_failed(struct packet_sink *sink, int *last_errno)
{
    uint64_t n_failed = packet_sink_n_failed(sink, last_errno);
    uint64_t n_new = n_failed - sink->n_failed_taken;

    sink->n_failed_taken = n_failed;
    return n_new;
}

void packet_sink_note_failed(struct packet_sink *sink, int err)
{
    atomic_store_explicit(&sink->last_errno, err, memory_order_relaxed);
    atomic_fetch_add_explicit(&sink->n_failed, 1, memory_order_relaxed);
}

void packet_sink_put_loan(const struct packet_out *packet)
{
    if (packet->loan)
        loan_put(packet->loan);
}
