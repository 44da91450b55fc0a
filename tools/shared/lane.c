/* lane.c - the last step of a simulator: threads, their time, and packets to sinks.  See lane.h. */
#include "tools/shared/lane.h"

#include "common/base/clock.h"
#include "common/daemon/service.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LATE_WARNING_NS NS_PER_S

/* ---- Life ------------------------------------------------------------------------------------------------------- */

int lanes_out_of_memory(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "out of memory");
    return -ENOMEM;
}

size_t lanes_count(const struct config_send *send, size_t n_streams)
{
    size_t n = send->pcap_file ? 1 : (size_t)send->n_threads;

    return n < n_streams ? n : n_streams;
}

int64_t lanes_count_heaps(const struct config_time *time, double duration_s, int64_t heap_samples)
{
    struct timebase timebase = {.adc_sample_rate_hz = time->adc_sample_rate_hz};
    int64_t duration_ns = (int64_t)rint(duration_s * 1e9);

    return duration_ns <= 0 ? INT64_MAX : timebase_duration_samples(&timebase, duration_ns) / heap_samples;
}

int lanes_init(struct lanes *lanes, const struct config_send *send, const struct config_time *time,
               struct service *service, int64_t first_timestamp, int (*run)(struct lane *lane), char *why,
               size_t why_bytes)
{
    lanes->send = send;
    lanes->service = service;
    lanes->run = run;
    lanes->timebase.sync_time_s = time->sync_time_s;
    lanes->timebase.adc_sample_rate_hz = time->adc_sample_rate_hz;
    lanes->first_timestamp = first_timestamp;
    return threads_check_cpus(send->affinity.items, send->affinity.n, "send.affinity", why, why_bytes);
}

void lanes_build_descriptors(struct lanes *lanes, const struct spead_descriptor descriptors[LANE_N_ITEMS])
{
    lanes->descriptors_bytes = spead_build_descriptors(descriptors, LANE_N_ITEMS, lanes->descriptors,
                                                       sizeof(lanes->descriptors), lanes->descriptor_items);
    assert(lanes->descriptors_bytes > 0);
}

void lanes_add(struct lanes *lanes, struct lane *lane)
{
    const struct config_int_list *affinity = &lanes->send->affinity;
    struct lane **end = &lanes->first;

    while (*end)
        end = &(*end)->next;
    *end = lane;
    lane->lanes = lanes;
    lane->cpu = affinity->n ? (int)affinity->items[lanes->n % affinity->n] : -1;
    lanes->n++;
}

void lanes_set_origin(struct lanes *lanes, int64_t align_samples, int64_t after_samples, int64_t lead_ns)
{
    int64_t unix_ns = clock_unix_ns() + lead_ns;

    lanes->origin_ns = clock_monotonic_ns() + lead_ns;
    if (lanes->first_timestamp < 0) {
        int64_t next = round_up(timebase_samples_at(&lanes->timebase, unix_ns) + 1, align_samples);
        lanes->first_timestamp = next > 0 ? next : 0;
        lanes->origin_ns += timebase_unix_ns(&lanes->timebase, lanes->first_timestamp + after_samples) - unix_ns;
    }
}

static void *run(void *arg)
{
    struct lane *lane = arg;
    struct lanes *lanes = lane->lanes;
    int exit_code = lanes->run(lane);

    if (atomic_fetch_sub(&lanes->n_left, 1) == 1)
        service_stop(lanes->service, exit_code);
    return NULL;
}

int lanes_start(struct lanes *lanes)
{
    size_t l = 0;
    int err = 0;

    atomic_init(&lanes->n_left, lanes->n);
    for (struct lane *lane = lanes->first; lane && !err; lane = lane->next, l++) {
        char name[32] = "send";
        if (lanes->n > 1)
            snprintf(name, sizeof(name), "send%zu", l);
        err = thread_start(&lane->thread, name, lane->cpu, run, lane);
        lane->is_running = !err;
    }
    return err;
}

void lanes_stop(struct lanes *lanes)
{
    atomic_store_explicit(&lanes->stop, true, memory_order_relaxed);
    for (struct lane *lane = lanes->first; lane; lane = lane->next) {
        if (lane->is_running)
            thread_join(&lane->thread);
        lane->is_running = false;
    }
}

