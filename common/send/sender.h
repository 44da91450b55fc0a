/* sender.h - a paced thread that sends SPEAD streams.
 *
 * Flow:      worker --send_job--> sender's inbox --> packets of the stream that is due next --> send_sink
 * Ownership: a job belongs to the sender until its last packet has left or the job is dropped.  The sender then puts
 * the job's reference.
 * Threads:   one per sender; 'send.threads' distributes streams among senders.
 * Blocking:  sleeps until the next departure, and at most a millisecond while a NIC holds packets of ours.  The worker
 *            never waits for the sender.
 *
 * Pace: a stream has a rate in bytes/s (payload and headers).  Each packet moves the stream's next departure by the
 * packet's time at this rate.  Packets due within SENDER_QUANTUM_NS leave together, at most SENDER_PIECE_BYTES of them.
 * They are a piece, the largest burst of a stream.  The gap between a stream's pieces is at least two fifths of a
 * piece's time (pace.h).  Neither late pieces nor a faster hand-over shorten the gap.  A piece leaves at most
 * SENDER_AHEAD_NS early.  A wait of less than SENDER_SPIN_NS is a busy wait, because a sleep costs as much.  During
 * such a wait the thread sends early any packet that may leave early.  If a piece lasts less than a sleep and its
 * wake-up, one sleep is for several pieces, which still leave apart.  docs/decisions/pacing-pieces.md has the costs.
 *
 * A stream that had nothing to send continues at its rate (which is above real time) and does not catch up faster.  The
 * stream makes up only for a late wake-up of its thread, by at most SENDER_LATE_MAX_NS.  Rate 0: unpaced.
 *
 * After sender_set_deadline() or sender_stop(), a stream may need longer than SENDER_DRAIN_MAX_NS for the heaps left.
 * Its rate is then raised evenly, so that it ends in just this time: a long dump neither delays the service manager nor
 * leaves in a burst.  Heaps that have not left at the deadline are counted and not sent.  So a network that takes
 * nothing, or a device that is late with the last jobs, does not delay the service manager.
 *
 * Streams of a sender that are due at the same time alternate, a batch of packets each.  If a stream's sink has no room
 * (a NIC that stands still), the stream is put off, and the others do not wait for it.
 *
 * Each packet of a heap carries all items ("repeat pointers").  The heaps of a group leave interleaved: a run of
 * packets of one heap, then a run of the next heap.  A run is as many packets as the sink can join (64 KiB).  So the
 * cost of a packet hardly depends on the number of destinations.
 * Heap counts: start + n * step (48 bits).  Data, descriptor and stop heaps share the counts, in order of departure.  A
 * group takes the counts of its heaps when the group starts.  In a capture n begins at 0.  On the network n begins at
 * the milliseconds of the clock.  A receiver may still have parts of heaps that a killed process sent: the next process
 * does not soon use the counts of these heaps again.
 *
 * Descriptors wait for the end of a group, so a receiver with room for one heap of a stream keeps its heap.
 * Descriptors leave at the stream's pace, or faster if they would otherwise take longer than SENDER_LATE_MAX_NS.  So
 * the descriptors of a slow stream do not take the time of its data. */
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

/* Heaps that leave interleaved (a batch of an F-engine: all substreams), or are skipped together. */
struct send_group {
    struct send_heap *heaps;
    size_t n_heaps;
    bool send;                  /* false: skipped without a packet or a heap count */
    int64_t ready_ns;           /* arrival of the group's last packet, monotonic; 0: unknown (latency gauge) */
    uint64_t n_clipped[N_POLS]; /* saturated samples, counted when the group is sent */
};

/* The groups of one buffer, in order. */
struct send_job {
    struct buffer_ref *ref;
    struct send_group *groups;
    size_t n_groups;
};

struct device;
struct sender;
struct send_stream;

struct send_stream_stats {
    struct counter heaps;   /* data heaps; the next two count data, too */
    struct counter bytes;   /* payload bytes */
    struct counter packets; /* packets that left */
    struct counter failed;  /* packets of all kinds that the sink refused */
    struct counter clipped[N_POLS];
    struct gauge latency_ns; /* ready_ns -> first packet of a group, of the last group */
};

struct send_stream_config {
    const char *name;             /* copied */
    struct send_sink_config sink; /* includes the destinations; the stream sets packet sizes and the rate */
    size_t packet_payload_bytes;  /* a multiple of 8 */
    bool crc;                     /* the last item of data and descriptor packets is a CRC (spead.h) */
    size_t heap_bytes, n_items;   /* size and items of each heap; 0: unknown, packets are assumed full */
    size_t run_packets;           /* most packets of one heap in a row; 0: as many as the sink can join */
    double rate_bytes_per_s;      /* 0: unpaced */
    uint64_t heap_cnt_start;
    uint64_t heap_cnt_step;
    const struct spead_descriptor *descriptors; /* copied when encoded */
    size_t n_descriptors;
    int64_t descriptor_first_ns;    /* after the first descriptors, at the start */
    int64_t descriptor_interval_ns; /* 0: only the first descriptors */
    size_t max_jobs;                /* most jobs ever queued: the stream's output buffers */
    const struct device *device;    /* device with the heaps; sends none after its failure; NULL: host memory */
    struct send_stream_stats *stats;
};

int sender_create(const char *thread_name, int cpu, size_t max_streams, size_t max_jobs, struct sender **sender);

/* Opens the stream's sink and adds the stream to 'sender', which has not started.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int sender_add_stream(struct sender *sender, const struct send_stream_config *config, struct send_stream **stream,
                      char *why, size_t why_bytes);

int sender_start(struct sender *sender);

/* Adds memory with the payloads of a stream's jobs; see send_sink_add_memory().  Before the start. */
int sender_add_memory(struct send_stream *stream, const void *base, size_t n_bytes, char *why, size_t why_bytes);
int sender_add_exported(struct send_stream *stream, const struct device_exported *memory, char *why, size_t why_bytes);

/* Queues a job.  Never blocks, because the sender has room for all jobs of its streams.  Any thread. */
void sender_push(struct send_stream *stream, struct send_job *job);

/* Sets a deadline before the end.  Queued jobs leave at their pace, or faster to be gone within SENDER_DRAIN_MAX_NS.
 * So a thread that needs a buffer for the last jobs waits no longer than this time.  From 'give_up_ns' on (monotonic)
 * all jobs, including new ones, are put unsent.  At most once, between start and stop.  Any thread. */
void sender_set_deadline(struct sender *sender, int64_t give_up_ns);

/* Stops the sender; no more jobs will come.  Queued jobs leave at their pace, or faster to be gone within
 * SENDER_DRAIN_MAX_NS.  Then a stop heap leaves on every substream.  Returns when the thread has ended.  Idempotent. */
void sender_stop(struct sender *sender);

/* Returns the first heap count of a stream that counts from 'start' in steps of 'step': see above. */
uint64_t send_stream_first_heap_cnt(uint64_t start, uint64_t step, bool is_capture);

/* Returns the packets of all kinds and streams that could not be sent, since the streams were added.  Any thread. */
uint64_t sender_n_failed(const struct sender *sender);

/* Returns the heaps that were not sent before the deadline.  After stop. */
uint64_t sender_n_given_up(const struct sender *sender);

/* NULL is accepted. */
void sender_destroy(struct sender *sender);

#endif
