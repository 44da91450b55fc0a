/* stream.c - what a stream sends next: packets of the heaps in its jobs, descriptors, stops.  See send/stream.h.
 *
 * The place in the jobs is (job, group, round, heap, offset): in each round every heap of the group sends its next run of
 * packets. */
#include "common/send/stream.h"

#include "common/base/clock.h"
#include "common/device/device.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest UDP payload over IPv4. */
#define DATAGRAM_BYTES_MAX 65507

/* ---- Packets of a stream ----------------------------------------------------------------------------------------- */

static size_t count_packets(const struct send_stream *stream, size_t n_bytes)
{
    return (n_bytes - 1) / stream->packet_payload_bytes + 1;
}

/* The header of a packet with 'n_items' of the application, and the CRC where there is one. */
static size_t header_bytes(const struct send_stream *stream, size_t n_items)
{
    return spead_built_header_bytes(n_items + stream->crc);
}

static uint64_t take_heap_cnts(struct send_stream *stream, size_t n)
{
    uint64_t first = stream->heap_cnt;
    stream->heap_cnt = first + n * stream->heap_cnt_step; /* of which the wire has 48 bits */
    return first;
}

/* Fills 'packet' with what of a heap begins at 'offset'.  Returns the packet's size. */
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

static void note_failures(struct send_stream *stream)
{
    int last_errno;
    uint64_t n_new = send_sink_take_failed(stream->sink, &last_errno);
    if (n_new == 0)
        return;
    counter_add(&stream->stats->failed, n_new);
    log_limited(&stream->failed_limit, LOG_LEVEL_WARNING,
                "%s: %" PRIu64 " packets since start could not be sent, the last because: %s", stream->name,
                send_sink_n_failed(stream->sink, &last_errno), strerror(last_errno));
}

/* Hands the first 'n' packets to the sink.  Returns how many left. */
static size_t send_packets(struct send_stream *stream, struct packet_out *packets, size_t n)
{
    if (n == 0)
        return 0;
    size_t n_left = send_sink_send(stream->sink, packets, n);
    note_failures(stream);
    return n_left;
}

size_t send_stream_reap(struct send_stream *stream)
{
    size_t n_in_flight = send_sink_reap(stream->sink);
    note_failures(stream);
    return n_in_flight;
}

/* ---- Descriptor and stop heaps ----------------------------------------------------------------------------------- */

void send_stream_start(struct send_stream *stream)
{
    stream->descriptor_due_ns = stream->descriptors.n_heaps > 0 ? 0 : NEVER_NS;
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
        send_packets(stream, packets, n);
    }
    return true;
}

/* ---- The place in a stream's jobs -------------------------------------------------------------------------------- */

static bool has_job(const struct send_stream *stream)
{
    return stream->n_jobs_done < stream->n_jobs_taken;
}

/* In the midst of something, or with a job to begin. */
static bool is_busy(const struct send_stream *stream)
{
    return has_job(stream) || stream->n_packets_left > 0;
}

bool send_stream_has_work(const struct send_stream *stream)
{
    return is_busy(stream) || stream->descriptor_due_ns == 0;
}

static struct send_job *oldest_job(const struct send_stream *stream)
{
    return stream->jobs[stream->n_jobs_done % stream->max_jobs];
}

/* The first group from 'from' on that is sent, or n_groups. */
static size_t find_group(const struct send_job *job, size_t from)
{
    while (from < job->n_groups && !(job->groups[from].send && job->groups[from].n_heaps > 0))
        from++;
    return from;
}

void send_job_put(struct send_job *job)
{
    if (job->ref)
        buffer_ref_put(job->ref);
}

void send_stream_take(struct send_stream *stream, struct send_job *job)
{
    if (find_group(job, 0) == job->n_groups) {
        send_job_put(job);
        return;
    }
    if (!has_job(stream))
        pace_limit_backlog(&stream->pace, clock_monotonic_ns(), 0);
    assert(stream->n_jobs_taken - stream->n_jobs_done < stream->max_jobs);
    stream->jobs[stream->n_jobs_taken++ % stream->max_jobs] = job;
}

static bool is_descriptors(const struct send_stream *stream)
{
    return stream->current == &stream->descriptors;
}

