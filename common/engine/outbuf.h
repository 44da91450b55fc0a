/* outbuf.h - output buffers: from the worker over the device to the sender, and back.
 *
 * Flow:      outbuf_take --> the daemon's kernels write it --outbuf_finish--> the daemon queues copies to the host
 *            --outbuf_download--> ENGINE_DOWNLOADED --> sender --ref--> ENGINE_SENT --outbuf_give--> free
 * Ownership: a buffer is a struct of the daemon that begins with a struct outbuf.  It belongs to the worker from take to
 *            download, and again once either of its items has been popped; in between to the device, and to the sender.
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

/* The buffers of one output stream; zeros to begin with. */
struct outbuf_pool {
    struct outbuf *free; /* the one that came back last is taken first */
    size_t n_free;
    size_t n_buffers;
};

struct outbuf {
    struct engine *engine;         /* [const] */
    struct outbuf_pool *pool;      /* [const] */
    struct outbuf *next;           /* among the free ones */
    struct device_event *finished; /* [const] */
    struct buffer_ref download;    /* the device's: back as {ENGINE_DOWNLOADED, 0, buffer} */
    struct buffer_ref ref;         /* the sender's: back as {ENGINE_SENT, 0, buffer} */
};

/* Makes a buffer of zeros a free one of the pool.  Returns 0 or negative errno. */
int outbuf_init(struct outbuf *buffer, struct outbuf_pool *pool, struct engine *engine);

/* A buffer of zeros is accepted. */
void outbuf_fini(struct outbuf *buffer);

/* A free buffer, or NULL. */
struct outbuf *outbuf_take(struct outbuf_pool *pool);
void outbuf_give(struct outbuf *buffer);

/* All that writes the buffer has been queued on 'compute'.  Stream 'download' waits for it. */
void outbuf_finish(struct outbuf *buffer, struct device_stream *compute, struct device_stream *download);

/* All copies have been queued on 'download'. */
void outbuf_download(struct outbuf *buffer, struct device_stream *download);

/* Registers what a stream has sent as prefix_heaps and so on. */
void outbuf_metrics(const char *prefix, const char *labels, const struct send_stream_stats *stats);

/* Fills 'stream' from the configuration's section 'send', and the rest with zeros.  The loss of a NIC stops the engine's
 * service with 1.  The descriptor period is 5 s, which fgpu
 * multiplies by send.array_size.  A capture has descriptors at its start only: a replay makes the same
 * capture every time, however long the replay takes. */
void outbuf_stream_config(const struct config_send *send, struct engine *engine, struct send_stream_config *stream);

/* A struct spead_descriptor. */
#define OUTBUF_TIMESTAMP_DESCRIPTOR                                                                                    \
    SPEAD_VALUE_DESCRIPTOR(SPEAD_TIMESTAMP, "timestamp",                                                               \
                           "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate.")

#endif
