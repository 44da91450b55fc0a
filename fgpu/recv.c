/* recv.c - the first stage: assigns packets to inputs' chunks. */
#include "fgpu/recv.h"

#include "common/engine/engine.h"
#include "common/recv/chunk.h"
#include "common/recv/keys.h"
#include "common/telemetry/data_time.h"
#include "common/recv/receiver_metrics.h"
#include "common/recv/receiver_set.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define STATUS_SATURATED_SHIFT 32
#define STATUS_SATURATED_MASK  0xffff

enum { WANT_TIMESTAMP, WANT_ID, WANT_STATUS };
const uint16_t fgpu_recv_wanted[FGPU_RECV_N_WANTED] = {SPEAD_TIMESTAMP, SPEAD_DIGITISER_ID, SPEAD_DIGITISER_STATUS};

/* The inputs of one receive thread. */
struct recv_thread {
    struct endpoint_list endpoints;
    unsigned *input_of_endpoint;
    unsigned *pol_of_member;
    struct fgpu_recv_context context;
};

struct recv_input {
    struct inbox *free_chunks;
    struct chunk_pool *pool;
    struct assembler_stats stats;
    /* timestamp of the antenna's last chunk; used only in the entry of polarisation 0 */
    struct gauge antenna_timestamp;
};

struct fgpu_recv {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct engine *engine;
    struct receiver_set receivers;
    struct recv_thread *threads; /* shape [n_recv_threads] */
    struct recv_input *inputs;
};

enum reject fgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                               struct receiver_identity *identity)
{
    const struct fgpu_recv_context *c = context;

    if (!spead_has_values(packet, FGPU_RECV_N_WANTED))
        return REJECT_NO_ITEMS;
    unsigned member = c->input_of_endpoint[endpoint];
    if ((packet->wanted[WANT_ID] & 1) != c->pol_of_member[member])
        return REJECT_BAD_SOURCE;
    identity->member = member;
    identity->source = 0;
    identity->wire_timestamp = packet->wanted[WANT_TIMESTAMP];
    identity->extra = (packet->wanted[WANT_STATUS] >> STATUS_SATURATED_SHIFT) & STATUS_SATURATED_MASK;
    return REJECT_NONE;
}

static const struct endpoint_list *input_endpoints(const struct fgpu_recv *recv, size_t input)
{
    return &fgpu_config_antenna(recv->config, input / N_POLS)->pols[input % N_POLS];
}

static int create_input(struct fgpu_recv *recv, size_t input, char *why, size_t why_bytes)
{
    struct recv_input *in = &recv->inputs[input];
    char labels[256] = "", pol[2] = {(char)('0' + input % N_POLS), '\0'};

    int err = inbox_create((size_t)recv->config->recv.base.n_chunks, &in->free_chunks);
    if (err)
        return err;
    struct chunk_shape shape = fgpu_chunk_shape(recv->layout, recv->config);
    err = chunk_pool_create(recv->engine->c.device, &shape, (unsigned)input, in->free_chunks, 0, &in->pool, why,
                            why_bytes);
    if (err)
        return err;
    gauge_set(&in->antenna_timestamp, -1);
    stats_label(labels, sizeof(labels), "antenna", fgpu_config_antenna(recv->config, input / N_POLS)->name);
    stats_label(labels, sizeof(labels), "pol", pol);
    receiver_metrics_add_assembler("fgpu_input", labels, &in->stats);
    return 0;
}

/* Lists the endpoints of the inputs of thread 't', and the member index of each endpoint. */
static int list_endpoints(struct fgpu_recv *recv, size_t t)
{
    struct recv_thread *thread = &recv->threads[t];
    size_t n_endpoints = 0, n_members = fgpu_thread_inputs(recv->layout, t);

    for (size_t i = t; i < recv->layout->n_inputs; i += recv->layout->n_recv_threads)
        n_endpoints += input_endpoints(recv, i)->n;
    thread->endpoints.items = calloc(n_endpoints, sizeof(*thread->endpoints.items));
    thread->input_of_endpoint = calloc(n_endpoints, sizeof(*thread->input_of_endpoint));
    thread->pol_of_member = calloc(n_members, sizeof(*thread->pol_of_member));
    if (!thread->endpoints.items || !thread->input_of_endpoint || !thread->pol_of_member)
        return -ENOMEM;
    for (size_t i = t, member = 0; i < recv->layout->n_inputs; i += recv->layout->n_recv_threads, member++) {
        const struct endpoint_list *list = input_endpoints(recv, i);
        thread->pol_of_member[member] = i % N_POLS;
        for (size_t e = 0; e < list->n; e++) {
            thread->input_of_endpoint[thread->endpoints.n] = (unsigned)member;
            thread->endpoints.items[thread->endpoints.n++] = list->items[e];
        }
    }
    thread->context = (struct fgpu_recv_context){thread->input_of_endpoint, thread->pol_of_member};
    return 0;
}

static struct assembler_config input_assembler(struct fgpu_recv *recv, size_t input, const char *name)
{
    const struct fgpu_config *config = recv->config;