int64_t lanes_latest_ns(const struct lanes *lanes)
{
    int64_t latest_ns = 0;

    for (const struct lane *lane = lanes->first; lane; lane = lane->next) {
        assert(!lane->is_running);
        if (lane->latest_ns > latest_ns)
            latest_ns = lane->latest_ns;
    }
    return latest_ns;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

int64_t lanes_due_ns(const struct lanes *lanes, int64_t n_samples)
{
    return lanes->origin_ns + timebase_duration_ns(&lanes->timebase, n_samples);
}

void lane_note_lateness(struct lane *lane, int64_t late_ns)
{
    gauge_set(&lane->lanes->late_ns, late_ns);
    if (late_ns > lane->latest_ns)
        lane->latest_ns = late_ns;
    if (late_ns > LATE_WARNING_NS)
        log_limited(&lane->lanes->late_limit, LOG_LEVEL_WARNING, "Sending is %.1f s late: this host does not keep up.",
                    (double)late_ns / 1e9);
}

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

int lane_out_open(struct lane_out *out, struct lanes *lanes, const struct endpoint_list *destinations,
                  size_t heap_bytes, size_t payload_bytes, char *why, size_t why_bytes)
{
    const struct config_send *send = lanes->send;
    size_t largest = heap_bytes > lanes->descriptors_bytes ? heap_bytes : lanes->descriptors_bytes;
    const struct send_sink_config config = {
        .destinations = destinations,
        .transport = (enum transport)send->transport,
        .interface = send->interface,
        .ttl = (int)send->ttl,
        .buffer_bytes = (size_t)send->buffer_bytes,
        .pcap_file = send->pcap_file,
        .packet_bytes = spead_built_header_bytes(LANE_N_ITEMS) + (largest < payload_bytes ? largest : payload_bytes),
        .on_lost = service_fail,
        .on_lost_arg = lanes->service,
    };

    out->lanes = lanes;
    out->batch_max = PACKET_SINK_BATCH_MAX;
    return send_sink_open(&config, &out->sink, why, why_bytes);
}

static void note_failures(struct lane_out *out)
{
    int last_errno;
    uint64_t n_failed = send_sink_take_failed(out->sink, &last_errno);

    if (n_failed == 0)
        return;
    counter_add(&out->lanes->n_packets_failed, n_failed);
    log_limited(&out->lanes->failed_limit, LOG_LEVEL_WARNING, "Packets could not be sent: %s.", strerror(last_errno));
}

bool lane_out_flush(struct lane_out *out)
{
    if (out->n_batch == 0)
        return false;
    counter_add(&out->lanes->n_packets, send_sink_send(out->sink, out->batch, out->n_batch));
    out->batch = NULL;
    out->n_batch = 0;
    note_failures(out);
    return true;
}

void lane_out_drain(struct lane_out *out)
{
    lane_out_flush(out);
    send_sink_flush(out->sink);
    note_failures(out);
}

struct packet_out *lane_out_add(struct lane_out *out, size_t destination)
{
    if (out->n_batch == out->batch_max)
        lane_out_flush(out);
    if (!out->batch)
        out->batch = send_sink_alloc(out->sink, out->batch_max);
    struct packet_out *packet = &out->batch[out->n_batch++];
    packet->destination = (unsigned)destination;
    return packet;
}

struct packet_out *lane_out_add_heap(struct lane_out *out, size_t destination, uint64_t heap_cnt, const uint8_t *heap,
                                     size_t heap_bytes, size_t offset, size_t payload_bytes,
                                     const struct spead_item items[LANE_N_ITEMS])
{
    struct packet_out *packet = lane_out_add(out, destination);

    packet->payload_bytes = heap_bytes - offset < payload_bytes ? heap_bytes - offset : payload_bytes;
    packet->header_bytes =
        spead_build_header(packet->header, heap_cnt, heap_bytes, offset, packet->payload_bytes, items, LANE_N_ITEMS);
    packet->payload = heap + offset;
    return packet;
}

void lane_out_close(struct lane_out *out)
{
    send_sink_close(out->sink);
}
