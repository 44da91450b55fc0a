/* stream_serve.c - computes when a stream's packets are due, and sends them in pieces.  See send/stream.h. */
#include "common/send/stream_internal.h"

#include "common/base/clock.h"
#include "common/device/device.h"

/* ---- Due times --------------------------------------------------------------------------------------------------- */

int64_t send_stream_due_ns(const struct send_stream *stream)
{
    int64_t next_ns = send_stream_is_paced(stream) ? pace_departure_ns(&stream->pace) : stream->served_ns;
    if (send_stream_is_busy(stream))
        return next_ns;
    return stream->descriptor_due_ns > next_ns ? stream->descriptor_due_ns : next_ns;
}

int64_t send_stream_wake_ns(const struct send_stream *stream, int64_t now_ns)
{
    int64_t due_ns = send_stream_due_ns(stream), apart_ns = stream->apart_ns;
    if (stream->full_ns > now_ns && due_ns != NEVER_NS)
        return due_ns > stream->full_ns ? due_ns : stream->full_ns;
    if (!send_stream_is_paced(stream))
        return due_ns;
    if (!send_stream_is_busy(stream)) /* descriptors never leave early */
        return due_ns > apart_ns ? due_ns : apart_ns;
    /* The stream is late, so the thread must not sleep.  Perhaps the delay comes from sleeps that ended late. */
    if (due_ns < now_ns - SENDER_QUANTUM_NS && apart_ns < now_ns + SENDER_QUANTUM_NS / 2)
        return due_ns;
    int64_t may_ns = due_ns - SENDER_AHEAD_NS > apart_ns ? due_ns - SENDER_AHEAD_NS : apart_ns;
    if (may_ns < now_ns + SENDER_SPIN_NS)
        return now_ns;
    return due_ns > apart_ns ? due_ns : apart_ns;
}

/* ---- A piece ----------------------------------------------------------------------------------------------------- */

/* Returns the remaining bytes, with headers, of the run in progress, or of the first run of the next group. */
static size_t run_bytes_left(const struct send_stream *stream)
{
    bool begun = stream->n_packets_left > 0;
    const struct send_group *group = stream->current;
    if (!begun) {
        const struct send_job *job = send_stream_oldest_job(stream);
        group = &job->groups[send_job_find_group(job, stream->group)];
    }
    const struct send_heap *heap = &group->heaps[begun ? stream->heap : 0];
    size_t n_bytes = heap->payload_bytes - (begun ? stream->offset : 0);
    size_t run_bytes = begun ? stream->round_offset + stream->run_bytes - stream->offset
                             : stream->run_packets * stream->packet_payload_bytes;

    if (n_bytes > run_bytes)
        n_bytes = run_bytes;
    return n_bytes + send_stream_count_packets(stream, n_bytes) * send_stream_header_bytes(stream, heap->n_items);
}

/* Returns the largest number of packets in a batch.  A batch consists of whole runs, or of whole messages of the sink
 * if there is a single destination. */
static size_t batch_packets(const struct send_stream *stream)
{
    bool alone = stream->n_destinations == 1;
    size_t run = alone ? stream->run_packets : stream->run_bytes / stream->packet_payload_bytes;

    return run < PACKET_SINK_BATCH_MAX ? PACKET_SINK_BATCH_MAX / run * run : PACKET_SINK_BATCH_MAX;
}

/* Fills packets[] with a piece, which has either descriptors or data.  Returns the number of packets, and stores
 * their size with headers in '*n_bytes'. */
static size_t fill_piece(struct send_stream *stream, int64_t now_ns, struct packet_out *packets, size_t *n_bytes)
{
    if (stream->n_packets_left == 0)
        send_stream_begin_group(stream, now_ns);
    int64_t first_ns = pace_departure_ns(&stream->pace); /* in the past if the stream is late */
    int64_t horizon_ns =
        send_stream_is_paced(stream) ? (first_ns < now_ns ? first_ns : now_ns) + SENDER_QUANTUM_NS : NEVER_NS;
    size_t n_max = batch_packets(stream), n = 0;

    *n_bytes = 0;
    while (n < n_max && pace_departure_ns(&stream->pace) <= horizon_ns) {
        bool between = stream->n_packets_left == 0;
        if (between && (send_stream_is_descriptors(stream) || !send_stream_has_job(stream) ||
                        send_stream_descriptors_due(stream, now_ns)))
            break;
        if (send_stream_is_paced(stream) && n > 0 && *n_bytes + run_bytes_left(stream) > SENDER_PIECE_BYTES)
            break;
        if (between)
            send_stream_begin_group(stream, now_ns);
        send_stream_next_packet(stream, &packets[n]);
        *n_bytes += packets[n].header_bytes + packets[n].payload_bytes;
        n++;
    }
    return n;
}

/* Returns the size of the first message.  The sink hands over this message before all others.  If the sink no longer
 * joins packets, the first message is one packet, and the returned size is too large.  The gap between two pieces may
 * then be shorter. */
static size_t first_message_bytes(const struct packet_out *packets, size_t n)
{
    size_t n_bytes = 0;

    for (size_t i = 0; i < n && packets[i].destination == packets[0].destination; i++) {
        size_t packet_bytes = packets[i].header_bytes + packets[i].payload_bytes;
        if (n_bytes + packet_bytes > DATAGRAM_BYTES_MAX)
            break;
        n_bytes += packet_bytes;
    }
    return n_bytes;
}

void send_stream_serve(struct send_stream *stream, int64_t now_ns)
{
    if (stream->device && !device_ok(stream->device))
        send_stream_drop_jobs(stream);
    if (!send_stream_is_busy(stream) && !send_stream_descriptors_due(stream, now_ns))
        return;
    if (!send_sink_has_room(stream->sink)) {
        stream->full_ns = now_ns + PACKET_SINK_ROOM_NS;
        return;
    }
    pace_limit_backlog(&stream->pace, now_ns, send_stream_is_busy(stream) ? SENDER_LATE_MAX_NS : 0);
    struct packet_out *packets = send_sink_alloc(stream->sink, PACKET_SINK_BATCH_MAX);
    size_t n_bytes;
    stream->started_ready_ns = 0;
    stream->n_ending = 0;
    size_t n = fill_piece(stream, now_ns, packets, &n_bytes);
    if (send_stream_is_paced(stream) && n > 0) {
        stream->apart_ns = pace_next_ns(&stream->pace, first_message_bytes(packets, n));
        now_ns = clock_spin_until(stream->apart_ns);
    }
    size_t n_left = send_stream_send_packets(stream, packets, n);
    if (n_left < n && send_sink_deadline_passed(stream->sink))
        stream->n_given_up += stream->n_ending;
    if (send_stream_is_paced(stream) && n > 0) {
        pace_hand_over(&stream->pace, now_ns, clock_monotonic_ns(), n_bytes, send_stream_paced_bytes(stream, n_bytes));
        stream->apart_ns = pace_next_ns(&stream->pace, n_bytes);
    }
    if (!send_stream_is_descriptors(stream))
        counter_add(&stream->stats->packets, n_left);
    stream->served_ns = now_ns;
    if (stream->started_ready_ns)
        gauge_set(&stream->stats->latency_ns, clock_monotonic_ns() - stream->started_ready_ns);
}
