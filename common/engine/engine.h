/* engine.h - the worker of a daemon: chunks in, output buffers out, one thread that feeds the device.
 *
 * Flow:      receive threads --chunk--> inbox --lane's matcher--> begin --upload--> process --kernels--> output buffer
 *            --download--> inbox --downloaded--> senders --> inbox --> free output buffer
 * Lanes:     each goes on by itself: with the current device input until 'process' has taken all of it.
 * Draining:  no more chunks will come.  The worker ends when all lanes are done and no buffer is downloading; from the
 *            time to give up on, sets that have not begun are dropped.
 * Ownership: an engine is a struct of the daemon that begins with a struct engine.
 * Threads:   main makes, starts, stops and destroys; the operations run on the worker.
 * Blocking:  the worker sleeps only on its inbox. */
#ifndef COMMON_ENGINE_ENGINE_H
#define COMMON_ENGINE_ENGINE_H

#include "common/base/thread.h"
#include "common/daemon/daemon.h"
#include "common/daemon/keys.h"
#include "common/engine/command.h"
#include "common/engine/lane.h"
#include "common/engine/outbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk;
struct config_recv;
struct config_send;
struct inbox;
struct memory_use;
struct receiver_set;
struct sender_group;

/* Kinds of items in the worker's inbox; brackets hold the type of item.object. */
enum engine_item {
    ENGINE_CHUNK,      /* a full chunk of a member [struct chunk] */
    ENGINE_INPUT_FREE, /* a device input has no readers left [struct device_input] */
    ENGINE_DOWNLOADED, /* an output buffer is finished, and in host memory [struct outbuf] */
    ENGINE_SENT,       /* an output buffer is free again [struct outbuf] */
    ENGINE_COMMAND,    /* what the control thread wants changed [struct command] */
    ENGINE_RECV_END,   /* a receive thread's file has ended, or its source has died */
    ENGINE_DRAIN,      /* main: no more chunks will come; value = when to give up */
    ENGINE_WAKE,       /* a thread of the daemon's has finished: process may go on */
};

/* A daemon's part of the work.  The worker calls all operations, and no operation blocks. */
struct engine_ops {
    void (*look)(struct lane *lane, unsigned member, const struct chunk *chunk); /* a chunk has come; NULL: nothing */
    /* Makes the next set of chunks, or what is left of the last set where 'ended', the lane's current device input.
     * Returns false if there is none, or no free device input. */
    bool (*begin)(struct lane *lane, bool ended);
    /* Queues the kernels of the current input as far as possible.  'may_wait': returns false, to be called again, where
     * no output buffer is free; else drops what the buffer was for. */
    bool (*process)(struct lane *lane, bool may_wait);
    void (*release)(struct lane *lane);                               /* the current input has been processed */
    void (*flush)(struct lane *lane);                                 /* no input is left; may be called again */
    void (*apply)(struct engine *engine, struct command *command);    /* and answers it */
    void (*downloaded)(struct engine *engine, struct outbuf *buffer); /* looks at it, and pushes it to its sender */
};

struct engine {
    const struct engine_ops *ops;   /* [const] */
    struct daemon_context c;        /* [const] */
    struct receiver_set *receivers; /* [const] fgpu_recv_create() or xbgpu_recv_create() sets this */
    struct sender_group *senders;   /* [const] fgpu_send_create() or xbgpu_send_create() sets this */
    struct inbox *inbox;
    struct command_channel *channel;
    struct device_stream *upload, *download; /* all lanes' */
    struct lane **lanes;                     /* [n_lanes] */
    size_t n_lanes;
    struct thread worker;
    bool started;
    /* [worker] */
    size_t n_downloading; /* output buffers of which no item has come */
    bool draining;
    int64_t give_up_ns; /* INT64_MAX: a recording takes as long as it takes */
    size_t n_given_up;  /* chunks */
    size_t n_recv_ended;
};

/* All that can ever wait in the inbox at once, beside device inputs. */
struct engine_sizes {
    size_t n_lanes;
    size_t n_chunks;  /* of all members' pools */
    size_t n_outbufs; /* of all output streams */
    size_t n_commands, command_bytes;
    size_t n_recv_threads;
    size_t n_wakes; /* that may wait */
};

/* The check of the sections that both daemons have, each against the others. */
void engine_keys_check(const struct daemon_config *daemon, struct config_recv *recv, const struct config_send *send,
                       struct config *errors);

/* The seed of an output's dither: 'configured', or where that is negative a random one, which can be configured as well.
 * Returns 0 or -EIO. */
int engine_dither_seed(int64_t configured, uint64_t *seed);

/* Makes inbox, command channel and streams of an engine of zeros.  Returns 0 or negative errno. */
int engine_init(struct engine *engine, const struct engine_ops *ops, const struct daemon_context *context,
                struct engine_sizes sizes);

/* Where 'why' is empty and there was not enough memory, writes which key to lower; 'key' and a colon begin it.  Returns
 * 'err'. */
int engine_explain(int err, const char *key, const struct memory_use *use, char *why, size_t why_bytes);

/* Starts senders, worker and receivers, in that order.  Returns 0 or negative errno.  (Signatures: daemon.h.) */
int engine_start(void *engine);

/* Has packets come.  Returns 0 or negative errno with one sentence in 'why'. */
int engine_enable(void *engine, char *why, size_t why_bytes);

/* Drains: stops receivers, processes and sends what has been received, sends stop heaps, ends all threads.  From
 * 'give_up_ns' on no more chunks are begun, and no more heaps sent.  Returns false if it had to give up, or if a capture
 * could not be written.  Idempotent. */
bool engine_stop(struct engine *engine, int64_t give_up_ns);

/* After stop, and after all else of the daemon that uses the engine is gone.  An engine of zeros is accepted. */
void engine_fini(struct engine *engine);

/* main() of fgpu and xbgpu, from the tables and functions that both have by these names. */
#define ENGINE_MAIN(program)                                                                                           \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const struct daemon daemon = {                                                                          \
            .name = #program,                                                                                          \
            .table = &program##_config_table,                                                                          \
            .check = program##_config_check,                                                                           \
            .tune = program##_tune,                                                                                    \
            .create = program##_pipeline_create,                                                                       \
            .control = program##_pipeline_control,                                                                     \
            .start = engine_start,                                                                                     \
            .enable = engine_enable,                                                                                   \
            .stop = program##_pipeline_stop,                                                                           \
            .destroy = program##_pipeline_destroy,                                                                     \
        };                                                                                                             \
        struct program##_config values = {0};                                                                          \
                                                                                                                       \
        return daemon_main(&daemon, argc, argv, &values);                                                              \
    }

#endif