/* There may be anything in the memory of a device that has failed.  What the card still reads of it does not change, since
 * nothing that was enqueued there runs any more. */
static void drop_jobs(struct send_stream *stream)
{
    if (has_job(stream) && !is_descriptors(stream))
        stream->n_packets_left = 0;
    for (; has_job(stream); stream->n_jobs_done++)
        send_job_put(oldest_job(stream));
    stream->group = 0;
}

/* They come between two groups of jobs, and not twice, however often they are due. */
static bool descriptors_due(const struct send_stream *stream, int64_t now_ns)
{
    return stream->n_packets_left == 0 && stream->descriptor_due_ns <= now_ns &&
           !(is_descriptors(stream) && has_job(stream));
}

static const struct send_group *choose_group(struct send_stream *stream, int64_t now_ns)
{
    if (descriptors_due(stream, now_ns)) {
        schedule_descriptors(stream, now_ns);
        return &stream->descriptors;
    }
    stream->group = find_group(oldest_job(stream), stream->group);
    return &oldest_job(stream)->groups[stream->group];
}

static void begin_group(struct send_stream *stream, int64_t now_ns)
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
        size_t n_packets = count_packets(stream, heap->payload_bytes);
        stream->n_packets_left += n_packets;
        n_packets_max = n_packets > n_packets_max ? n_packets : n_packets_max;
    }
    /* As few runs as possible, and those of about the same length. */
    size_t n_runs = is_descriptors(stream) ? 1 : (n_packets_max - 1) / stream->run_packets + 1;
    stream->run_bytes = ((n_packets_max - 1) / n_runs + 1) * stream->packet_payload_bytes;
    if (group->ready_ns)
        stream->started_ready_ns = group->ready_ns;
}

/* The group's last packet is about to leave: counts it, and goes on to the next group or job. */
static void end_group(struct send_stream *stream, struct packet_out *last_packet)
{
    const struct send_group *group = stream->current;
    size_t n_bytes = 0;
    if (is_descriptors(stream))
        return;
    struct send_job *job = oldest_job(stream);
    for (size_t i = 0; i < group->n_heaps; i++)
        n_bytes += group->heaps[i].payload_bytes;
    stream->n_ending += group->n_heaps;
    counter_add(&stream->stats->heaps, group->n_heaps);
    counter_add(&stream->stats->bytes, n_bytes);
    for (size_t pol = 0; pol < N_POLS; pol++)
        counter_add(&stream->stats->clipped[pol], group->n_clipped[pol]);

    stream->group++;
    if (find_group(job, stream->group) == job->n_groups) {
        /* The job is the worker's again once this packet is gone; nothing here looks at it after that. */
        last_packet->ref = job->ref;
        stream->group = 0;
        stream->n_jobs_done++;
    }
}

/* Moves on to the next run: that of the next heap which has one in this round, or in the next. */
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

/* As what 'n_bytes' of the group in progress count at the stream's pace. */
static double paced_bytes(const struct send_stream *stream, size_t n_bytes)
{
    return is_descriptors(stream) ? stream->descriptor_haste * (double)n_bytes : (double)n_bytes;
}

/* Fills 'packet' with the next one of the group in progress, and moves on. */
static void next_packet(struct send_stream *stream, struct packet_out *packet)
{
    const struct send_group *group = stream->current;
    const struct send_heap *heap = &group->heaps[stream->heap];
    size_t n_bytes = fill_packet(stream, heap, stream->group_heap_cnt + stream->heap * stream->heap_cnt_step,
                                 stream->offset, packet);
    pace_depart(&stream->pace, paced_bytes(stream, n_bytes));
    if (--stream->n_packets_left == 0) {
        end_group(stream, packet);
        return;
    }
    stream->offset += stream->packet_payload_bytes;
    if (stream->offset >= heap->payload_bytes || stream->offset == stream->round_offset + stream->run_bytes)
        next_run(stream, group);
}

/* ---- What is left at the end ------------------------------------------------------------------------------------- */

/* Bytes on the wire of a heap of which 'n_gone' bytes of payload have left. */
static uint64_t heap_bytes_left(const struct send_stream *stream, const struct send_heap *heap, size_t n_gone)
{
    if (n_gone >= heap->payload_bytes)
        return 0;
    size_t n_bytes = heap->payload_bytes - n_gone;
    return n_bytes + count_packets(stream, n_bytes) * header_bytes(stream, heap->n_items);
}

