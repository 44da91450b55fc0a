/* sim_sender.h - threads of a simulator; each thread sends its share of prepared heaps when their time has come.
 *
 * Flow:      heaps --sender's thread: sim_sender_out_add--> a batch of packets --sim_sender_out_flush--> send_sink
 * Time:      all senders have one origin: the first timestamp, and the monotonic time at which it is due.  A
 *            sender that was held up catches up without leaving anything out.
 * Ownership: a simulator's own sender and outputs begin with these structs, in its memory.
 * Threads:   sim_senders_init() to sim_senders_start() and sim_senders_stop() from one thread; a sender and its outputs
 *            belong to the sender's thread.  Counters are read by any. */
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

#define SIM_SENDER_N_ITEMS               4 /* of a heap: a timestamp, its source, another immediate value, samples */
#define SIM_SENDER_DESCRIPTORS_MAX_BYTES 2048
#define SIM_SENDER_STOP_POLL_NS          (100 * NS_PER_MS) /* the longest sleep, so that a stop is noticed */
#define SIM_SENDER_DESCRIPTOR_PERIOD_NS  (5 * NS_PER_S)

struct service;

struct sim_sender {
    struct sim_senders *senders; /* [const] */
    struct sim_sender *next;     /* [const] of all senders */
    int64_t timestamp;           /* of the next heaps */
    int64_t latest_ns;           /* the most that sending was ever late */
    int cpu;                     /* [const] < 0: not pinned */
    struct thread thread;
    bool is_running; /* [caller of start and stop] */
};

/* Data that all senders share. */
struct sim_senders {
    const struct config_send *send; /* [const] */
    struct service *service;        /* [const] stopped when the last sender ends */
    int (*run)(struct sim_sender
                   *sender);  /* [const] the thread's work; returns the exit code that the last sender stops with */
    struct timebase timebase; /* [const] */
    int64_t first_timestamp;  /* < 0, or set before the senders begin; [const] from sim_senders_set_origin() on */
    int64_t origin_ns;        /* the same; the monotonic time that belongs to it */

    uint8_t descriptors[SIM_SENDER_DESCRIPTORS_MAX_BYTES];  /* [const] the payload of a descriptor heap */
    size_t descriptors_bytes;                               /* [const] */
    struct spead_item descriptor_items[SIM_SENDER_N_ITEMS]; /* [const] */

    struct counter n_packets;        /* sent */
    struct counter n_packets_failed; /* refused by the kernel or a capture, or not sent by a card */
    struct gauge late_ns;            /* how late the last heaps left */
    struct log_limit failed_limit;
    struct log_limit late_limit;

    atomic_bool stop;
    atomic_size_t n_left;     /* that have not come to their end */
    struct sim_sender *first; /* [const] */
    size_t n;                 /* [const] */
};

/* A sink and the batch of packets that is being filled for it. */
struct sim_sender_out {
    struct sim_senders *senders; /* [const] */
    struct send_sink *sink;      /* [const] */
    size_t batch_max;            /* [const] packets handed to the sink at once */
    struct packet_out *batch;    /* NULL: none */
    size_t n_batch;
};

/* ---- Life ------------------------------------------------------------------------------------------------------- */

/* How many senders 'n_streams' are dealt to: send.threads at most, and one for a capture. */
size_t sim_senders_count(const struct config_send *send, size_t n_streams);

/* Heaps of 'heap_samples' that a duration allows, rounded down; INT64_MAX if that is 0: until stopped. */
int64_t sim_senders_count_heaps(const struct config_time *time, double duration_s, int64_t heap_samples);

/* 'senders' is zeroed; all arguments must outlive it.  'first_timestamp' < 0: from the clock.  Returns 0 or negative
 * errno with one sentence in 'why'. */
int sim_senders_init(struct sim_senders *senders, const struct config_send *send, const struct config_time *time,
                     struct service *service, int64_t first_timestamp, int (*run)(struct sim_sender *sender), char *why,
                     size_t why_bytes);

/* Says what the items of heaps are, for receivers that do not know. */
void sim_senders_build_descriptors(struct sim_senders *senders,
                                   const struct spead_descriptor descriptors[SIM_SENDER_N_ITEMS]);

/* Adds the next of the senders, which is zeroed. */
void sim_senders_add(struct sim_senders *senders, struct sim_sender *sender);

/* Sets the origin, at the earliest 'lead_ns' from now.  A first timestamp from the clock is the next multiple of
 * 'align_samples', and its time is 'after_samples' after it was taken.  A given one has the earliest time. */
void sim_senders_set_origin(struct sim_senders *senders, int64_t align_samples, int64_t after_samples, int64_t lead_ns);

/* Starts the threads.  Returns 0 or negative errno. */
int sim_senders_start(struct sim_senders *senders);

/* Ends the threads and waits for them. */
void sim_senders_stop(struct sim_senders *senders);

/* The most that any sender was ever late; once stopped. */
int64_t sim_senders_latest_ns(const struct sim_senders *senders);

/* ---- The sender's thread ----------------------------------------------------------------------------------------- */

static inline bool sim_senders_must_stop(const struct sim_senders *senders)
{
    return atomic_load_explicit(&senders->stop, memory_order_relaxed);
}

/* When what is 'n_samples' after the first timestamp is due. */
int64_t sim_senders_due_ns(const struct sim_senders *senders, int64_t n_samples);

/* Heaps leave that late. */
void sim_sender_note_lateness(struct sim_sender *sender, int64_t late_ns);

/* Opens the sink, for heaps of 'heap_bytes' in packets of 'payload_bytes' at most.  A card that is lost stops the service
 * with 1.  Returns 0 or negative errno with one sentence in 'why'. */
int sim_sender_out_open(struct sim_sender_out *out, struct sim_senders *senders,
                        const struct endpoint_list *destinations, size_t heap_bytes, size_t payload_bytes, char *why,
                        size_t why_bytes);

/* A packet of the batch, to be filled before the next call. */
struct packet_out *sim_sender_out_add(struct sim_sender_out *out, size_t destination);

/* Adds the packet that carries 'payload_bytes' of a heap from 'offset' on. */
struct packet_out *sim_sender_out_add_heap(struct sim_sender_out *out, size_t destination, uint64_t heap_cnt,
                                           const uint8_t *heap, size_t heap_bytes, size_t offset, size_t payload_bytes,
                                           const struct spead_item items[SIM_SENDER_N_ITEMS]);

/* Sends what has been added.  Returns false if there was nothing. */
bool sim_sender_out_flush(struct sim_sender_out *out);

/* The same, and waits until all has left. */
void sim_sender_out_drain(struct sim_sender_out *out);

/* One that was not opened, but is zeroed, is accepted. */
void sim_sender_out_close(struct sim_sender_out *out);

#endif
