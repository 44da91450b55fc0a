/* recv.c - the first stage: assigns packets to members' chunks. */
#include "xbgpu/recv.h"

#include "common/engine/engine.h"
#include "common/recv/chunk.h"
#include "common/recv/keys.h"
#include "common/telemetry/data_time.h"
#include "common/recv/receiver_metrics.h"
#include "common/recv/receiver_set.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "xbgpu/fengs.h"
#include "common/engine/labels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define N_LISTED 3 /* maximum number of antennas that a member's name lists individually */

enum { WANT_TIMESTAMP, WANT_FENG_ID, WANT_FREQUENCY };
const uint16_t xbgpu_recv_wanted[XBGPU_RECV_N_WANTED] = {SPEAD_TIMESTAMP, SPEAD_FENG_ID, SPEAD_FREQUENCY};

struct recv_member {
    struct inbox *free_chunks;
    struct chunk_pool *pool;
    struct assembler_stats stats;
    char name[64]; /* name of the member in the log: "F-engines 0-3", "m000 to m003" */
};

struct xbgpu_recv {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct engine *engine;
    const struct xbgpu_fengs *fengs;
    struct receiver_set receivers;
    struct xbgpu_recv_context *contexts; /* [n_recv_threads] */
    size_t *first_ant;                   /* [n_members + 1] */
    struct recv_member *members;
    struct gauge group_timestamp; /* timestamp of the newest chunk that left the window of any member */
};

enum reject xbgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                struct receiver_identity *identity)
{
    const struct xbgpu_recv_context *c = context;

    if (!spead_has_values(packet, XBGPU_RECV_N_WANTED))
        return REJECT_NO_ITEMS;
    uint64_t feng_id = packet->wanted[WANT_FENG_ID];
    if (feng_id >= c->n_ants)
        return REJECT_BAD_SOURCE;
    if (feng_id < c->first_ant[0] || feng_id >= c->first_ant[c->n_members])
        return REJECT_OTHER_THREAD;
    if (packet->wanted[WANT_FREQUENCY] != c->chan_offset)
        return REJECT_BAD_FREQUENCY;
    unsigned member = 0;
    while (feng_id >= c->first_ant[member + 1])
        member++;
    identity->member = member;
    identity->source = (unsigned)(feng_id - c->first_ant[member]);
    identity->wire_timestamp = packet->wanted[WANT_TIMESTAMP];
    identity->extra = 0;
    return REJECT_NONE;
}

/* Writes the name of a member.  Names all antennas if there are few, else only the first and the last. */
static void name_member(const struct xbgpu_recv *recv, struct recv_member *member, size_t first, size_t last)
{
    const size_t n = sizeof(member->name);
    bool named = recv->config->recv.antenna_names || recv->config->recv.input_labels;
    char **a = named ? recv->fengs->labels->antennas : NULL;

    if (!a)
        snprintf(member->name, n, "F-engines %zu-%zu", first, last);
    else if (last - first >= N_LISTED)
        snprintf(member->name, n, "%s to %s", a[first], a[last]);
    else
        snprintf(member->name, n, "%s%s%s%s%s", a[first], last > first ? ", " : "", last > first ? a[first + 1] : "",
                 last > first + 1 ? ", " : "", last > first + 1 ? a[last] : "");
}

static int create_member(struct xbgpu_recv *recv, size_t m, char *why, size_t why_bytes)
{
    struct recv_member *member = &recv->members[m];
    char labels[64] = "", fengs[48];

    name_member(recv, member, recv->first_ant[m], recv->first_ant[m + 1] - 1);
    int err = inbox_create((size_t)recv->config->recv.base.n_chunks, &member->free_chunks);
    if (err)
        return err;
    struct chunk_shape shape = xbgpu_chunk_shape(recv->layout, recv->config, m);
    err = chunk_pool_create(recv->engine->c.device, &shape, (unsigned)m, member->free_chunks, 0, &member->pool, why,
                            why_bytes);
    if (err)
        return err;
    snprintf(fengs, sizeof(fengs), "%zu-%zu", recv->first_ant[m], recv->first_ant[m + 1] - 1);
    stats_label(labels, sizeof(labels), "fengs", fengs);
    receiver_metrics_add_assembler("xbgpu_input", labels, &member->stats);
    stats_counter_times("xbgpu_input_samples", "Complex samples of complete heaps, of both polarisations.", labels,
                        &member->stats.heaps, recv->layout->n_chan * recv->layout->n_spectra * N_POLS);
    return 0;
}

static struct assembler_config member_assembler(struct xbgpu_recv *recv, size_t m)
{
    const struct xbgpu_config *config = recv->config;