/* Bytes on the wire of the groups from 'group' on, of which no packet has left. */
static uint64_t groups_bytes(const struct send_stream *stream, const struct send_job *job, size_t group)
{
    uint64_t n_bytes = 0;
    while ((group = find_group(job, group)) < job->n_groups) {
        for (size_t i = 0; i < job->groups[group].n_heaps; i++)
            n_bytes += heap_bytes_left(stream, &job->groups[group].heaps[i], 0);
        group++;
    }
    return n_bytes;
}

/* Bytes on the wire of all that the stream still has to send, but for descriptors, which take 10 ms at most. */
static uint64_t stream_bytes_left(const struct send_stream *stream)
{
    uint64_t n_bytes = 0;
    size_t next_group = stream->group;
    if (stream->n_packets_left > 0 && !is_descriptors(stream)) {
        const struct send_group *group = &oldest_job(stream)->groups[next_group++];
        for (size_t i = 0; i < group->n_heaps; i++) {
            size_t n_gone = i == stream->heap ? stream->offset : stream->round_offset;
            n_bytes +=
                heap_bytes_left(stream, &group->heaps[i], i < stream->heap ? n_gone + stream->run_bytes : n_gone);
        }
    }
    for (uint64_t j = stream->n_jobs_done; j < stream->n_jobs_taken; j++) {
        n_bytes += groups_bytes(stream, stream->jobs[j % stream->max_jobs], next_group);
        next_group = 0;
    }
    return n_bytes;
}

void send_stream_bound_drain(struct send_stream *stream)
{
    int64_t now_ns = clock_monotonic_ns();
    pace_limit_backlog(&stream->pace, now_ns, SENDER_LATE_MAX_NS);
    if (pace_finish_within(&stream->pace, now_ns, stream_bytes_left(stream), SENDER_DRAIN_MAX_NS)) {
        send_sink_disable_pacing(stream->sink);
        stream->pace.clear_ns = stream->apart_ns = now_ns; /* which were of the slower rate */
    }
}

/* Of all groups, the one in progress too: what has left of that is no heap. */
static uint64_t heaps_left(const struct send_stream *stream)
{
    uint64_t n_heaps = 0;
    size_t group = stream->group;
    for (uint64_t j = stream->n_jobs_done; j < stream->n_jobs_taken; j++) {
        const struct send_job *job = stream->jobs[j % stream->max_jobs];
        for (; (group = find_group(job, group)) < job->n_groups; group++)
            n_heaps += job->groups[group].n_heaps;
        group = 0;
    }
    return n_heaps;
}

void send_stream_give_up(struct send_stream *stream)
{
    if (!has_job(stream))
        return;
    send_sink_flush(stream->sink); /* a card reads what is in flight where it lies */
    note_failures(stream);
    stream->n_given_up += heaps_left(stream);
    drop_jobs(stream);
}

/* ---- When it is due ---------------------------------------------------------------------------------------------- */

static bool is_paced(const struct send_stream *stream)
{
    return stream->pace.ns_per_byte > 0;
}

int64_t send_stream_due_ns(const struct send_stream *stream)
{
    int64_t next_ns = is_paced(stream) ? pace_departure_ns(&stream->pace) : stream->served_ns;
    if (is_busy(stream))
        return next_ns;
    return stream->descriptor_due_ns > next_ns ? stream->descriptor_due_ns : next_ns;
}

int64_t send_stream_wake_ns(const struct send_stream *stream, int64_t now_ns)
{
    int64_t due_ns = send_stream_due_ns(stream), apart_ns = stream->apart_ns;
    if (stream->full_ns > now_ns && due_ns != NEVER_NS)
        return due_ns > stream->full_ns ? due_ns : stream->full_ns;
    if (!is_paced(stream))
        return due_ns;
    if (!is_busy(stream)) /* descriptors are never early */
        return due_ns > apart_ns ? due_ns : apart_ns;
    /* Late by so much, short sleeps may be why: they end late. */
    if (due_ns < now_ns - SENDER_QUANTUM_NS && apart_ns < now_ns + SENDER_QUANTUM_NS / 2)
        return due_ns;
    int64_t may_ns = due_ns - SENDER_AHEAD_NS > apart_ns ? due_ns - SENDER_AHEAD_NS : apart_ns;
    if (may_ns < now_ns + SENDER_SPIN_NS)
        return now_ns;
    return due_ns > apart_ns ? due_ns : apart_ns;
}

