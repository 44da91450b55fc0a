/* stream.c - creates a stream, queues its jobs and ends it.  See send/stream.h. */
#include "common/send/stream_internal.h"

#include "common/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

bool send_stream_has_work(const struct send_stream *stream)
{
    return send_stream_is_busy(stream) || stream->descriptor_due_ns == 0;
}

void send_job_put(struct send_job *job)
{
    if (job->ref)
        buffer_ref_put(job->ref);
}

void send_stream_take(struct send_stream *stream, struct send_job *job)
{
    if (send_job_find_group(job, 0) == job->n_groups) {
        send_job_put(job);
        return;
    }
    if (!send_stream_has_job(stream))
        pace_limit_backlog(&stream->pace, clock_monotonic_ns(), 0);
    assert(stream->n_jobs_taken - stream->n_jobs_done < stream->max_jobs);
    stream->jobs[stream->n_jobs_taken++ % stream->max_jobs] = job;
}

void send_stream_drop_jobs(struct send_stream *stream)
{
    if (send_stream_has_job(stream) && !send_stream_is_descriptors(stream))
        stream->n_packets_left = 0;
    for (; send_stream_has_job(stream); stream->n_jobs_done++)
        send_job_put(send_stream_oldest_job(stream));
    stream->group = 0;
}

/* ---- Remaining data at the end ----------------------------------------------------------------------------------- */

/* Returns the remaining size of a heap, with headers, after its first 'n_gone' payload bytes have left. */
static uint64_t heap_bytes_left(const struct send_stream *stream, const struct send_heap *heap, size_t n_gone)
{
    if (n_gone >= heap->payload_bytes)
        return 0;
    size_t n_bytes = heap->payload_bytes - n_gone;
    return n_bytes + send_stream_count_packets(stream, n_bytes) * send_stream_header_bytes(stream, heap->n_items);
}

/* Returns the size, with headers, of 'group' and all later groups of the job. */
static uint64_t groups_bytes(const struct send_stream *stream, const struct send_job *job, size_t group)
{
    uint64_t n_bytes = 0;
    while ((group = send_job_find_group(job, group)) < job->n_groups) {
        for (size_t i = 0; i < job->groups[group].n_heaps; i++)
            n_bytes += heap_bytes_left(stream, &job->groups[group].heaps[i], 0);
        group++;
    }
    return n_bytes;
}

/* Returns the size, with headers, of all data that the stream must still send.  Ignores descriptors, because they
 * take at most 10 ms. */
static uint64_t stream_bytes_left(const struct send_stream *stream)
{
    uint64_t n_bytes = 0;
    size_t next_group = stream->group;
    if (stream->n_packets_left > 0 && !send_stream_is_descriptors(stream)) {
        const struct send_group *group = &send_stream_oldest_job(stream)->groups[next_group++];
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
        /* both times were computed from the lower rate, so they are replaced */
        stream->pace.clear_ns = stream->apart_ns = now_ns;
    }
}

/* Returns the number of heaps in the groups that the stream has not sent completely.  All heaps of the group in
 * progress count, because a partly sent heap is lost. */
static uint64_t heaps_left(const struct send_stream *stream)
{
    uint64_t n_heaps = 0;
    size_t group = stream->group;
    for (uint64_t j = stream->n_jobs_done; j < stream->n_jobs_taken; j++) {
        const struct send_job *job = stream->jobs[j % stream->max_jobs];
        for (; (group = send_job_find_group(job, group)) < job->n_groups; group++)
            n_heaps += job->groups[group].n_heaps;
        group = 0;
    }
    return n_heaps;
}

void send_stream_give_up(struct send_stream *stream)
{
    if (!send_stream_has_job(stream))
        return;
    send_sink_flush(stream->sink); /* waits, because a NIC may still read the payloads of packets in flight */
    send_stream_note_failures(stream);
    stream->n_given_up += heaps_left(stream);
    send_stream_drop_jobs(stream);
}

/* ---- Creation and end -------------------------------------------------------------------------------------------- */

/* Returns the weight of a descriptor byte in the schedule of the stream.  If the descriptors take at most
 * SENDER_LATE_MAX_NS at the stream's rate, the weight is 1.  Otherwise the weight is smaller, so that the descriptors
 * leave within SENDER_LATE_MAX_NS.  Data can make up for a delay of at most SENDER_LATE_MAX_NS. */
static double choose_haste(const struct send_stream *stream)
{
    double all_ns = 0;

    for (size_t i = 0; i < stream->descriptors.n_heaps; i++)
        all_ns += stream->pace.ns_per_byte * (double)heap_bytes_left(stream, &stream->descriptors.heaps[i], 0);
    return all_ns > (double)SENDER_LATE_MAX_NS ? (double)SENDER_LATE_MAX_NS / all_ns : 1;
}

