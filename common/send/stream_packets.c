/* stream_packets.c - builds the packets of a stream: data heaps of its jobs, descriptors, stop heaps.  See
 * send/stream.h.  The position in the jobs is (job, group, round, heap, offset).  In each round, the stream sends a
 * run of packets of every heap in the group. */
#include "common/send/stream_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- Packets to the sink ----------------------------------------------------------------------------------------- */

void send_stream_note_failures(struct send_stream *stream)
{
    int last_errno;
    uint64_t n_new = send_sink_take_failed(stream->sink, &last_errno);
    if (n_new == 0)
        return;
    counter_add(&stream->stats->failed, n_new);
    log_limited(&stream->failed_limit, LOG_LEVEL_WARNING,
                "%s: %" PRIu64 " packets could not be sent since the start; newest reason: %s", stream->name,
                send_sink_n_failed(stream->sink, &last_errno), strerror(last_errno));
}

size_t send_stream_send_packets(struct send_stream *stream, struct packet_out *packets, size_t n)
{
    if (n == 0)
        return 0;
    size_t n_left = send_sink_send(stream->sink, packets, n);
    send_stream_note_failures(stream);
    return n_left;
}

size_t send_stream_reap(struct send_stream *stream)
{
    size_t n_in_flight = send_sink_reap(stream->sink);
    send_stream_note_failures(stream);
    return n_in_flight;
}

/* ---- Descriptor and stop heaps ----------------------------------------------------------------------------------- */

static uint64_t take_heap_cnts(struct send_stream *stream, size_t n)
{
    uint64_t first = stream->heap_cnt;
    stream->heap_cnt = first + n * stream->heap_cnt_step; /* packets contain the low 48 bits of heap counts */
    return first;
}

static void schedule_descriptors(struct send_stream *stream, int64_t now_ns)
{
    if (stream->descriptor_interval_ns == 0)
        stream->descriptor_due_ns = NEVER_NS;
    else if (stream->descriptor_due_ns == 0)
        stream->descriptor_due_ns = now_ns + stream->descriptor_first_ns;
    while (stream->descriptor_due_ns <= now_ns)
        stream->descriptor_due_ns += stream->descriptor_interval_ns;
}

bool send_stream_stop(struct send_stream *stream)
{
    while (stream->n_stopped < stream->n_destinations) {
        size_t n = stream->n_destinations - stream->n_stopped;
        if (n > PACKET_SINK_BATCH_MAX)
            n = PACKET_SINK_BATCH_MAX;
        if (!send_sink_has_room(stream->sink))
            return false;
        struct packet_out *packets = send_sink_alloc(stream->sink, n);
        for (size_t i = 0; i < n; i++) {
            packets[i].header_bytes = spead_build_stop(packets[i].header, take_heap_cnts(stream, 1));
            packets[i].destination = (unsigned)stream->n_stopped++;
        }
        send_stream_send_packets(stream, packets, n);
    }
    return true;
}

/* ---- The position in a stream's jobs ----------------------------------------------------------------------------- */

size_t send_job_find_group(const struct send_job *job, size_t from)
{
    while (from < job->n_groups && !(job->groups[from].send && job->groups[from].n_heaps > 0))
        from++;
    return from;
}

bool send_stream_descriptors_due(const struct send_stream *stream, int64_t now_ns)
{
    return stream->n_packets_left == 0 && stream->descriptor_due_ns <= now_ns &&
           !(send_stream_is_descriptors(stream) && send_stream_has_job(stream));
}

static const struct send_group *choose_group(struct send_stream *stream, int64_t now_ns)
{
    if (send_stream_descriptors_due(stream, now_ns)) {
        schedule_descriptors(stream, now_ns);
        return &stream->descriptors;
    }
    stream->group = send_job_find_group(send_stream_oldest_job(stream), stream->group);
    return &send_stream_oldest_job(stream)->groups[stream->group];
}