/* Bytes of what is left of the run in progress, or of the first of the job's group to come. */
static size_t run_bytes_left(const struct send_stream *stream)
{
    bool begun = stream->n_packets_left > 0;
    const struct send_group *group = stream->current;
    if (!begun)
        group = &oldest_job(stream)->groups[find_group(oldest_job(stream), stream->group)];
    const struct send_heap *heap = &group->heaps[begun ? stream->heap : 0];
    size_t n_bytes = heap->payload_bytes - (begun ? stream->offset : 0);
    size_t run_bytes = begun ? stream->round_offset + stream->run_bytes - stream->offset
                             : stream->run_packets * stream->packet_payload_bytes;

    if (n_bytes > run_bytes)
        n_bytes = run_bytes;
    return n_bytes + count_packets(stream, n_bytes) * header_bytes(stream, heap->n_items);
}

/* Packets of a batch at most: whole runs, or where all go to one destination whole messages of the sink, so that none is
 * broken at a batch's end. */
static size_t batch_packets(const struct send_stream *stream)
{
    bool alone = stream->n_destinations == 1;
    size_t run = alone ? stream->run_packets : stream->run_bytes / stream->packet_payload_bytes;

    return run < PACKET_SINK_BATCH_MAX ? PACKET_SINK_BATCH_MAX / run * run : PACKET_SINK_BATCH_MAX;
}

/* Fills in the packets of a piece, of descriptors or of jobs.  Returns how many, and their bytes. */
static size_t fill_piece(struct send_stream *stream, int64_t now_ns, struct packet_out *packets, size_t *n_bytes)
{
    if (stream->n_packets_left == 0)
        begin_group(stream, now_ns);
    int64_t first_ns = pace_departure_ns(&stream->pace); /* past, where it is late: a piece is no longer for that */
    int64_t horizon_ns = is_paced(stream) ? (first_ns < now_ns ? first_ns : now_ns) + SENDER_QUANTUM_NS : NEVER_NS;
    size_t n_max = batch_packets(stream), n = 0;

    *n_bytes = 0;
    while (n < n_max && pace_departure_ns(&stream->pace) <= horizon_ns) {
        bool between = stream->n_packets_left == 0;
        if (between && (is_descriptors(stream) || !has_job(stream) || descriptors_due(stream, now_ns)))
            break;
        if (is_paced(stream) && n > 0 && *n_bytes + run_bytes_left(stream) > SENDER_PIECE_BYTES)
            break;
        if (between)
            begin_group(stream, now_ns);
        next_packet(stream, &packets[n]);
        *n_bytes += packets[n].header_bytes + packets[n].payload_bytes;
        n++;
    }
    return n;
}

/* Bytes that the sink hands over as one, at least, before any others.  (One that no longer joins hands over a packet: two
 * pieces may then be closer.) */
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
        drop_jobs(stream);
    if (!is_busy(stream) && !descriptors_due(stream, now_ns))
        return;
    if (!send_sink_has_room(stream->sink)) {
        stream->full_ns = now_ns + PACKET_SINK_ROOM_NS;
        return;
    }
    pace_limit_backlog(&stream->pace, now_ns, is_busy(stream) ? SENDER_LATE_MAX_NS : 0);
    struct packet_out *packets = send_sink_alloc(stream->sink, PACKET_SINK_BATCH_MAX);
    size_t n_bytes;
    stream->started_ready_ns = 0;
    stream->n_ending = 0;
    size_t n = fill_piece(stream, now_ns, packets, &n_bytes);
    if (is_paced(stream) && n > 0) {
        stream->apart_ns = pace_next_ns(&stream->pace, first_message_bytes(packets, n));
        now_ns = clock_spin_until(stream->apart_ns);
    }
    size_t n_left = send_packets(stream, packets, n);
    if (n_left < n && send_sink_deadline_passed(stream->sink))
        stream->n_given_up += stream->n_ending;
    if (is_paced(stream) && n > 0) {
        pace_hand_over(&stream->pace, now_ns, clock_monotonic_ns(), n_bytes, paced_bytes(stream, n_bytes));
        stream->apart_ns = pace_next_ns(&stream->pace, n_bytes);
    }
    if (!is_descriptors(stream))
        counter_add(&stream->stats->packets, n_left);
    stream->served_ns = now_ns;
    if (stream->started_ready_ns)
        gauge_set(&stream->stats->latency_ns, clock_monotonic_ns() - stream->started_ready_ns);
}