    return (struct assembler_config){
        .layout = {.heap_samples = recv->layout->batch_samples,
                   .heap_bytes = recv->layout->heap_bytes,
                   .n_heaps_per_source = recv->layout->n_batches,
                   .n_sources = (unsigned)(recv->first_ant[m + 1] - recv->first_ant[m])},
        .name = recv->members[m].name,
        .window_chunks = (unsigned)config->recv.base.window_chunks,
        .jump_heaps = ASSEMBLE_JUMP_HEAPS,
        .jump_sources = 2,
        .timebase = {config->time.sync_time_s, config->time.adc_sample_rate_hz,
                     config->time.timebase == CONFIG_TIMEBASE_PACKETS},
        .clock_tolerance_ns = (int64_t)(config->time.clock_tolerance_s * (double)NS_PER_S),
        .group_timestamp = &recv->group_timestamp,
        .patience_chunks = config->recv.base.window_chunks - 1,
        .free_chunks = recv->members[m].free_chunks,
        .worker = recv->engine->inbox,
        .full_kind = ENGINE_CHUNK,
        .stats = &recv->members[m].stats,
        .source_stats = recv->fengs->stats + recv->first_ant[m],
    };
}

/* Creates receive thread 't' and its members. */
static int create_thread(struct xbgpu_recv *recv, size_t t, char *why, size_t why_bytes)
{
    const struct xbgpu_config_recv *config = &recv->config->recv;
    size_t first = xbgpu_thread_first(recv->layout, t), end = xbgpu_thread_first(recv->layout, t + 1);
    struct assembler_config *assemblers = calloc(end - first, sizeof(*assemblers));

    if (!assemblers)
        return -ENOMEM;
    for (size_t m = first; m < end; m++)
        assemblers[m - first] = member_assembler(recv, m);
    recv->contexts[t] = (struct xbgpu_recv_context){recv->layout->n_ants, (uint64_t)config->chan_offset, end - first,
                                                    &recv->first_ant[first]};
    /* the last thread also receives packets of F-engines outside the array */
    bool last = end == recv->layout->n_members;
    recv->contexts[t].share =
        (struct packet_fanout){SPEAD_FENG_ID, recv->first_ant[first], last ? UINT64_MAX : recv->first_ant[end]};
    struct receiver_config receiver = {
        .source = recv_keys_source(&config->base, &config->sources, t, recv->engine->c.device),
        .wanted_ids = xbgpu_recv_wanted,
        .n_wanted = XBGPU_RECV_N_WANTED,
        .identify = xbgpu_recv_identify,
        .context = &recv->contexts[t],
        .assemblers = assemblers,
        .n_assemblers = end - first,
        .direct = config->base.direct,
        .needs_crc = config->base.crc,
        .worker = recv->engine->inbox,
        .end_kind = ENGINE_RECV_END,
    };
    receiver.source.n_kept = xbgpu_thread_frames(recv->layout, recv->config, t);
    receiver.source.share = recv->layout->n_recv_threads > 1 ? &recv->contexts[t].share : NULL;
    int err = receiver_set_add(&recv->receivers, &receiver, &config->base.affinity, "xbgpu_input", why, why_bytes);
    free(assemblers);
    return err;
}

int xbgpu_recv_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                      const struct xbgpu_fengs *fengs, struct xbgpu_recv **recv, char *why, size_t why_bytes)
{
    struct xbgpu_recv *r = calloc(1, sizeof(*r));
    size_t n_members = layout->n_members;

    snprintf(why, why_bytes, "recv.chunks: there is no memory for %lld chunks of %zu batches",
             (long long)config->recv.base.n_chunks, layout->n_batches);
    if (!r)
        return -ENOMEM;
    r->config = config;
    r->layout = layout;
    r->engine = engine;
    r->fengs = fengs;
    gauge_set(&r->group_timestamp, -1);
    r->contexts = calloc(r->layout->n_recv_threads, sizeof(*r->contexts));
    r->first_ant = calloc(n_members + 1, sizeof(*r->first_ant));
    r->members = calloc(n_members, sizeof(*r->members));

    int err = r->contexts && r->first_ant && r->members ? receiver_set_init(&r->receivers, r->layout->n_recv_threads)
                                                        : -ENOMEM;
    for (size_t m = 0; !err && m <= n_members; m++)
        r->first_ant[m] = xbgpu_member_first(r->layout, m);
    for (size_t m = 0; !err && m < n_members; m++)
        err = create_member(r, m, why, why_bytes);
    for (size_t t = 0; !err && t < r->layout->n_recv_threads; t++)
        err = create_thread(r, t, why, why_bytes);
    if (err) {
        xbgpu_recv_destroy(r);
        return err;
    }
    data_time_metrics("xbgpu", r->config->time.timebase == CONFIG_TIMEBASE_PACKETS);
    engine->receivers = &r->receivers;
    *recv = r;
    return 0;
}

void xbgpu_recv_log(const struct xbgpu_recv *recv)
{
    for (size_t m = 0; m < recv->layout->n_members; m++)
        receiver_metrics_log(recv->members[m].name, &recv->members[m].stats);
}

void xbgpu_recv_destroy(struct xbgpu_recv *recv)
{
    if (!recv)
        return;
    receiver_set_fini(&recv->receivers);
    for (size_t m = 0; recv->members && m < recv->layout->n_members; m++) {
        chunk_pool_destroy(recv->members[m].pool);
        inbox_destroy(recv->members[m].free_chunks);
    }
    free(recv->members);
    free(recv->first_ant);
    free(recv->contexts);
    free(recv);
}
