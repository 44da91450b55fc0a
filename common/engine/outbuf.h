/* outbuf.h - output buffers, which pass from the worker to the device, to the sender, and back to the worker.
 *
 * Flow:      outbuf_take --> the daemon's kernels write it --outbuf_finish--> the daemon queues copies to the host
 *            --outbuf_download--> ENGINE_DOWNLOADED --> sender --ref--> ENGINE_SENT --outbuf_give--> free
 * Ownership: a buffer is a struct of the daemon that begins with a struct outbuf.  The worker owns a buffer from
 *            outbuf_take() to outbuf_download().  The device then owns the buffer until the worker pops
 *            ENGINE_DOWNLOADED.  The sender owns the buffer from then until the worker pops ENGINE_SENT.
 * Threads:   the worker, except init and fini (main).
 * Blocking:  never; nothing allocates after init.
 * Invariant: n_free <= n_buffers; a buffer that is being downloaded is not free. */
#ifndef COMMON_ENGINE_OUTBUF_H
#define COMMON_ENGINE_OUTBUF_H

#include "common/base/buffer_ref.h"

#include <stddef.h>

struct config_send;
struct device_event;
struct device_stream;
struct engine;
struct send_stream_config;
struct send_stream_stats;

/* The free buffers of one output stream.  A zero-initialised pool is empty. */
struct outbuf_pool {
    struct outbuf *free; /* list of free buffers; last in, first out */
    size_t n_free;
    size_t n_buffers;
};

struct outbuf {
    struct engine *engine;         /* [const] */
    struct outbuf_pool *pool;      /* [const] */
    struct outbuf *next;           /* next free buffer */
    struct device_event *finished; /* [const] */
    struct buffer_ref download;    /* reference of the device; its release pushes {ENGINE_DOWNLOADED, 0, buffer} */
    struct buffer_ref ref;         /* reference of the sender; buffer_ref_put() pushes {ENGINE_SENT, 0, buffer} */
};

/* Initialises a zeroed buffer and adds it to the pool's free buffers.  Returns 0 or negative errno. */
int outbuf_init(struct outbuf *buffer, struct outbuf_pool *pool, struct engine *engine);

/* Frees the buffer's event.  A zeroed buffer is accepted. */
void outbuf_fini(struct outbuf *buffer);

/* Takes a free buffer from the pool.  Returns NULL if none is free.  outbuf_give() returns a buffer to its pool. */
struct outbuf *outbuf_take(struct outbuf_pool *pool);
void outbuf_give(struct outbuf *buffer);

/* Makes the stream 'download' wait until kernels have filled the buffer.  Call when all kernels that write to the
 * buffer are queued on 'compute'. */
void outbuf_finish(struct outbuf *buffer, struct device_stream *compute, struct device_stream *download);

/* Pushes ENGINE_DOWNLOADED to the worker after the copies.  Call when all copies of the buffer are queued on
 * 'download'. */
void outbuf_download(struct outbuf *buffer, struct device_stream *download);

/* Registers the counters of a stream's sent data: <prefix>_heaps, _bytes, _packets and _failed_packets. */
void outbuf_metrics(const char *prefix, const char *labels, const struct send_stream_stats *stats);

/* Fills 'stream' from the configuration's section 'send', and sets all other members to zero.  The stream's owner
 * then sets those members.  The loss of a NIC stops the engine's service with exit code 1.  Descriptors are sent
 * every 5 s; fgpu multiplies this period by send.array_size.  A capture has descriptors only at its start, so that
 * every replay makes the same capture.
 *
 * The shortest example is open_stream() of fgpu/gnss/gnss_stream.c, which makes a stream with one heap per buffer. */
void outbuf_stream_config(const struct config_send *send, struct engine *engine, struct send_stream_config *stream);

/* Initialiser of the struct spead_descriptor for the timestamp item. */
#define OUTBUF_TIMESTAMP_DESCRIPTOR                                                                                    \
    SPEAD_VALUE_DESCRIPTOR(SPEAD_TIMESTAMP, "timestamp",                                                               \
                           "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate.")

#endif