/* ---- Making and ending ------------------------------------------------------------------------------------------- */

/* At the stream's pace, unless that would take longer than what its data may make up for. */
static double choose_haste(const struct send_stream *stream)
{
    double all_ns = 0;

    for (size_t i = 0; i < stream->descriptors.n_heaps; i++)
        all_ns += stream->pace.ns_per_byte * (double)heap_bytes_left(stream, &stream->descriptors.heaps[i], 0);
    return all_ns > (double)SENDER_LATE_MAX_NS ? (double)SENDER_LATE_MAX_NS / all_ns : 1;
}

/* Of what they count at the stream's pace, bytes/s, so that data have what is theirs. */
static double descriptors_rate(const struct send_stream *stream)
{
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < stream->descriptors.n_heaps; i++)
        n_bytes += heap_bytes_left(stream, &stream->descriptors.heaps[i], 0);
    return stream->descriptor_haste * (double)n_bytes * (double)NS_PER_S / (double)stream->descriptor_interval_ns;
}

static const struct spead_descriptor crc_descriptor = {
    .id = SPEAD_CRC,
    .name = "crc",
    .description = "CRC32C of the packet, in which these 48 bits count as zeros",
    .format_type = 'u',
    .format_bits = 48,
};

/* Encodes the descriptors, once and for all. */
static int encode_descriptors(struct send_stream *stream, const struct send_stream_config *config)
{
    struct spead_descriptor descriptors[SEND_ITEMS_MAX] = {crc_descriptor};
    struct send_heap heap = {.n_items = config->n_descriptors + config->crc};
    size_t room_bytes = 0;

    assert(heap.n_items + config->crc <= SEND_ITEMS_MAX && config->descriptor_interval_ns >= 0);
    if (config->n_descriptors == 0)
        return 0;
    memcpy(descriptors + config->crc, config->descriptors, config->n_descriptors * sizeof(descriptors[0]));
    for (size_t i = 0; i < heap.n_items; i++) /* 1024: header, shape, format and dtype have fixed limits */
        room_bytes += strlen(descriptors[i].name) + strlen(descriptors[i].description) + 1024;
    heap.payload = stream->descriptor_payload = malloc(room_bytes);
    stream->descriptors.heaps = calloc(stream->n_destinations, sizeof(heap));
    if (!heap.payload || !stream->descriptors.heaps)
        return -ENOMEM;
    heap.payload_bytes = spead_build_descriptors(descriptors, heap.n_items, stream->descriptor_payload,
                                                 room_bytes, heap.items);
    assert(heap.payload_bytes > 0);
    for (; heap.destination < stream->n_destinations; heap.destination++)
        stream->descriptors.heaps[stream->descriptors.n_heaps++] = heap;
    stream->descriptor_haste = choose_haste(stream);
    stream->descriptor_first_ns = config->descriptor_first_ns;
    stream->descriptor_interval_ns = config->descriptor_interval_ns;
    if (stream->pace.ns_per_byte > 0 && config->descriptor_interval_ns > 0)
        stream->pace = pace_make(config->rate_bytes_per_s + descriptors_rate(stream));
    return 0;
}

/* Every life of a process counts on from where the clock is, so that no two of them use a count soon after another: a
 * receiver that had a heap in part when its sender was killed would put it together with one of the next life.  Beyond
 * that the counts have half of their 48 bits to grow.  A replay is the same every time, and counts from the start. */
uint64_t send_stream_first_heap_cnt(uint64_t start, uint64_t step, bool is_capture)
{
    if (is_capture)
        return start;
    uint64_t n_lives = (SPEAD_VALUE_MASK / 2 + 1) / step;
    return start + step * ((uint64_t)(clock_unix_ns() / NS_PER_MS) % n_lives);
}

