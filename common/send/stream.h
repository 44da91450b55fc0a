/* stream.h - one stream of a sender: the jobs that it has, its place in them, and when its next packet is due.
 *
 * Flow:      sender's inbox --take--> ring of jobs --serve--> packets --> send_sink
 * Ownership: a job is the stream's from take() until its last packet is with the sink, which then puts the loan.
 * Threads:   all [const] once the sender has started, or [sender thread]; create, destroy: before and after.
 * Blocking:  only as send_sink_send() does; the sender sleeps, streams do not.
 *
 * For sender.c and send/stream*.c only; sender.h has what a stream is to others. */
#ifndef COMMON_SEND_STREAM_H
#define COMMON_SEND_STREAM_H

#include "common/base/log.h"
#include "common/send/pace.h"
#include "common/send/sender.h"

#define NEVER_NS INT64_MAX

struct send_stream {
    struct sender *sender;
    size_t index; /* in sender->streams */
    char *name;
    struct send_sink *sink;
    size_t n_destinations;
    size_t packet_payload_bytes;
    bool crc;           /* packets have a CRC item */
    size_t run_packets; /* largest number of one heap's packets in a row */
    struct send_stream_stats *stats;
    const struct device *device; /* whose memory payloads lie in; NULL: the host's */
    struct log_limit failed_limit;

    struct pace pace;
    int64_t served_ns; /* when its last piece was sent: where it stands in the turn while it is not paced */
    int64_t apart_ns;  /* before which the next piece would be too close to the last, if it is no smaller */
    int64_t full_ns;   /* before which it is not worth asking the sink for room again */
    uint64_t heap_cnt; /* of the next heap */
    uint64_t heap_cnt_step;

    struct send_group descriptors; /* a heap to each destination, or none */
    uint8_t *descriptor_payload;   /* of all of them */
    double descriptor_haste;       /* what a byte of them counts at the stream's pace, <= 1 */
    int64_t descriptor_first_ns;
    int64_t descriptor_interval_ns;
    int64_t descriptor_due_ns; /* 0: those of the start, which come before all else */

    struct send_job **jobs; /* a ring: job k is jobs[k % max_jobs] */
    size_t max_jobs;
    uint64_t n_jobs_taken;
    uint64_t n_jobs_done;
    uint64_t n_given_up; /* heaps of jobs that went home unsent at the end, or without their last packets */
    uint64_t n_ending;   /* heaps whose last packet is in the piece at hand */

    /* The place in the oldest job, or in the descriptors. */
    size_t group;                     /* the job's that is in progress, or the first that may be next */
    const struct send_group *current; /* in progress, or the last one */
    size_t run_bytes;                 /* payload of a run of its heaps */
    size_t round_offset;              /* in each heap, where the round's runs begin */
    size_t heap;
    size_t offset;            /* in the heap */
    size_t n_packets_left;    /* of the group in progress; 0: between groups */
    size_t n_stopped;         /* destinations that have had their stop heap */
    uint64_t group_heap_cnt;  /* of the group's first heap */
    int64_t started_ready_ns; /* ready_ns of the last group that began in this batch, or 0 */
};

/* Makes a stream and opens its sink; 'sender' and 'index' are left to the sender.
 * Returns 0 or negative errno with one sentence in 'why'. */
int send_stream_create(const struct send_stream_config *config, struct send_stream **stream, char *why,
                       size_t why_bytes);

/* Makes the descriptors of the start due; when these leave, they set the schedule of the others. */
void send_stream_start(struct send_stream *stream);

/* Queues a job, or gives it back at once where nothing of it is to be sent. */
void send_stream_take(struct send_stream *stream, struct send_job *job);

/* Whether there is anything that must leave before the stop heaps. */
bool send_stream_has_work(const struct send_stream *stream);

/* When the stream has something to send; NEVER_NS without a job or descriptors to come. */
int64_t send_stream_due_ns(const struct send_stream *stream);

/* When to serve it, if that is worth a sleep from now on, else something that is past. */
int64_t send_stream_wake_ns(const struct send_stream *stream, int64_t now_ns);

/* Sends a piece of what is due within a quantum, once it is far enough from the last one: if send_stream_wake_ns() is
 * past.  Where the sink has no room, it puts that off, and the sender goes on to other streams. */
void send_stream_serve(struct send_stream *stream, int64_t now_ns);

/* The end is near: raises the rate where what is left would take longer than SENDER_DRAIN_MAX_NS. */
void send_stream_bound_drain(struct send_stream *stream);

/* All jobs go home unsent, once no packet of theirs is in flight any more, and their heaps are counted. */
void send_stream_give_up(struct send_stream *stream);

/* Takes note of what has left meanwhile.  Returns how many packets are in flight. */
size_t send_stream_reap(struct send_stream *stream);

/* Sends a stop heap to every destination, as far as the sink has room.  Returns whether all have left. */
bool send_stream_stop(struct send_stream *stream);

/* Jobs that it still has are forgotten; NULL is accepted. */
void send_stream_destroy(struct send_stream *stream);

/* Gives back the buffer of a job of which nothing will be sent. */
void send_job_put(struct send_job *job);

#endif