void send_stream_begin_group(struct send_stream *stream, int64_t now_ns)
{
    const struct send_group *group = stream->current = choose_group(stream, now_ns);
    stream->round_offset = 0;
    stream->heap = 0;
    stream->offset = 0;
    stream->group_heap_cnt = take_heap_cnts(stream, group->n_heaps);
    stream->n_packets_left = 0;
    size_t n_packets_max = 0;
    for (size_t i = 0; i < group->n_heaps; i++) {
        const struct send_heap *heap = &group->heaps[i];
        assert(heap->payload_bytes > 0 && heap->n_items + stream->crc <= SEND_ITEMS_MAX);
        size_t n_packets = send_stream_count_packets(stream, heap->payload_bytes);
        stream->n_packets_left += n_packets;
        n_packets_max = n_packets > n_packets_max ? n_packets : n_packets_max;
    }
    /* Uses as few runs as possible, and makes all runs about equally long. */
    size_t n_runs = send_stream_is_descriptors(stream) ? 1 : (n_packets_max - 1) / stream->run_packets + 1;
    stream->run_bytes = ((n_packets_max - 1) / n_runs + 1) * stream->packet_payload_bytes;
    if (group->ready_ns)
        stream->started_ready_ns = group->ready_ns;
}

/* Ends a group whose last packet has been built: counts the group, and advances to the next group or job. */
static void end_group(struct send_stream *stream, struct packet_out *last_packet)
{
    const struct send_group *group = stream->current;
    size_t n_bytes = 0;
    if (send_stream_is_descriptors(stream))
        return;
    struct send_job *job = send_stream_oldest_job(stream);
    for (size_t i = 0; i < group->n_heaps; i++)
        n_bytes += group->heaps[i].payload_bytes;
    stream->n_ending += group->n_heaps;
    counter_add(&stream->stats->heaps, group->n_heaps);
    counter_add(&stream->stats->bytes, n_bytes);
    for (size_t pol = 0; pol < N_POLS; pol++)
        counter_add(&stream->stats->clipped[pol], group->n_clipped[pol]);

    stream->group++;
    if (send_job_find_group(job, stream->group) == job->n_groups) {
        /* The job belongs to the worker again when this packet has left.  The stream must not read the job
         * afterwards. */
        last_packet->ref = job->ref;
        stream->group = 0;
        stream->n_jobs_done++;
    }
}

/* Advances to the next run: the run of the next heap in this round or, after the last heap, the first run of the next
 * round. */
static void next_run(struct send_stream *stream, const struct send_group *group)
{
    do {
        if (++stream->heap == group->n_heaps) {
            stream->heap = 0;
            stream->round_offset += stream->run_bytes;
        }
    } while (group->heaps[stream->heap].payload_bytes <= stream->round_offset);
    stream->offset = stream->round_offset;
}

double send_stream_paced_bytes(const struct send_stream *stream, size_t n_bytes)
{
    return send_stream_is_descriptors(stream) ? stream->descriptor_haste * (double)n_bytes : (double)n_bytes;
}

/* Fills 'packet' with the part of a heap's payload that begins at 'offset'.  Returns the number of payload bytes in
 * the packet. */
static size_t fill_packet(const struct send_stream *stream, const struct send_heap *heap, uint64_t heap_cnt,
                          size_t offset, struct packet_out *packet)
{
    size_t n_bytes = heap->payload_bytes - offset;
    if (n_bytes > stream->packet_payload_bytes)
        n_bytes = stream->packet_payload_bytes;
    assert(heap->destination < stream->n_destinations);
    packet->header_bytes =
        spead_build_header(packet->header, heap_cnt, heap->payload_bytes, offset, n_bytes, heap->items, heap->n_items);
    packet->payload = heap->payload + offset;
    packet->payload_bytes = n_bytes;
    if (stream->crc)
        packet->header_bytes = spead_add_crc(packet->header, packet->header_bytes, packet->payload, n_bytes);
    packet->destination = heap->destination;
    return packet->header_bytes + n_bytes;
}

void send_stream_next_packet(struct send_stream *stream, struct packet_out *packet)
{
    const struct send_group *group = stream->current;
    const struct send_heap *heap = &group->heaps[stream->heap];
    size_t n_bytes = fill_packet(stream, heap, stream->group_heap_cnt + stream->heap * stream->heap_cnt_step,
                                 stream->offset, packet);
    pace_depart(&stream->pace, send_stream_paced_bytes(stream, n_bytes));
    if (--stream->n_packets_left == 0) {
        end_group(stream, packet);
        return;
    }
    stream->offset += stream->packet_payload_bytes;
    if (stream->offset >= heap->payload_bytes || stream->offset == stream->round_offset + stream->run_bytes)
        next_run(stream, group);
}
