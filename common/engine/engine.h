/* engine.h - the worker of a daemon: chunks in, output buffers out, one thread that feeds the device.
 *
 * Flow:      receive threads --chunk--> inbox --lane's matcher--> begin --upload--> process --kernels--> output buffer
 *            --download--> inbox --downloaded--> senders --> inbox --> free output buffer
 * Lanes:     each lane advances by itself.  A lane keeps its device input until 'process' has taken all of it.
 * Draining:  no more chunks will come.  The worker ends when all lanes are done and no buffer is downloading.  After
 *            the deadline, sets that have not begun are dropped.
 * Ownership: an engine is a struct of the daemon that begins with a struct engine.
 * Threads:   main creates, starts, stops and destroys an engine; the operations run on the worker.
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
    ENGINE_COMMAND,    /* the control thread's request [struct command] */
    ENGINE_RECV_END,   /* a receive thread's file has ended, or its source has failed */
    ENGINE_DRAIN,      /* main: no more chunks will come; value = deadline of the drain */
    ENGINE_WAKE,       /* a thread of the daemon has finished, so 'process' may continue */
};

/* A daemon's part of the work.  The worker calls all operations, and no operation blocks. */
struct engine_ops {
    void (*look)(struct lane *lane, unsigned member, const struct chunk *chunk); /* sees a new chunk; may be NULL */
    /* Makes the next set of chunks the lane's current device input.  When 'ended', the rest of the last set counts as a
     * set.  Returns false if there is no set, or no free device input. */
    bool (*begin)(struct lane *lane, bool ended);
    /* Queues the kernels of the current input as far as possible.  Returns true if all streams have finished the input.
     * If no output buffer is free and 'may_wait', returns false, and the worker calls again with the same input.  Some
     * streams may have finished this input, and then do nothing.  A stream that cannot stop in the middle of an input
     * takes its buffer before it begins.  In a replay, false may also mean that a stream waits for its own results.
     * Without 'may_wait', drops the data that the buffer would hold. */
    bool (*process)(struct lane *lane, bool may_wait);
    void (*release)(struct lane *lane);                               /* the current input has been processed */
    void (*flush)(struct lane *lane);                                 /* no input is left; may be called again */
    void (*apply)(struct engine *engine, struct command *command);    /* applies and answers a command */
    void (*downloaded)(struct engine *engine, struct outbuf *buffer); /* checks a buffer, and pushes it to its sender */
};

struct engine {
    const struct engine_ops *ops;   /* [const] */
    struct daemon_context c;        /* [const] */
    struct receiver_set *receivers; /* [const] set by fgpu_recv_create() or xbgpu_recv_create() */
    struct sender_group *senders;   /* [const] set by fgpu_send_create() or xbgpu_send_create() */
    struct inbox *inbox;
    struct command_channel *channel;
    struct device_stream *upload, *download; /* shared by all lanes */
    struct lane **lanes;                     /* [n_lanes] */
    size_t n_lanes;
    struct thread worker;
    bool started;
    /* [worker] */
    size_t n_downloading; /* output buffers whose ENGINE_DOWNLOADED has not come */
    bool draining;
    int64_t give_up_ns; /* deadline of the drain; INT64_MAX: none, for recordings */
    size_t n_given_up;  /* chunks dropped after the deadline */
    size_t n_recv_ended;
};

/* Numbers of all items that can wait in the inbox at once, except device inputs. */
struct engine_sizes {
    size_t n_lanes;
    size_t n_chunks;  /* chunks of all members' pools */
    size_t n_outbufs; /* output buffers of all output streams */
    size_t n_commands, command_bytes;
    size_t n_recv_threads;
    size_t n_wakes; /* ENGINE_WAKE items that may wait */
};

/* Checks the sections that both daemons have, each against the others. */
void engine_keys_check(const struct daemon_config *daemon, struct config_recv *recv, const struct config_send *send,
                       struct config *errors);

/* Finds the seed of an output's dither: 'configured', or a random seed if 'configured' is negative.  Any random seed is
 * a valid configured seed, too.  Returns 0 or -EIO. */
int engine_dither_seed(int64_t configured, uint64_t *seed);

/* Makes the inbox, command channel and streams of a zeroed engine.  Returns 0 or negative errno. */
int engine_init(struct engine *engine, const struct engine_ops *ops, const struct daemon_context *context,
                struct engine_sizes sizes);

/* If 'why' is empty and 'err' is -ENOMEM, writes the needed memory to 'why'.  The sentence begins with 'key', the key
 * to lower, and a colon.  Returns 'err'. */
int engine_explain(int err, const char *key, const struct memory_use *use, char *why, size_t why_bytes);

/* Starts senders, worker and receivers, in that order.  Returns 0 or negative errno.  (Signatures: daemon.h.) */
int engine_start(void *engine);

/* Starts delivery of packets.  Returns 0 or negative errno with one sentence in 'why'. */
int engine_enable(void *engine, char *why, size_t why_bytes);

/* Drains: stops receivers, processes and sends the received data, sends stop heaps, ends all threads.  After
 * 'give_up_ns' begins no more chunks, and sends no more heaps.  Returns false if this deadline ended the drain, or if a
 * capture could not be written.  Idempotent. */
bool engine_stop(struct engine *engine, int64_t give_up_ns);

/* Frees the engine's parts, after engine_stop() and after all its users are gone.  A zeroed engine is accepted. */
void engine_fini(struct engine *engine);

/* Defines main() of fgpu and xbgpu, from tables and functions that both daemons have under these names. */
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