/* Packets that the sink sends as one; a capture has each by itself. */
static size_t count_joined(const struct send_stream_config *config)
{
    if (config->sink.pcap_file)
        return 1;
    return DATAGRAM_BYTES_MAX / (spead_built_header_bytes(SEND_ITEMS_MAX) + config->packet_payload_bytes);
}

static int init_stream(struct send_stream *stream, const struct send_stream_config *config)
{
    stream->n_destinations = config->sink.destinations->n;
    stream->packet_payload_bytes = config->packet_payload_bytes;
    stream->crc = config->crc;
    stream->run_packets = config->run_packets > 0 ? config->run_packets : count_joined(config);
    stream->stats = config->stats;
    stream->pace = pace_make(config->rate_bytes_per_s);
    stream->heap_cnt =
        send_stream_first_heap_cnt(config->heap_cnt_start, config->heap_cnt_step, config->sink.pcap_file != NULL);
    stream->heap_cnt_step = config->heap_cnt_step;
    stream->max_jobs = config->max_jobs;
    stream->device = config->device;
    stream->name = strdup(config->name);
    stream->jobs = calloc(config->max_jobs, sizeof(struct send_job *));
    if (!stream->name || !stream->jobs)
        return -ENOMEM;
    return encode_descriptors(stream, config);
}

/* The largest packet of a heap. */
static size_t packet_bytes_max(const struct send_stream *stream, size_t heap_bytes, size_t n_items)
{
    return header_bytes(stream, n_items) +
           (heap_bytes < stream->packet_payload_bytes ? heap_bytes : stream->packet_payload_bytes);
}

static int open_sink(struct send_stream *stream, const struct send_stream_config *config, char *why, size_t why_bytes)
{
    struct send_sink_config sink = config->sink;
    const struct send_heap full = {.payload_bytes = config->packet_payload_bytes, .n_items = SEND_ITEMS_MAX - config->crc};
    const struct send_heap known = {.payload_bytes = config->heap_bytes, .n_items = config->n_items};
    const struct send_heap *heap = config->heap_bytes > 0 ? &known : &full;

    sink.packet_bytes = packet_bytes_max(stream, heap->payload_bytes, heap->n_items);
    sink.mean_packet_bytes =
        (double)heap_bytes_left(stream, heap, 0) / (double)count_packets(stream, heap->payload_bytes);
    if (stream->descriptors.n_heaps > 0) {
        const struct send_heap *descriptors = &stream->descriptors.heaps[0];
        size_t n_bytes = packet_bytes_max(stream, descriptors->payload_bytes, descriptors->n_items);
        sink.packet_bytes = n_bytes > sink.packet_bytes ? n_bytes : sink.packet_bytes;
    }
    sink.rate_bytes_per_s = config->rate_bytes_per_s;
    int err = send_sink_open(&sink, &stream->sink, why, why_bytes);
    if (!err && stream->descriptors.n_heaps > 0) /* else they would be copied, and wait for each other */
        err = send_sink_add_memory(stream->sink, stream->descriptor_payload,
                                     stream->descriptors.heaps[0].payload_bytes, why, why_bytes);
    return err;
}

int send_stream_create(const struct send_stream_config *config, struct send_stream **out, char *why, size_t why_bytes)
{
    size_t packet_bytes_max = spead_built_header_bytes(SEND_ITEMS_MAX) + config->packet_payload_bytes;
    assert(config->stats && config->max_jobs > 0 && config->heap_cnt_step > 0);
    assert(config->packet_payload_bytes > 0 && config->packet_payload_bytes % SPEAD_WORD_BYTES == 0);
    assert(packet_bytes_max <= DATAGRAM_BYTES_MAX);

    struct send_stream *stream = calloc(1, sizeof(*stream));
    int err = stream ? init_stream(stream, config) : -ENOMEM;
    if (err)
        snprintf(why, why_bytes, "out of memory");
    else
        err = open_sink(stream, config, why, why_bytes);
    if (err) {
        send_stream_destroy(stream);
        return err;
    }
    *out = stream;
    return 0;
}

void send_stream_destroy(struct send_stream *stream)
{
    if (!stream)
        return;
    send_sink_close(stream->sink);
    free(stream->descriptor_payload);
    free(stream->descriptors.heaps);
    free(stream->jobs);
    free(stream->name);
    free(stream);
}
