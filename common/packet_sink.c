/* packet_sink.c - the way out: which implementation serves a sink, and what all of them do alike. */
#include "common/packet_sink.h"

#include <assert.h>

int packet_sink_open(const struct packet_sink_config *config, struct packet_sink **sink, char *why, size_t why_bytes)
{
    assert(config->destinations->n > 0);
    if (config->pcap_file)
        return packet_sink_pcap_open(config, sink, why, why_bytes);
    return packet_sink_udp_open(config, sink, why, why_bytes);
}

void packet_sink_close(struct packet_sink *sink)
{
    if (sink)
        sink->ops->close(sink);
}

struct packet_out *packet_sink_alloc(struct packet_sink *sink, size_t n)
{
    assert(n > 0 && n <= PACKET_SINK_BATCH_MAX);
    for (size_t i = 0; i < n; i++)
        sink->packets[i] = (struct packet_out){.header = sink->headers[i]};
    return sink->packets;
}

size_t packet_sink_send(struct packet_sink *sink, struct packet_out *packets, size_t n)
{
    assert(packets == sink->packets && n > 0 && n <= PACKET_SINK_BATCH_MAX);
    return sink->ops->send(sink, packets, n);
}

uint64_t packet_sink_n_failed(const struct packet_sink *sink, int *last_errno)
{
    *last_errno = atomic_load_explicit(&sink->last_errno, memory_order_relaxed);
    return atomic_load_explicit(&sink->n_failed, memory_order_relaxed);
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
