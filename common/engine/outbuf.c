/* outbuf.c - takes, finishes and gives back output buffers, for fgpu and xbgpu. */
#include "common/engine/outbuf.h"

#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/send/sender_group.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

#include <assert.h>
#include <stdio.h>

#define DESCRIPTOR_PERIOD_NS (5 * NS_PER_S)

int outbuf_init(struct outbuf *buffer, struct outbuf_pool *pool, struct engine *engine)
{
    int err = device_event_create(engine->c.device, &buffer->finished);

    if (err)
        return err;
    buffer->engine = engine;
    buffer->pool = pool;
    buffer_ref_init(&buffer->download, engine->inbox, (struct inbox_item){ENGINE_DOWNLOADED, 0, buffer});
    buffer_ref_init(&buffer->ref, engine->inbox, (struct inbox_item){ENGINE_SENT, 0, buffer});
    pool->n_buffers++;
    outbuf_give(buffer);
    return 0;
}

void outbuf_fini(struct outbuf *buffer)
{
    device_event_destroy(buffer->finished);
}

struct outbuf *outbuf_take(struct outbuf_pool *pool)
{
    struct outbuf *buffer = pool->free;

    if (!buffer)
        return NULL;
    pool->free = buffer->next;
    pool->n_free--;
    return buffer;
}

void outbuf_give(struct outbuf *buffer)
{
    struct outbuf_pool *pool = buffer->pool;

    assert(pool->n_free < pool->n_buffers);
    buffer->next = pool->free;
    pool->free = buffer;
    pool->n_free++;
}

void outbuf_finish(struct outbuf *buffer, struct device_stream *compute, struct device_stream *download)
{
    device_event_record(buffer->finished, compute);
    device_stream_wait_event(download, buffer->finished);
}

void outbuf_download(struct outbuf *buffer, struct device_stream *download)
{
    buffer_ref_set(&buffer->download, 1);
    device_then(download, buffer_ref_put, &buffer->download);
    buffer->engine->n_downloading++;
}

void outbuf_metrics(const char *prefix, const char *labels, const struct send_stream_stats *stats)
{
    const struct {
        const char *name, *help;
        const struct counter *counter;
    } rows[] = {
        {"heaps", "Heaps sent.", &stats->heaps},
        {"bytes", "Payload bytes sent.", &stats->bytes},
        {"packets", "Packets sent.", &stats->packets},
        {"failed_packets", "Packets not sent: refused by the kernel or the capture file, or failed in the NIC.",
         &stats->failed},
    };
    char name[128];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(name, sizeof(name), "%s_%s", prefix, rows[i].name);
        stats_counter(name, rows[i].help, labels, rows[i].counter);
    }
}

void outbuf_stream_config(const struct config_send *send, struct engine *engine, struct send_stream_config *stream)
{
    const int64_t descriptor_period_ns = send->pcap_file ? 0 : DESCRIPTOR_PERIOD_NS;

    *stream = (struct send_stream_config){
        .sink = {.transport = (enum transport)send->transport,
                 .interface = send->interface,
                 .ttl = (int)send->ttl,
                 .buffer_bytes = (size_t)send->buffer_bytes,
                 .pcap_file = send->pcap_file,
                 .on_lost = service_fail,
                 .on_lost_arg = engine->c.service},
        .packet_payload_bytes = (size_t)send->packet_payload_bytes,
        .crc = send->crc,
        .descriptor_first_ns = descriptor_period_ns,
        .descriptor_interval_ns = descriptor_period_ns,
    };
}
