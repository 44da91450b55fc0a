/* stream.h - one stream of a sender: its jobs, the position in them, and the time when the next packet is due.
 *
 * Flow:      sender's inbox --take--> ring of jobs --serve--> packets --> send_sink
 * Ownership: a job belongs to the stream from take() until the sink has the job's last packet.  The sink then puts the
 * reference.
 * Threads:   fields are [const] once the sender has started, or [sender thread].  create and destroy run before and
 *            after.
 * Blocking:  only in send_sink_send().  The sender sleeps, streams do not.
 *
 * For sender.c and send/stream*.c only; sender.h has the interface for others. */
#ifndef COMMON_SEND_STREAM_H
#define COMMON_SEND_STREAM_H

#include "common/base/log.h"
#include "common/send/pace.h"
#include "common/send/sender.h"

#define NEVER_NS INT64_MAX

struct send_stream {
    struct sender *sender;
    size_t index; /* index in sender->streams */
    char *name;
    struct send_sink *sink;
    size_t n_destinations;
    size_t packet_payload_bytes;
    bool crc;           /* packets have a CRC item */
    size_t run_packets; /* largest number of one heap's packets in a row */
    struct send_stream_stats *stats;
    const struct device *device; /* device with the payloads; NULL: host memory */
    struct log_limit failed_limit;

    struct pace pace;
    int64_t served_ns; /* time of the last piece; the order of unpaced streams */
    int64_t apart_ns;  /* earliest time of the next piece, if it is no smaller than the last */
    int64_t full_ns;   /* earliest time to ask the sink for room again */
    uint64_t heap_cnt; /* heap count of the next heap */
    uint64_t heap_cnt_step;

    struct send_group descriptors; /* a heap to each destination, or none */
    uint8_t *descriptor_payload;   /* payload of all descriptor heaps */
    double descriptor_haste;       /* factor of descriptor bytes at the stream's pace, <= 1 */
    int64_t descriptor_first_ns;
    int64_t descriptor_interval_ns;
    int64_t descriptor_due_ns; /* 0: the first descriptors, which come before all else */

    struct send_job **jobs; /* ring: job k is jobs[k % max_jobs] */
    size_t max_jobs;
    uint64_t n_jobs_taken;
    uint64_t n_jobs_done;
    uint64_t n_given_up; /* heaps not sent before the deadline, or only in part */
    uint64_t n_ending;   /* heaps whose last packet is in the current piece */

    /* The position in the oldest job, or in the descriptors. */
    size_t group;                     /* index of the group in progress, or of the first that may be next */
    const struct send_group *current; /* group in progress, or the last one */
    size_t run_bytes;                 /* payload of each heap's run */
    size_t round_offset;              /* offset in each heap where the round's runs begin */
    size_t heap;
    size_t offset;            /* offset in the heap */
    size_t n_packets_left;    /* packets left of the group in progress; 0: between groups */
    size_t n_stopped;         /* destinations that have got their stop heap */
    uint64_t group_heap_cnt;  /* heap count of the group's first heap */
    int64_t started_ready_ns; /* ready_ns of the last group that began in this batch, or 0 */
};

/* Creates a stream and opens its sink.  The sender sets 'sender' and 'index'.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int send_stream_create(const struct send_stream_config *config, struct send_stream **stream, char *why,
                       size_t why_bytes);

/* Makes the first descriptors due.  The schedule of the others begins when these leave. */
void send_stream_start(struct send_stream *stream);

/* Queues a job.  Puts the job at once if no part of it is to be sent. */
void send_stream_take(struct send_stream *stream, struct send_job *job);

/* Returns true if anything must leave before the stop heaps. */
bool send_stream_has_work(const struct send_stream *stream);

/* Returns the time when the stream has something to send; NEVER_NS without a job or descriptors to come. */
int64_t send_stream_due_ns(const struct send_stream *stream);

/* Returns the time to serve the stream, or a past time if a sleep until then is not worthwhile. */
int64_t send_stream_wake_ns(const struct send_stream *stream, int64_t now_ns);

/* Sends a piece of the packets due within a quantum, once the piece is far enough from the last one.  Call when
 * send_stream_wake_ns() is past.  If the sink has no room, puts the piece off, and the sender serves other streams. */
void send_stream_serve(struct send_stream *stream, int64_t now_ns);

/* Raises the rate if the remaining data would take longer than SENDER_DRAIN_MAX_NS.  Called near the end. */
void send_stream_bound_drain(struct send_stream *stream);

/* Puts all jobs unsent, once none of their packets is in flight, and counts their heaps. */
void send_stream_give_up(struct send_stream *stream);

/* Polls the sink for packets that have left.  Returns the number of packets in flight. */
size_t send_stream_reap(struct send_stream *stream);

/* Sends a stop heap to every destination, as far as the sink has room.  Returns true once all have left. */
bool send_stream_stop(struct send_stream *stream);

/* Frees the stream.  Does not put its remaining jobs.  NULL is accepted. */
void send_stream_destroy(struct send_stream *stream);

/* Puts the buffer of a job of which nothing will be sent. */
void send_job_put(struct send_job *job);

#endif
