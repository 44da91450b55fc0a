/* stream.h - one stream of a sender: its queue of jobs, its position in the jobs, and its schedule.
 *
 * Flow:      sender's inbox --take--> ring of jobs --serve--> packets --> send_sink
 * Ownership: a job belongs to the stream from take until the sink has the job's last packet.  The sink then releases
 * the job's reference.
 * Threads:   after the sender's start, fields are either constant or used by the sender's thread only.  create runs
 *            before the thread's start, and destroy after its end.
 * Blocking:  only in send_sink_send(), and in a busy wait before a piece.  Only the sender sleeps.
 *
 * Only sender.c and send/stream*.c include this file.  Other files include sender.h. */
#ifndef COMMON_SEND_STREAM_H
#define COMMON_SEND_STREAM_H

#include "common/base/log.h"
#include "common/send/pace.h"
#include "common/send/sender.h"

#define NEVER_NS INT64_MAX

struct send_stream {
    struct sender *sender;
    size_t index; /* index of this stream in sender->streams */
    char *name;
    struct send_sink *sink;
    size_t n_destinations;
    size_t packet_payload_bytes;
    bool crc;           /* true if packets have a CRC item */
    size_t run_packets; /* largest number of successive packets of one heap */
    struct send_stream_stats *stats;
    const struct device *device; /* device with the payloads; NULL: host memory */
    struct log_limit failed_limit;

    struct pace pace;
    int64_t served_ns; /* monotonic time of the last piece; unpaced streams are served in the order of these times */
    int64_t apart_ns;  /* earliest time of the next piece, if the next piece is at least as large as the last piece */
    int64_t full_ns;   /* time at which the sink is asked for room again */
    uint64_t heap_cnt; /* heap count of the next heap */
    uint64_t heap_cnt_step;

    struct send_group descriptors; /* heaps with the descriptors: one for each destination, or none */
    uint8_t *descriptor_payload;   /* payload that all descriptor heaps share */
    double descriptor_haste;       /* weight of a descriptor byte in the stream's schedule, <= 1 */
    int64_t descriptor_first_ns;
    int64_t descriptor_interval_ns;
    /* Time of the next descriptors.  0: the first descriptors, which leave before all data.  When they leave, the
     * schedule of later descriptors begins. */
    int64_t descriptor_due_ns;

    struct send_job **jobs; /* ring: job k is jobs[k % max_jobs] */
    size_t max_jobs;
    uint64_t n_jobs_taken;
    uint64_t n_jobs_done;
    uint64_t n_given_up; /* number of heaps not sent, or sent only in part, before the deadline */
    uint64_t n_ending;   /* number of heaps whose last packet is in the current piece */

    /* The following members are the stream's position in the oldest job.  While descriptors are sent, the members are
     * the position in the descriptors. */
    size_t group;                     /* index of the group in progress, or of the first group not yet examined */
    const struct send_group *current; /* group in progress, or else the last group */
    size_t run_bytes;                 /* payload bytes of a run */
    size_t round_offset;              /* offset in each heap at which the runs of this round begin */
    size_t heap;
    size_t offset;            /* number of the heap's payload bytes that are already in packets */
    size_t n_packets_left;    /* number of remaining packets of the group in progress; 0: between groups */
    size_t n_stopped;         /* number of destinations whose stop heap was sent */
    uint64_t group_heap_cnt;  /* heap count of the group's first heap */
    int64_t started_ready_ns; /* ready_ns of the last group that began in this batch, or 0 */
};

/* Creates a stream and opens its sink.  The sender sets 'sender' and 'index'.  Returns 0 or negative errno with one
 * sentence in 'why'. */
int send_stream_create(const struct send_stream_config *config, struct send_stream **stream, char *why,
                       size_t why_bytes);

/* Queues a job.  If the job has no group to send, returns the job at once. */
void send_stream_take(struct send_stream *stream, struct send_job *job);

/* Returns true if data or descriptors must be sent before the stop heaps. */
bool send_stream_has_work(const struct send_stream *stream);

/* Returns the time when the next packet is due; NEVER_NS if neither jobs nor descriptors remain. */
int64_t send_stream_due_ns(const struct send_stream *stream);

/* Returns the time at which the sender must serve the stream.  If the sender must serve the stream without a sleep, the
 * result is 'now_ns' or earlier. */
int64_t send_stream_wake_ns(const struct send_stream *stream, int64_t now_ns);

/* Sends a piece: packets that are due within SENDER_QUANTUM_NS.  Waits until the gap after the last piece is long
 * enough.  Call when send_stream_wake_ns() is past.  If the sink has no room, postpones the piece, so that the sender
 * can serve other streams. */
void send_stream_serve(struct send_stream *stream, int64_t now_ns);

/* Raises the stream's rate if its data would take longer than SENDER_DRAIN_MAX_NS.  Called when the drain begins. */
void send_stream_bound_drain(struct send_stream *stream);

/* Waits until no packet is in flight.  Then returns all jobs unsent, and counts their heaps. */
void send_stream_give_up(struct send_stream *stream);

/* Polls the sink for packets that have left.  Returns the number of packets in flight. */
size_t send_stream_reap(struct send_stream *stream);

/* Sends stop heaps to further destinations, as far as the sink has room.  Returns true when a stop heap has been sent
 * to every destination. */
bool send_stream_stop(struct send_stream *stream);

/* Frees the stream, but does not return its remaining jobs.  NULL is accepted. */
void send_stream_destroy(struct send_stream *stream);

/* Returns an unsent job: releases the reference to its buffer. */
void send_job_put(struct send_job *job);

#endif
