/* engine.h - the worker of a daemon: the thread that turns received chunks into output buffers, by means of the device.
 *
 * Flow:      receive threads --chunk--> inbox --lane's matcher--> begin --upload--> process --kernels--> output buffer
 *            --download--> inbox --downloaded--> senders --> inbox --> free output buffer
 * Lanes:     each lane (lane.h) advances independently.  A lane keeps its device input until 'process' has queued
 *            kernels for all of it.
 * Draining:  the receivers have stopped or ended, so no more chunks arrive.  The worker ends when all lanes are done
 *            and no output buffer is being downloaded.  After the deadline, the worker drops sets of chunks that no
 *            lane has begun.
 * Property:  each packet received before the stop is sent, or counted as given up or refused.  Afterwards all threads have
 *            ended, and all chunks, inputs and output buffers have returned.  `build/tests/explore` checks this
 *            (protocol_engine).
 * Ownership: each daemon has its own struct, which begins with a struct engine and belongs to the daemon.
 * Threads:   main creates, starts, stops and destroys an engine; the operations run on the worker.
 * Blocking:  the worker waits only for items in its inbox. */
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
    ENGINE_CHUNK,      /* a full chunk of a polarisation (fgpu) or of an F-engine (xbgpu) [struct chunk] */
    ENGINE_INPUT_FREE, /* a device input has no readers left [struct device_input] */
    ENGINE_DOWNLOADED, /* an output buffer has been copied to host memory [struct outbuf] */
    ENGINE_SENT,       /* an output buffer has been sent, so it is free [struct outbuf] */
    ENGINE_COMMAND,    /* a request from the control thread [struct command] */
    ENGINE_RECV_END,   /* a receive thread's file has ended, or its source has failed */
    ENGINE_DRAIN,      /* from the main thread: no more chunks will arrive; item.value is the deadline of the drain */
    ENGINE_WAKE,       /* another thread has finished work, so 'process' may continue */
};

/* The operations that fgpu and xbgpu implement differently.  The worker calls all operations, and no operation
 * blocks. */
struct engine_ops {
    void (*look)(struct lane *lane, unsigned member, const struct chunk *chunk); /* inspects a new chunk; may be NULL */
    /* Uploads the next set of chunks to a free device input, which becomes the lane's current input.  If 'ended' is
     * true, no set follows.  Data that were kept for the next set are then uploaded as a separate set.  Returns false
     * if no set is ready, or if no device input is free. */
    bool (*begin)(struct lane *lane, bool ended);
    /* Queues the kernels for the current input.  Returns true if all streams have finished the input.  If no output
     * buffer is free and 'may_wait' is true, returns false.  The worker then calls 'process' again with the same input.
     * Streams that have already finished the input do nothing in this call.  A stream that cannot stop in the middle of
     * an input takes its buffer before it begins.  In a replay, false may also mean that a stream waits for its own
     * results.  If no output buffer is free and 'may_wait' is false, drops the data that the buffer would hold. */
    bool (*process)(struct lane *lane, bool may_wait);
    void (*release)(struct lane *lane); /* releases the current input */
    /* Finishes the outputs after the last input.  Returns false if work is left; the worker then calls 'flush' again. */
    bool (*flush)(struct lane *lane);
    void (*apply)(struct engine *engine, struct command *command);    /* applies and answers a command */
    void (*downloaded)(struct engine *engine, struct outbuf *buffer); /* checks a buffer, and passes it to its sender */
};

struct engine {
    const struct engine_ops *ops;   /* [const] */
    struct daemon_context c;        /* [const] */
    struct receiver_set *receivers; /* [const] made by fgpu_recv_create() or xbgpu_recv_create() */
    struct sender_group *senders;   /* [const] made by fgpu_send_create() or xbgpu_send_create() */
    struct inbox *inbox;
    struct command_channel *channel;
    struct device_stream *upload, *download; /* streams that all lanes use for copies */
    struct lane **lanes;                     /* [n_lanes] */
    size_t n_lanes;
    size_t n_computing; /* [const] number of device streams that compute */
    struct thread worker;
    bool started;
    /* [worker] */
    size_t n_processed;   /* number of device inputs that lanes have finished */
    size_t n_downloading; /* number of output buffers whose ENGINE_DOWNLOADED item has not arrived */
    bool draining;
    int64_t give_up_ns; /* deadline of the drain, monotonic; INT64_MAX: not set */
    size_t n_given_up;  /* number of chunks dropped after the deadline */
    size_t n_recv_ended;
};

/* Sizes that engine_init() needs for the inbox, the lanes and the command channel. */
struct engine_sizes {
    size_t n_lanes;
    size_t n_chunks;  /* total number of chunks of all polarisations (fgpu) or F-engines (xbgpu) */
    size_t n_outbufs; /* number of output buffers of all output streams */
    size_t n_commands, command_bytes;
    size_t n_recv_threads;
    size_t n_wakes;         /* largest number of waiting ENGINE_WAKE items */
    size_t n_other_streams; /* number of device streams that compute, besides the streams of the lanes */
};

/* Checks the configuration sections that both daemons have, and checks that these sections agree with each other. */
void engine_keys_check(const struct daemon_config *daemon, struct config_recv *recv, const struct config_send *send,
                       struct config *errors);

/* Chooses the seed of an output's dither: 'configured', or a random seed if 'configured' is negative.  To repeat a run,
 * configure the seed of that run.  Returns 0 or -EIO. */
int engine_dither_seed(int64_t configured, uint64_t *seed);

/* Makes the inbox, command channel and streams of a zeroed engine.  Returns 0 or negative errno. */
int engine_init(struct engine *engine, const struct engine_ops *ops, const struct daemon_context *context,
                struct engine_sizes sizes);

/* Checks the memory of host and device, direct reception, GPUDirect and CPUs, in this order.  Called before anything is
 * allocated.  Returns 0, or negative errno with one sentence in 'why'.  The sentence begins with a key.  For a lack of
 * memory this is 'key', and the sentence ends with 'advice'.  The sentence about recv.direct ends with
 * 'direct_advice'. */
int engine_check_memory(struct device *device, const struct memory_use *use, const struct config_recv *recv,
                        const struct config_send *send, const char *key, const char *advice, const char *direct_advice,
                        char *why, size_t why_bytes);

/* If 'err' is -ENOMEM and 'why' is empty, writes a sentence with the required memory to 'why'.  The sentence begins
 * with 'key', the configuration key that the operator must lower.  Returns 'err'. */
int engine_explain(int err, const char *key, const struct memory_use *use, char *why, size_t why_bytes);

/* Starts the threads in this order: senders, worker, receivers.  Returns 0 or negative errno.  (engine_start() and
 * engine_enable() have the signatures of struct daemon in daemon.h.) */
int engine_start(void *engine);

/* Starts delivery of packets.  Returns 0 or negative errno with one sentence in 'why'. */
int engine_enable(void *engine, char *why, size_t why_bytes);

/* Drains: stops the receivers, then processes and sends the received data, then sends stop heaps, then ends all
 * threads.  After the time 'give_up_ns' (monotonic), processes no further chunks and sends no further heaps.  Returns
 * false if this deadline ended the drain, or if a capture could not be written.  Idempotent. */
bool engine_stop(struct engine *engine, int64_t give_up_ns);

/* Frees the engine's parts.  Call after engine_stop(), when nothing uses the engine any more.  A zeroed engine is
 * accepted. */
void engine_fini(struct engine *engine);

/* Defines main() of fgpu or xbgpu.  The table of keys and the functions of each daemon have names that follow this
 * scheme. */
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
