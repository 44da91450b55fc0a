/* outbuf.c - what output buffers of both engines go through. */
#include "common/engine/outbuf.h"

#include "common/daemon/service.h"
#include "common/device/device.h"
#include "common/send/sender_group.h"

#include <assert.h>

int outbuf_init(struct outbuf *buffer, struct outbuf_pool *pool, struct device *device, struct inbox *worker,
                int downloaded_kind, int free_kind)
{
    int err = device_event_create(device, &buffer->finished);

    if (err)
        return err;
    buffer->pool = pool;
    buffer_ref_init(&buffer->download, worker, (struct inbox_item){downloaded_kind, 0, buffer});
    buffer_ref_init(&buffer->ref, worker, (struct inbox_item){free_kind, 0, buffer});
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
    buffer->pool->n_downloading++;
}

void outbuf_downloaded(struct outbuf *buffer)
{
    assert(buffer->pool->n_downloading > 0);
    buffer->pool->n_downloading--;
}

void outbuf_stream_config(const struct config_send *send, struct service *service, struct send_stream_config *stream)
{
    *stream = (struct send_stream_config){
        .sink = {.transport = (enum transport)send->transport,
                 .interface = send->interface,
                 .ttl = (int)send->ttl,
                 .buffer_bytes = (size_t)send->buffer_bytes,
                 .pcap_file = send->pcap_file,
                 .on_lost = service_fail,
                 .on_lost_arg = service},
        .packet_payload_bytes = (size_t)send->packet_payload_bytes,
        .crc = send->crc,
    };
}
