/* sim_sender.c - the last step of a simulator: threads that pass packets to sinks at the right times.  See
 * sim_sender.h. */
#include "tools/shared/sim_sender.h"

#include "common/base/clock.h"
#include "common/daemon/service.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LATE_WARNING_NS NS_PER_S

/* ---- Life ------------------------------------------------------------------------------------------------------- */

size_t sim_senders_count(const struct config_send *send, size_t n_streams)
{
    size_t n = send->pcap_file ? 1 : (size_t)send->n_threads;

    return n < n_streams ? n : n_streams;
}

int64_t sim_senders_count_heaps(const struct config_time *time, double duration_s, int64_t heap_samples)
{
    struct timebase timebase = {.adc_sample_rate_hz = time->adc_sample_rate_hz};
    int64_t duration_ns = (int64_t)rint(duration_s * 1e9);

    return duration_ns <= 0 ? INT64_MAX : timebase_duration_samples(&timebase, duration_ns) / heap_samples;
}

int sim_senders_init(struct sim_senders *senders, const struct config_send *send, const struct config_time *time,
                     struct service *service, int64_t first_timestamp, int (*run)(struct sim_sender *sender), char *why,
                     size_t why_bytes)
{
    senders->send = send;
    senders->service = service;
    senders->run = run;
    senders->timebase.sync_time_s = time->sync_time_s;
    senders->timebase.adc_sample_rate_hz = time->adc_sample_rate_hz;
    senders->first_timestamp = first_timestamp;
    return threads_check_cpus(send->affinity.items, send->affinity.n, "send.affinity", why, why_bytes);
}

void sim_senders_build_descriptors(struct sim_senders *senders,
                                   const struct spead_descriptor descriptors[SIM_SENDER_N_ITEMS])
{
    senders->descriptors_bytes = spead_build_descriptors(descriptors, SIM_SENDER_N_ITEMS, senders->descriptors,
                                                         sizeof(senders->descriptors), senders->descriptor_items);
    assert(senders->descriptors_bytes > 0);
}

void sim_senders_add(struct sim_senders *senders, struct sim_sender *sender)
{
    const struct config_int_list *affinity = &senders->send->affinity;
    struct sim_sender **end = &senders->first;

    while (*end)
        end = &(*end)->next;
    *end = sender;
    sender->senders = senders;
    sender->cpu = affinity->n ? (int)affinity->items[senders->n % affinity->n] : -1;
    senders->n++;
}

void sim_senders_set_origin(struct sim_senders *senders, int64_t align_samples, int64_t after_samples, int64_t lead_ns)
{
    int64_t unix_ns = clock_unix_ns() + lead_ns;

    senders->origin_ns = clock_monotonic_ns() + lead_ns;
    if (senders->first_timestamp < 0) {
        int64_t next = round_up(timebase_samples_at(&senders->timebase, unix_ns) + 1, align_samples);
        senders->first_timestamp = next > 0 ? next : 0;
        senders->origin_ns += timebase_unix_ns(&senders->timebase, senders->first_timestamp + after_samples) - unix_ns;
    }
}

static void *run(void *arg)
{
    struct sim_sender *sender = arg;
    struct sim_senders *senders = sender->senders;
    int exit_code = senders->run(sender);

    if (atomic_fetch_sub(&senders->n_left, 1) == 1)
        service_stop(senders->service, exit_code);
    return NULL;
}

int sim_senders_start(struct sim_senders *senders)
{
    size_t l = 0;
    int err = 0;

    atomic_init(&senders->n_left, senders->n);
    for (struct sim_sender *sender = senders->first; sender && !err; sender = sender->next, l++) {
        char name[32] = "send";
        if (senders->n > 1)
            snprintf(name, sizeof(name), "send%zu", l);
        err = thread_start(&sender->thread, name, sender->cpu, run, sender);
        sender->is_running = !err;
    }
    return err;
}

void sim_senders_stop(struct sim_senders *senders)
{
    atomic_store_explicit(&senders->stop, true, memory_order_relaxed);
    for (struct sim_sender *sender = senders->first; sender; sender = sender->next) {
        if (sender->is_running)
            thread_join(&sender->thread);
        sender->is_running = false;
    }
}

