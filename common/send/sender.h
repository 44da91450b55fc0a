/* sender.h - a sender: a thread that sends SPEAD streams, each at its own rate.
 *
 * Flow:      worker --send_job--> sender's inbox --> packets of the stream that is due next --> send_sink
 * Ownership: a job belongs to the sender until its last packet has left or the job is dropped.  The sender then
 *            releases the job's reference.
 * Property:  each job returns exactly once, and each of its heaps is sent or counted as given up.  After the last heap, one
 *            stop heap leaves per destination.  `build/tests/explore` checks this (protocol_sender).
 * Threads:   one thread per sender; the key send.threads is the number of senders, which share the streams.
 * Blocking:  the thread sleeps until the next departure, or at most a millisecond while packets are in flight in a NIC.
 *            The worker never waits for the sender.
 *
 * Pace: a stream has a rate in bytes/s (payload and headers).  Each packet delays the stream's next departure by the
 * packet's duration at this rate.  Packets that are due within SENDER_QUANTUM_NS leave together as a piece, the largest
 * burst of a stream.  A piece has at most SENDER_PIECE_BYTES bytes.  The gap between a stream's pieces is at least two
 * fifths of a piece's duration (pace.h), even if the stream is late.  A piece leaves at most SENDER_AHEAD_NS early.
 * A wait of less than SENDER_SPIN_NS is a busy wait, because a sleep would take at least this time.  If another piece
 * may leave early, the thread sends this piece instead of waiting.  If pieces are shorter than a sleep and its
 * wake-up, the thread sleeps once for several pieces, which still leave with gaps.  docs/decisions/pacing-pieces.md
 * explains the costs.
 *
 * After an idle time a stream continues at its rate, which is above real time, and does not send faster to catch up.
 * It makes up only for the delay of a late wake-up of its thread, up to SENDER_LATE_MAX_NS.  A stream with rate 0 is
 * not paced.
 *
 * End: after sender_set_deadline() or sender_stop(), a stream might need longer than SENDER_DRAIN_MAX_NS for its
 * remaining heaps.  The sender then raises the stream's rate so that the heaps take just this time.  So a long dump
 * neither delays the shutdown nor leaves in a burst.  Heaps that have not left at the deadline are counted, and not
 * sent.  So a blocked network, or a device that is late with the last jobs, does not delay the shutdown.
 *
 * Streams of a sender that are due at the same time take turns, and each sends a batch of packets per turn.  If a
 * stream's sink has no room, because its NIC has stopped, only this stream is delayed.
 *
 * Each packet of a heap carries all items ("repeat pointers").  The heaps of a group leave interleaved: a run of
 * packets of one heap, then a run of the next heap.  A run is as many packets as the sink can join to one message of
 * at most 64 KiB.  So the cost of a packet hardly depends on the number of destinations.
 *
 * Heap counts are start + n * step (48 bits).  Data, descriptor and stop heaps share the counts, in order of departure.
 * The heap counts of a group are assigned when the group starts.  In a capture n begins at 0.  On the network n begins
 * at the milliseconds of the clock, so that a restarted process does not soon use the same counts again.  A receiver
 * may still have parts of heaps from the earlier process.
 *
 * Descriptors leave between groups, so that a receiver with room for one heap of a stream does not lose the heap.
 * Descriptors leave at the stream's rate, or faster if they would otherwise take longer than SENDER_LATE_MAX_NS.  So
 * the descriptors of a slow stream do not delay its data. */
#ifndef COMMON_SEND_SENDER_H
#define COMMON_SEND_SENDER_H

#include "common/base/counter.h"
#include "common/base/buffer_ref.h"
#include "common/send/sink.h"
#include "common/net/spead.h"
#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SENDER_PIECE_BYTES  65536
#define SENDER_AHEAD_NS     (100 * NS_PER_US)
#define SENDER_SPIN_NS      (15 * NS_PER_US)
#define SENDER_QUANTUM_NS   (200 * NS_PER_US)
#define SENDER_LATE_MAX_NS  (10 * NS_PER_MS)
#define SENDER_DRAIN_MAX_NS (10 * NS_PER_S)
#define SEND_ITEMS_MAX      8 /* including the CRC */

/* One heap to send. */
struct send_heap {
    unsigned destination;
    const uint8_t *payload;
    size_t payload_bytes;
    struct spead_item items[SEND_ITEMS_MAX];
    size_t n_items;
};

/* A group: heaps that are sent interleaved, or skipped together.  For example, the heaps of all substreams of an
 * F-engine's batch are a group. */
