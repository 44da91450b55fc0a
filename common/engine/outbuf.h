/* outbuf.h - output buffers: from the worker through the device to the sender, and back.
 *
 * Flow:      outbuf_take --> the daemon's kernels write it --outbuf_finish--> the daemon queues copies to the host
 *            --outbuf_download--> ENGINE_DOWNLOADED --> sender --ref--> ENGINE_SENT --outbuf_give--> free
 * Ownership: a buffer is a struct of the daemon that begins with a struct outbuf.  The worker owns the buffer from take
 *            to download, and again once either of its items has been popped.  In between the device owns it, or the
 *            sender.
 * Threads:   the worker, except init and fini (main).
 * Blocking:  never; nothing allocates after init.
 * Invariant: n_free <= n_buffers; a buffer that is downloading is not free. */
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

/* The buffers of one output stream.  Starts zeroed. */
struct outbuf_pool {
    struct outbuf *free; /* last in, first out */
    size_t n_free;
    size_t n_buffers;
};

struct outbuf {
    struct engine *engine;         /* [const] */
    struct outbuf_pool *pool;      /* [const] */
    struct outbuf *next;           /* next free buffer */
    struct device_event *finished; /* [const] */
    struct buffer_ref download;    /* reference of the device; returns as {ENGINE_DOWNLOADED, 0, buffer} */
    struct buffer_ref ref;         /* reference of the sender; returns as {ENGINE_SENT, 0, buffer} */
};

/* Adds a zeroed buffer to the pool's free ones.  Returns 0 or negative errno. */
int outbuf_init(struct outbuf *buffer, struct outbuf_pool *pool, struct engine *engine);

/* Frees the buffer's event.  A zeroed buffer is accepted. */
void outbuf_fini(struct outbuf *buffer);

/* Takes a free buffer from the pool, or returns NULL.  outbuf_give() gives a buffer back. */
struct outbuf *outbuf_take(struct outbuf_pool *pool);
void outbuf_give(struct outbuf *buffer);

/* Makes 'download' wait for the kernels.  Call when all writers of the buffer have been queued on 'compute'. */
void outbuf_finish(struct outbuf *buffer, struct device_stream *compute, struct device_stream *download);

/* Returns the buffer to the worker after the copies.  Call when all copies have been queued on 'download'. */
void outbuf_download(struct outbuf *buffer, struct device_stream *download);

/* Registers the counters of a stream's sent data, as prefix_heaps and so on. */
void outbuf_metrics(const char *prefix, const char *labels, const struct send_stream_stats *stats);

/* Fills 'stream' from the configuration's section 'send', and the rest with zeros.  The loss of a NIC stops the
 * engine's service with exit code 1.  The descriptor period is 5 s, which fgpu multiplies by send.array_size.  A
 * capture has descriptors at its start only: a replay makes the same capture every time, however long the replay
 * takes.
 *
 * The stream's owner sets the remaining fields.  The shortest example is open_stream() of fgpu/gnss_stream.c, a stream
 * with one heap per buffer. */
void outbuf_stream_config(const struct config_send *send, struct engine *engine, struct send_stream_config *stream);

/* The struct spead_descriptor of timestamps. */
#define OUTBUF_TIMESTAMP_DESCRIPTOR                                                                                    \
    SPEAD_VALUE_DESCRIPTOR(SPEAD_TIMESTAMP, "timestamp",                                                               \
                           "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate.")

#endif