int64_t sim_senders_latest_ns(const struct sim_senders *senders)
{
    int64_t latest_ns = 0;

    for (const struct sim_sender *sender = senders->first; sender; sender = sender->next) {
        assert(!sender->is_running);
        if (sender->latest_ns > latest_ns)
            latest_ns = sender->latest_ns;
    }
    return latest_ns;
}

/* ---- Time ------------------------------------------------------------------------------------------------------- */

int64_t sim_senders_due_ns(const struct sim_senders *senders, int64_t n_samples)
{
    return senders->origin_ns + timebase_duration_ns(&senders->timebase, n_samples);
}

void sim_sender_note_lateness(struct sim_sender *sender, int64_t late_ns)
{
    gauge_set(&sender->senders->late_ns, late_ns);
    if (late_ns > sender->latest_ns)
        sender->latest_ns = late_ns;
    if (late_ns > LATE_WARNING_NS)
        log_limited(&sender->senders->late_limit, LOG_LEVEL_WARNING,
                    "The transmission is %.1f s late: this host does not keep up.", (double)late_ns / 1e9);
}

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

int sim_sender_out_open(struct sim_sender_out *out, struct sim_senders *senders,
                        const struct endpoint_list *destinations, size_t heap_bytes, size_t payload_bytes, char *why,
                        size_t why_bytes)
{
    const struct config_send *send = senders->send;
    size_t largest = heap_bytes > senders->descriptors_bytes ? heap_bytes : senders->descriptors_bytes;
    const struct send_sink_config config = {
        .destinations = destinations,
        .transport = (enum transport)send->transport,
        .interface = send->interface,
        .ttl = (int)send->ttl,
        .buffer_bytes = (size_t)send->buffer_bytes,
        .pcap_file = send->pcap_file,
        .packet_bytes =
            spead_built_header_bytes(SIM_SENDER_N_ITEMS) + (largest < payload_bytes ? largest : payload_bytes),
        .on_lost = service_fail,
        .on_lost_arg = senders->service,
    };

    out->senders = senders;
    out->batch_max = PACKET_SINK_BATCH_MAX;
    return send_sink_open(&config, &out->sink, why, why_bytes);
}

static void note_failures(struct sim_sender_out *out)
{
    int last_errno;
    uint64_t n_failed = send_sink_take_failed(out->sink, &last_errno);

    if (n_failed == 0)
        return;
    counter_add(&out->senders->n_packets_failed, n_failed);
    log_limited(&out->senders->failed_limit, LOG_LEVEL_WARNING, "Packets could not be sent: %s.", strerror(last_errno));
}

bool sim_sender_out_flush(struct sim_sender_out *out)
{
    if (out->n_batch == 0)
        return false;
    counter_add(&out->senders->n_packets, send_sink_send(out->sink, out->batch, out->n_batch));
    out->batch = NULL;
    out->n_batch = 0;
    note_failures(out);
    return true;
}

void sim_sender_out_drain(struct sim_sender_out *out)
{
    sim_sender_out_flush(out);
    send_sink_flush(out->sink);
    note_failures(out);
}

struct packet_out *sim_sender_out_add(struct sim_sender_out *out, size_t destination)
{
    if (out->n_batch == out->batch_max)
        sim_sender_out_flush(out);
    if (!out->batch)
        out->batch = send_sink_alloc(out->sink, out->batch_max);
    struct packet_out *packet = &out->batch[out->n_batch++];
    packet->destination = (unsigned)destination;
    return packet;
}

struct packet_out *sim_sender_out_add_heap(struct sim_sender_out *out, size_t destination, uint64_t heap_cnt,
                                           const uint8_t *heap, size_t heap_bytes, size_t offset, size_t payload_bytes,
                                           const struct spead_item items[SIM_SENDER_N_ITEMS])
{
    struct packet_out *packet = sim_sender_out_add(out, destination);

    packet->payload_bytes = heap_bytes - offset < payload_bytes ? heap_bytes - offset : payload_bytes;
    packet->header_bytes = spead_build_header(packet->header, heap_cnt, heap_bytes, offset, packet->payload_bytes,
                                              items, SIM_SENDER_N_ITEMS);
    packet->payload = heap + offset;
    return packet;
}

void sim_sender_out_close(struct sim_sender_out *out)
{
    send_sink_close(out->sink);
}
