/* sink.c - selects the implementation of a sink, and has code that all implementations share. */
#include "common/send/sink.h"

#include "common/base/clock.h"
#include "common/device/device.h"

#include <assert.h>

#define FLUSH_PAUSE_NS (50 * NS_PER_US)

int send_sink_open(const struct send_sink_config *config, struct send_sink **sink, char *why, size_t why_bytes)
{
    assert(config->destinations->n > 0);
    if (config->pcap_file)
        return send_sink_pcap_open(config, sink, why, why_bytes);
    if (config->transport == TRANSPORT_IBVERBS)
        return send_sink_verbs_open(config, sink, why, why_bytes);
    return send_sink_udp_open(config, sink, why, why_bytes);
}

void send_sink_close(struct send_sink *sink)
{
    if (!sink)
        return;
    send_sink_flush(sink);
    sink->ops->close(sink);
}

int send_sink_add_memory(struct send_sink *sink, const void *base, size_t n_bytes, char *why, size_t why_bytes)
{
    return sink->ops->add_memory ? sink->ops->add_memory(sink, base, n_bytes, -1, why, why_bytes) : 0;
}

int send_sink_add_exported(struct send_sink *sink, const struct device_exported *memory, char *why, size_t why_bytes)
{
    assert(sink->ops->add_memory); /* other sinks would read device memory with the CPU */
    return sink->ops->add_memory(sink, memory->nic, memory->bytes, memory->fd, why, why_bytes);
}

void send_sink_remove_memory(struct send_sink *sink)
{
    if (sink->ops->forget_memory)
        sink->ops->forget_memory(sink);
}

void send_sink_disable_pacing(struct send_sink *sink)
{
    if (sink->ops->disable_pacing)
        sink->ops->disable_pacing(sink);
}

void send_sink_set_deadline(struct send_sink *sink, int64_t give_up_ns)
{
    sink->give_up_ns = give_up_ns;
}

bool send_sink_deadline_passed(const struct send_sink *sink)
{
    int64_t give_up_ns = sink->give_up_ns;

    return give_up_ns && clock_monotonic_ns() >= give_up_ns;
}

struct packet_out *send_sink_alloc(struct send_sink *sink, size_t n)
{
    assert(n > 0 && n <= PACKET_SINK_BATCH_MAX);
    for (size_t i = 0; i < n; i++)
        sink->packets[i] = (struct packet_out){.header = sink->headers[i]};
    if (sink->ops->place_headers)
        sink->ops->place_headers(sink, n);
    return sink->packets;
}

size_t send_sink_send(struct send_sink *sink, struct packet_out *packets, size_t n)
{
    assert(packets == sink->packets && n > 0 && n <= PACKET_SINK_BATCH_MAX);
    return sink->ops->send(sink, packets, n);
}

bool send_sink_has_room(struct send_sink *sink)
{
    return !sink->ops->has_room || sink->ops->has_room(sink);
}

size_t send_sink_reap(struct send_sink *sink)
{
    return sink->ops->reap ? sink->ops->reap(sink) : 0;
}

void send_sink_flush(struct send_sink *sink)
{
    while (send_sink_reap(sink) > 0)
        clock_sleep_until(clock_monotonic_ns() + FLUSH_PAUSE_NS);
}

uint64_t send_sink_n_failed(const struct send_sink *sink, int *last_errno)
{
    *last_errno = atomic_load_explicit(&sink->last_errno, memory_order_relaxed);
    return atomic_load_explicit(&sink->n_failed, memory_order_relaxed);
}

uint64_t send_sink_take_failed(struct send_sink *sink, int *last_errno)
{
    uint64_t n_failed = send_sink_n_failed(sink, last_errno);
    uint64_t n_new = n_failed - sink->n_failed_taken;

    sink->n_failed_taken = n_failed;
    return n_new;
}

void send_sink_note_failed(struct send_sink *sink, int err)
{
    atomic_store_explicit(&sink->last_errno, err, memory_order_relaxed);
    atomic_fetch_add_explicit(&sink->n_failed, 1, memory_order_relaxed);
}

void send_sink_put_ref(const struct packet_out *packet)
{
    if (packet->ref)
        buffer_ref_put(packet->ref);
}