    return (struct assembler_config){
        .layout = {.heap_samples = config->recv.packet_samples,
                   .heap_bytes = recv->layout->packet_bytes,
                   .n_heaps_per_source = recv->layout->heaps_per_chunk,
                   .n_sources = 1},
        .name = name,
        .window_chunks = (unsigned)config->recv.base.window_chunks,
        .jump_heaps = ASSEMBLE_JUMP_HEAPS,
        .jump_sources = 1,
        .timebase = {config->time.sync_time_s, config->time.adc_sample_rate_hz,
                     config->time.timebase == CONFIG_TIMEBASE_PACKETS},
        .clock_tolerance_ns = (int64_t)(config->time.clock_tolerance_s * (double)NS_PER_S),
        .group_timestamp = &recv->inputs[input - input % N_POLS].antenna_timestamp,
        .patience_chunks = (int64_t)fgpu_layout_wait_chunks(&config->recv) - 1,
        .free_chunks = recv->inputs[input].free_chunks,
        .worker = recv->engine->inbox,
        .full_kind = ENGINE_CHUNK,
        .stats = &recv->inputs[input].stats,
    };
}

static int create_thread(struct fgpu_recv *recv, size_t t, char *why, size_t why_bytes)
{
    const struct config_recv *keys = &recv->config->recv.base;
    struct recv_thread *thread = &recv->threads[t];
    size_t n_members = 0;
    char(*names)[96] = calloc(recv->layout->n_inputs, sizeof(*names));
    struct assembler_config *assemblers = calloc(recv->layout->n_inputs, sizeof(*assemblers));

    int err = names && assemblers ? list_endpoints(recv, t) : -ENOMEM;
    if (err)
        goto out;
    for (size_t i = t; i < recv->layout->n_inputs; i += recv->layout->n_recv_threads, n_members++) {
        snprintf(names[n_members], sizeof(*names), "%s pol%zu", fgpu_config_antenna(recv->config, i / N_POLS)->name,
                 i % N_POLS);
        assemblers[n_members] = input_assembler(recv, i, names[n_members]);
    }
    struct receiver_config receiver = {
        .source = recv_keys_source(keys, &thread->endpoints, t, recv->engine->c.device),
        .wanted_ids = fgpu_recv_wanted,
        .n_wanted = FGPU_RECV_N_WANTED,
        .identify = fgpu_recv_identify,
        .context = &thread->context,
        .assemblers = assemblers,
        .n_assemblers = n_members,
        .direct = keys->direct,
        .worker = recv->engine->inbox,
        .end_kind = ENGINE_RECV_END,
    };
    receiver.source.n_kept = fgpu_thread_frames(recv->layout, recv->config, t);
    err = receiver_set_add(&recv->receivers, &receiver, &keys->affinity, "fgpu_input", why, why_bytes);
out:
    free(assemblers);
    free(names);
    return err;
}

int fgpu_recv_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_recv **recv, char *why, size_t why_bytes)
{
    struct fgpu_recv *r = calloc(1, sizeof(*r));

    snprintf(why, why_bytes, "recv.chunks: there is no memory for %lld chunks of %zu bytes per input",
             (long long)config->recv.base.n_chunks, layout->chunk_bytes);
    if (!r)
        return -ENOMEM;
    r->config = config;
    r->layout = layout;
    r->engine = engine;
    r->threads = calloc(r->layout->n_recv_threads, sizeof(*r->threads));
    r->inputs = calloc(r->layout->n_inputs, sizeof(*r->inputs));

    int err = r->threads && r->inputs ? receiver_set_init(&r->receivers, r->layout->n_recv_threads) : -ENOMEM;
    for (size_t i = 0; !err && i < r->layout->n_inputs; i++)
        err = create_input(r, i, why, why_bytes);
    for (size_t t = 0; !err && t < r->layout->n_recv_threads; t++)
        err = create_thread(r, t, why, why_bytes);
    if (err) {
        fgpu_recv_destroy(r);
        return err;
    }
    data_time_metrics("fgpu", r->config->time.timebase == CONFIG_TIMEBASE_PACKETS);
    engine->receivers = &r->receivers;
    *recv = r;
    return 0;
}

void fgpu_recv_log(const struct fgpu_recv *recv)
{
    char name[96];

    for (size_t i = 0; i < recv->layout->n_inputs; i++) {
        snprintf(name, sizeof(name), "%s pol%zu", fgpu_config_antenna(recv->config, i / N_POLS)->name, i % N_POLS);
        receiver_metrics_log(name, &recv->inputs[i].stats);
    }
}

void fgpu_recv_destroy(struct fgpu_recv *recv)
{
    if (!recv)
        return;
    receiver_set_fini(&recv->receivers);
    for (size_t t = 0; recv->threads && t < recv->layout->n_recv_threads; t++) {
        endpoint_list_fini(&recv->threads[t].endpoints);
        free(recv->threads[t].input_of_endpoint);
        free(recv->threads[t].pol_of_member);
    }
    for (size_t i = 0; recv->inputs && i < recv->layout->n_inputs; i++) {
        chunk_pool_destroy(recv->inputs[i].pool);
        inbox_destroy(recv->inputs[i].free_chunks);
    }
    free(recv->inputs);
    free(recv->threads);
    free(recv);
}