struct send_group {
    struct send_heap *heaps;
    size_t n_heaps;
    bool send;                  /* true: the group is sent; false: the group is skipped, and uses no heap counts */
    int64_t ready_ns;           /* monotonic arrival time of the last input packet, for the latency; 0: unknown */
    uint64_t n_clipped[N_POLS]; /* saturated samples per polarisation, counted when the group is sent */
};

/* The groups of one output buffer, in order. */
struct send_job {
    struct buffer_ref *ref;
    struct send_group *groups;
    size_t n_groups;
};

struct device;
struct sender;
struct send_stream;

struct send_stream_stats {
    struct counter heaps;   /* data heaps sent (heaps, bytes and packets count data only) */
    struct counter bytes;   /* payload bytes sent */
    struct counter packets; /* packets sent */
    struct counter failed;  /* packets of all kinds that were not sent */
    struct counter clipped[N_POLS];
    struct gauge latency_ns; /* last group: time from ready_ns to its first packet */
};

struct send_stream_config {
    const char *name; /* copied */
    /* configuration of the sink, with the destinations; the stream sets its packet sizes and rate */
    struct send_sink_config sink;
    size_t packet_payload_bytes; /* a multiple of 8 */
    bool crc;                    /* true: the last item of data and descriptor packets is a CRC (spead.h) */
    size_t heap_bytes, n_items;  /* payload bytes and items of each heap; 0: not known, all packets count as full */
    size_t run_packets;          /* largest number of successive packets of one heap; 0: as many as the sink can join */
    double rate_bytes_per_s;     /* 0: unpaced */
    uint64_t heap_cnt_start;
    uint64_t heap_cnt_step;
    const struct spead_descriptor *descriptors; /* the caller may free the descriptors after sender_add_stream() */
    size_t n_descriptors;
    int64_t descriptor_first_ns;    /* time from the first descriptors, at the start, to the second descriptors */
    int64_t descriptor_interval_ns; /* time between later descriptors; 0: only the first descriptors */
    size_t max_jobs;                /* largest number of queued jobs: the stream's output buffers */
    /* device whose memory has the heaps; NULL: host memory.  After a failure of the device no heaps are sent */
    const struct device *device;
    struct send_stream_stats *stats;
};

int sender_create(const char *thread_name, int cpu, size_t max_streams, size_t max_jobs, struct sender **sender);

/* Opens the stream's sink and adds the stream to 'sender', which has not started.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int sender_add_stream(struct sender *sender, const struct send_stream_config *config, struct send_stream **stream,
                      char *why, size_t why_bytes);

int sender_start(struct sender *sender);

/* Adds the memory of a stream's payloads; see send_sink_add_memory().  Call before the start. */
int sender_add_memory(struct send_stream *stream, const void *base, size_t n_bytes, char *why, size_t why_bytes);
int sender_add_exported(struct send_stream *stream, const struct device_exported *memory, char *why, size_t why_bytes);

/* Queues a job.  Never blocks, because the sender has room for the jobs of all its streams.  Any thread. */
void sender_push(struct send_stream *stream, struct send_job *job);

/* Sets the deadline 'give_up_ns' for all jobs, before sender_stop().  Queued jobs are sent at their rate, or faster
 * if necessary, so that all of them leave within SENDER_DRAIN_MAX_NS.  So the worker waits no longer than this time
 * for a free output buffer.  From 'give_up_ns' (monotonic) on, all jobs, including new ones, are returned unsent.
 * Call at most once, between start and stop.  Any thread. */
void sender_set_deadline(struct sender *sender, int64_t give_up_ns);

/* Stops the sender.  No more jobs may be pushed.  Queued jobs are sent at their rate, or faster if necessary, so that
 * all of them leave within SENDER_DRAIN_MAX_NS.  Then a stop heap is sent to every destination.  Returns after the
 * thread has ended.  Idempotent. */
void sender_stop(struct sender *sender);

/* Returns the first heap count of a stream (see Heap counts above).  The result is 'start' plus a multiple of
 * 'step'. */
uint64_t send_stream_first_heap_cnt(uint64_t start, uint64_t step, bool is_capture);

/* Returns the number of packets that could not be sent.  The number includes all kinds of packets and all streams, from
 * the time when the streams were added.  Any thread. */
uint64_t sender_n_failed(const struct sender *sender);

/* Returns the number of heaps that were not sent before the deadline.  Call after sender_stop(). */
uint64_t sender_n_given_up(const struct sender *sender);

/* Stops the sender, then frees it.  NULL is accepted. */
void sender_destroy(struct sender *sender);

#endif
