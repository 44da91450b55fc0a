/* sim_sender.h - threads of a simulator.  Each thread sends a part of the prepared heaps, at the times at which these
 * heaps are due.
 *
 * Flow:      heaps --sender's thread: sim_sender_out_add--> a batch of packets --sim_sender_out_flush--> send_sink
 * Time:      all senders have the same origin: the first timestamp, and its due time on the monotonic clock.  A delayed
 *            sender catches up and omits nothing.
 * Ownership: the simulator allocates the senders and outputs.  Its own structs begin with these structs.
 * Threads:   call sim_senders_init() to sim_senders_start() and sim_senders_stop() from one thread.  A sender and its
 *            outputs belong to the sender's thread.  Any thread may read the counters. */
#ifndef TOOLS_SHARED_SIM_SENDER_H
#define TOOLS_SHARED_SIM_SENDER_H

#include "common/base/counter.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "common/config/time_keys.h"
#include "common/net/spead.h"
#include "common/send/keys.h"
#include "common/send/sink.h"
#include "common/time/timebase.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* number of items in a heap: timestamp, id of the source, another immediate value, samples */
#define SIM_SENDER_N_ITEMS               4
#define SIM_SENDER_DESCRIPTORS_MAX_BYTES 2048
#define SIM_SENDER_STOP_POLL_NS          (100 * NS_PER_MS) /* longest time until a thread checks whether it must stop */
#define SIM_SENDER_DESCRIPTOR_PERIOD_NS  (5 * NS_PER_S)

struct service;

struct sim_sender {
    struct sim_senders *senders; /* [const] */
    struct sim_sender *next;     /* [const] next sender in the list of all senders */
    int64_t timestamp;           /* timestamp of the next heaps */
    int64_t latest_ns;           /* greatest lateness so far */
    int cpu;                     /* [const] CPU of the thread; < 0: not pinned */
    struct thread thread;
    bool is_running; /* used only by the thread that calls sim_senders_start() and sim_senders_stop() */
};

/* Data that all senders share. */
struct sim_senders {
    const struct config_send *send; /* [const] */
    struct service *service;        /* [const] service; the last sender stops it at the end */
    /* [const] Function that a sender's thread runs.  The function returns an exit code.  The last sender to end stops
     * the service with this exit code. */
    int (*run)(struct sim_sender *sender);
    struct timebase timebase; /* [const] */
    int64_t first_timestamp;  /* < 0 until sim_senders_set_origin() sets the first timestamp; [const] afterwards */
    int64_t origin_ns; /* monotonic time at which first_timestamp is due; [const] after sim_senders_set_origin() */

    uint8_t descriptors[SIM_SENDER_DESCRIPTORS_MAX_BYTES];  /* [const] payload of a descriptor heap */
    size_t descriptors_bytes;                               /* [const] */
    struct spead_item descriptor_items[SIM_SENDER_N_ITEMS]; /* [const] */

    struct counter n_packets;        /* packets sent */
    struct counter n_packets_failed; /* packets that the kernel or a capture refused, or that a NIC did not send */
    struct gauge late_ns;            /* lateness of the most recent heaps */
    struct log_limit failed_limit;
    struct log_limit late_limit;

    atomic_bool stop;
    atomic_size_t n_left;     /* number of senders that have not ended */
    struct sim_sender *first; /* [const] */
    size_t n;                 /* [const] */
};

/* A sink and the batch of packets that is being filled for it. */
struct sim_sender_out {
    struct sim_senders *senders; /* [const] */
    struct send_sink *sink;      /* [const] */
    size_t batch_max;            /* [const] greatest number of packets in a batch */
    struct packet_out *batch;    /* NULL: no batch */
    size_t n_batch;
};

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* Returns the number of senders for 'n_streams' streams.  This is the smaller of 'n_streams' and send.threads, or 1 for
 * a capture. */
size_t sim_senders_count(const struct config_send *send, size_t n_streams);