/* Returns the mean rate of descriptor bytes, in bytes/s.  The rate is multiplied by the weight of a descriptor byte.
 * The caller adds the result to the stream's rate, so that data keep the configured rate. */
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

/* Encodes the descriptors once, for all repetitions. */
static int encode_descriptors(struct send_stream *stream, const struct send_stream_config *config)
{
    struct spead_descriptor descriptors[SEND_ITEMS_MAX] = {crc_descriptor};
    struct send_heap heap = {.n_items = config->n_descriptors + config->crc};
    size_t room_bytes = 0;

    assert(heap.n_items + config->crc <= SEND_ITEMS_MAX && config->descriptor_interval_ns >= 0);
    if (config->n_descriptors == 0) {
        stream->descriptor_due_ns = NEVER_NS;
        return 0;
    }
    memcpy(descriptors + config->crc, config->descriptors, config->n_descriptors * sizeof(descriptors[0]));
    for (size_t i = 0; i < heap.n_items; i++) /* 1024 bytes suffice for the header, shape, format and dtype */
        room_bytes += strlen(descriptors[i].name) + strlen(descriptors[i].description) + 1024;
    heap.payload = stream->descriptor_payload = malloc(room_bytes);
    stream->descriptors.heaps = calloc(stream->n_destinations, sizeof(heap));
    if (!heap.payload || !stream->descriptors.heaps)
        return -ENOMEM;
    heap.payload_bytes =
        spead_build_descriptors(descriptors, heap.n_items, stream->descriptor_payload, room_bytes, heap.items);
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

/* On the network each process computes its first heap count from the clock.  So a restarted process does not soon use
 * the same counts.  Otherwise a receiver could join a part of an old heap with a new heap of the same count.  The
 * clock's part of the first count is below half of the range of 48 bits, so that the counts can grow.  In a capture the
 * first count is 'start', so that each replay gives the same capture. */
uint64_t send_stream_first_heap_cnt(uint64_t start, uint64_t step, bool is_capture)
{
    if (is_capture)
        return start;
    uint64_t n_lives = (SPEAD_VALUE_MASK / 2 + 1) / step;
    return start + step * ((uint64_t)(clock_unix_ns() / NS_PER_MS) % n_lives);
}

/* Returns the largest number of packets that the sink sends as one message.  In a capture this is 1. */
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

/* Returns the size of a heap's largest packet, with header. */
static size_t packet_bytes_max(const struct send_stream *stream, size_t heap_bytes, size_t n_items)
{
    return send_stream_header_bytes(stream, n_items) +
           (heap_bytes < stream->packet_payload_bytes ? heap_bytes : stream->packet_payload_bytes);
}

static int open_sink(struct send_stream *stream, const struct send_stream_config *config, char *why, size_t why_bytes)
{
    struct send_sink_config sink = config->sink;
    const struct send_heap full = {.payload_bytes = config->packet_payload_bytes,
                                   .n_items = SEND_ITEMS_MAX - config->crc};
    const struct send_heap known = {.payload_bytes = config->heap_bytes, .n_items = config->n_items};
    const struct send_heap *heap = config->heap_bytes > 0 ? &known : &full;

    sink.packet_bytes = packet_bytes_max(stream, heap->payload_bytes, heap->n_items);
    sink.mean_packet_bytes =
        (double)heap_bytes_left(stream, heap, 0) / (double)send_stream_count_packets(stream, heap->payload_bytes);
    if (stream->descriptors.n_heaps > 0) {
        const struct send_heap *descriptors = &stream->descriptors.heaps[0];
        size_t n_bytes = packet_bytes_max(stream, descriptors->payload_bytes, descriptors->n_items);
        sink.packet_bytes = n_bytes > sink.packet_bytes ? n_bytes : sink.packet_bytes;
    }
    sink.rate_bytes_per_s = config->rate_bytes_per_s;
    int err = send_sink_open(&sink, &stream->sink, why, why_bytes);
    /* The NIC reads descriptors directly from added memory.  Otherwise batches would wait for copies of the
     * descriptors. */
    if (!err && stream->descriptors.n_heaps > 0)
        err = send_sink_add_memory(stream->sink, stream->descriptor_payload, stream->descriptors.heaps[0].payload_bytes,
                                   why, why_bytes);
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
    if (err)
        send_stream_destroy(stream);
    else
        *out = stream;
    return err;
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
