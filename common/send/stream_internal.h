/* stream_internal.h - functions shared by the files of a stream.
 *
 * Files: stream.c creates a stream, queues its jobs and ends it.  stream_packets.c keeps the position in the jobs and
 * fills in the packets.  stream_serve.c determines when packets are due and sends them. */
#ifndef COMMON_SEND_STREAM_INTERNAL_H
#define COMMON_SEND_STREAM_INTERNAL_H

#include "common/send/stream.h"

/* The largest UDP payload over IPv4. */
#define DATAGRAM_BYTES_MAX 65507

static inline size_t send_stream_count_packets(const struct send_stream *stream, size_t n_bytes)
{
    return (n_bytes - 1) / stream->packet_payload_bytes + 1;
}

/* Returns the header bytes of a packet with 'n_items' of the application, plus the CRC if there is one. */
static inline size_t send_stream_header_bytes(const struct send_stream *stream, size_t n_items)
{
    return spead_built_header_bytes(n_items + stream->crc);
}

static inline bool send_stream_is_paced(const struct send_stream *stream)
{
    return stream->pace.ns_per_byte > 0;
}

static inline bool send_stream_has_job(const struct send_stream *stream)
{
    return stream->n_jobs_done < stream->n_jobs_taken;
}

/* Returns true if the stream is in the midst of a group or has a job to begin. */
static inline bool send_stream_is_busy(const struct send_stream *stream)
{
    return send_stream_has_job(stream) || stream->n_packets_left > 0;
}

static inline struct send_job *send_stream_oldest_job(const struct send_stream *stream)
{
    return stream->jobs[stream->n_jobs_done % stream->max_jobs];
}

static inline bool send_stream_is_descriptors(const struct send_stream *stream)
{
    return stream->current == &stream->descriptors;
}

/* ---- stream.c ---- */

/* Puts all jobs unsent, because a failed device's memory may hold anything.  The NIC may safely continue to read:
 * nothing that was enqueued on the device changes the memory any more. */
void send_stream_drop_jobs(struct send_stream *stream);

/* ---- stream_packets.c ---- */

/* Returns the first group from 'from' on that is to be sent, or n_groups. */
size_t send_job_find_group(const struct send_job *job, size_t from);

/* Returns true if descriptors are due.  They come between two groups of jobs, and never twice in a row while there are
 * jobs. */
bool send_stream_descriptors_due(const struct send_stream *stream, int64_t now_ns);

/* Begins the next group of the jobs, or the descriptors. */
void send_stream_begin_group(struct send_stream *stream, int64_t now_ns);

/* Returns the number of bytes as which 'n_bytes' of the group in progress count at the stream's pace. */
double send_stream_paced_bytes(const struct send_stream *stream, size_t n_bytes);

/* Fills 'packet' with the next packet of the group in progress, and advances to the packet after it. */
void send_stream_next_packet(struct send_stream *stream, struct packet_out *packet);

/* Passes the first 'n' packets to the sink.  Returns the number that left. */
size_t send_stream_send_packets(struct send_stream *stream, struct packet_out *packets, size_t n);

/* Counts and logs packets that the sink could not send. */
void send_stream_note_failures(struct send_stream *stream);

#endif