/* Returns the number of heaps of 'heap_samples' in a duration, rounded down.  If the duration is 0, returns INT64_MAX,
 * which means no end. */
int64_t sim_senders_count_heaps(const struct config_time *time, double duration_s, int64_t heap_samples);

/* Initialises 'senders', which is zeroed.  All arguments must outlive 'senders'.  If 'first_timestamp' is negative, the
 * clock determines the first timestamp.  Returns 0 or negative errno with one sentence in 'why'. */
int sim_senders_init(struct sim_senders *senders, const struct config_send *send, const struct config_time *time,
                     struct service *service, int64_t first_timestamp, int (*run)(struct sim_sender *sender), char *why,
                     size_t why_bytes);

/* Builds the descriptors, which describe the items of heaps to receivers that do not know the items. */
void sim_senders_build_descriptors(struct sim_senders *senders,
                                   const struct spead_descriptor descriptors[SIM_SENDER_N_ITEMS]);

/* Adds a sender, which is zeroed, to the end of the list. */
void sim_senders_add(struct sim_senders *senders, struct sim_sender *sender);

/* Sets the origin of the schedule.  If a first timestamp is configured, this timestamp is due 'lead_ns' from now.
 * Otherwise the first timestamp is the first multiple of 'align_samples' that is more than 'lead_ns' in the future.
 * The heaps with this timestamp are due 'after_samples' samples after the timestamp itself. */
void sim_senders_set_origin(struct sim_senders *senders, int64_t align_samples, int64_t after_samples, int64_t lead_ns);

/* Starts the threads.  Returns 0 or negative errno. */
int sim_senders_start(struct sim_senders *senders);

/* Tells the threads to stop, and waits until they have ended. */
void sim_senders_stop(struct sim_senders *senders);

/* Returns the greatest lateness of any sender.  Call after sim_senders_stop(). */
int64_t sim_senders_latest_ns(const struct sim_senders *senders);

/* ---- The sender's thread ----------------------------------------------------------------------------------------- */

static inline bool sim_senders_must_stop(const struct sim_senders *senders)
{
    return atomic_load_explicit(&senders->stop, memory_order_relaxed);
}

/* Returns the monotonic time at which the sample 'n_samples' after the first timestamp is due. */
int64_t sim_senders_due_ns(const struct sim_senders *senders, int64_t n_samples);

/* Records that heaps leave 'late_ns' after their due time. */
void sim_sender_note_lateness(struct sim_sender *sender, int64_t late_ns);

/* Opens the sink, for heaps of 'heap_bytes' in packets of at most 'payload_bytes'.  If the NIC fails later, the service
 * stops with exit code 1.  Returns 0 or negative errno with one sentence in 'why'. */
int sim_sender_out_open(struct sim_sender_out *out, struct sim_senders *senders,
                        const struct endpoint_list *destinations, size_t heap_bytes, size_t payload_bytes, char *why,
                        size_t why_bytes);

/* Adds a packet to the batch and returns it.  Fill the packet before the next call. */
struct packet_out *sim_sender_out_add(struct sim_sender_out *out, size_t destination);

/* Adds a packet that carries up to 'payload_bytes' of a heap, beginning at 'offset'. */
struct packet_out *sim_sender_out_add_heap(struct sim_sender_out *out, size_t destination, uint64_t heap_cnt,
                                           const uint8_t *heap, size_t heap_bytes, size_t offset, size_t payload_bytes,
                                           const struct spead_item items[SIM_SENDER_N_ITEMS]);

/* Sends the packets of the batch.  Returns false if the batch was empty. */
bool sim_sender_out_flush(struct sim_sender_out *out);

/* Sends the packets of the batch, and waits until all packets have left. */
void sim_sender_out_drain(struct sim_sender_out *out);

/* Closes the output's sink.  Accepts a zeroed output that was never opened. */
void sim_sender_out_close(struct sim_sender_out *out);

#endif
