/* stream_internal.h - functions shared by the files of a stream.
 *
 * Files: stream.c creates a stream, queues its jobs and ends it.  stream_packets.c keeps the position in the jobs and
 * fills in the packets.  stream_serve.c determines when packets are due and sends them. */
#ifndef COMMON_SEND_STREAM_INTERNAL_H
#define COMMON_SEND_STREAM_INTERNAL_H

#include "common/send/stream.h"

/* Largest UDP payload over IPv4. */
#define DATAGRAM_BYTES_MAX 65507

static inline size_t send_stream_count_packets(const struct send_stream *stream, size_t n_bytes)
{
    return (n_bytes - 1) / stream->packet_payload_bytes + 1;
}

/* Returns the size of a packet's header with 'n_items' items of the caller, and the CRC item if the stream has one. */
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

/* Returns true if a group is in progress, or if a job is queued. */
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

/* Releases all jobs without sending them.  Called at the deadline or after a device failure.  After a device failure,
 * payloads are undefined.  A NIC may then still read the payloads of packets in flight, because no operation changes
 * the device's memory any more. */
void send_stream_drop_jobs(struct send_stream *stream);

/* ---- stream_packets.c ---- */

/* Returns the index of the next group that must be sent, or n_groups if there is none.  The search begins with the
 * group 'from'. */
size_t send_job_find_group(const struct send_job *job, size_t from);

/* Returns true if descriptors are due.  They are sent between two groups, and never twice in a row while jobs are
 * queued. */
bool send_stream_descriptors_due(const struct send_stream *stream, int64_t now_ns);

/* If the descriptors are due, begins the descriptors.  Otherwise begins the next group of the jobs. */
void send_stream_begin_group(struct send_stream *stream, int64_t now_ns);

/* Returns the weighted size of 'n_bytes' bytes of the group in progress.  A descriptor byte may weigh less than 1. */
double send_stream_paced_bytes(const struct send_stream *stream, size_t n_bytes);

/* Fills 'packet' with the next packet of the group in progress, and advances the position. */
void send_stream_next_packet(struct send_stream *stream, struct packet_out *packet);

/* Passes the first 'n' packets to the sink.  Returns the number of packets sent. */
size_t send_stream_send_packets(struct send_stream *stream, struct packet_out *packets, size_t n);

/* Counts and logs packets that the sink could not send. */
void send_stream_note_failures(struct send_stream *stream);

#endif
