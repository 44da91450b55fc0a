/* claims.c - collects and judges the claims of an assembler's sources.  See claims.h. */
#include "common/recv/claims.h"

#include "common/base/units.h"

#include <errno.h>
#include <stdlib.h>

/* Memory for the headers of one heap's held packets, in addition to the payloads. */
#define HELD_OVERHEAD_BYTES 65536
/* After a silence of this time or longer, a source's claim behind the window is taken for a backlog for this time. */
#define BACKLOG_MAX_NS (10 * NS_PER_S)

/* ---- Held packets ------------------------------------------------------------------------------------------------ */

/* Returns the size of a held packet with its header, rounded up so that the next header is aligned. */
static size_t held_bytes(const struct assemble_packet *packet)
{
    return sizeof(struct held_packet) + (size_t)round_up((int64_t)packet->n_bytes, sizeof(int64_t));
}

/* Allocates 'n_bytes' for held packets and their headers.  Returns 0 or -ENOMEM. */
static int held_init(struct held *held, size_t n_bytes)
{
    *held = (struct held){.bytes = malloc(n_bytes), .n_bytes = n_bytes};
    return held->bytes ? 0 : -ENOMEM;
}

static void held_fini(struct held *held)
{
    free(held->bytes);
}

/* Holds a packet.  Returns the address for the payload, or NULL if there is no room. */
static uint8_t *held_add(struct held *held, const struct assemble_packet *packet, int64_t arrival_ns)
{
    size_t n_bytes = held_bytes(packet);

    if (n_bytes > held->n_bytes - held->used_bytes)
        return NULL;
    struct held_packet *kept = (struct held_packet *)(held->bytes + held->used_bytes);
    kept->packet = *packet;
    kept->arrival_ns = arrival_ns;
    held->used_bytes += n_bytes;
    held->n_packets++;
    return kept->payload;
}

/* Returns the packet after 'previous' (NULL: the first packet), in order of arrival.  Returns NULL after the last
 * packet. */
static const struct held_packet *held_next(const struct held *held, const struct held_packet *previous)
{
    size_t offset = previous ? (size_t)((const uint8_t *)previous - held->bytes) + held_bytes(&previous->packet) : 0;

    return offset < held->used_bytes ? (const struct held_packet *)(held->bytes + offset) : NULL;
}

/* Drops all held packets.  Returns their number. */
static size_t held_clear(struct held *held)
{
    size_t n_packets = held->n_packets;

    held->used_bytes = held->n_packets = 0;
    return n_packets;
}

/* ---- Claims ------------------------------------------------------------------------------------------------------ */

int claims_init(struct claims *claims, const struct claims_config *config)
{
    int err = 0;

    *claims = (struct claims){.config = *config, .sources = calloc(config->n_sources, sizeof(*claims->sources))};
    if (!claims->sources)
        return -ENOMEM;
    for (unsigned i = 0; i < config->n_sources && !config->live && !err; i++)
        err = held_init(&claims->sources[i].held,
                        (size_t)config->jump_heaps * 2 * (config->heap_bytes + HELD_OVERHEAD_BYTES));
    return err;
}

void claims_fini(struct claims *claims)
{
    for (unsigned i = 0; claims->sources && i < claims->config.n_sources; i++)
        held_fini(&claims->sources[i].held);
    free(claims->sources);
}

void claims_restart(struct claims *claims)
{
    for (unsigned i = 0; i < claims->config.n_sources; i++)
        claims->sources[i].n_heaps = 0;
}

/* Ends the claim of a source and counts its held packets as refused. */
static void drop(struct claims *claims, unsigned i)
{
    struct claim_source *source = &claims->sources[i];
    size_t n_held = held_clear(&source->held);

    source->n_heaps = 0;
    if (n_held == 0)
        return;
    counter_add(claims->config.refused, n_held);
    log_limited(&claims->limit, LOG_LEVEL_WARNING,
                "%s: packet refused (%s), and %zu more packets of source %u, up to timestamp %lld", claims->config.name,
                reject_name(REJECT_JUMP), n_held - 1, i, (long long)source->samples);
}

void claims_drop(struct claims *claims)
{
    for (unsigned i = 0; i < claims->config.n_sources; i++)
        drop(claims, i);
}

void claims_heard(struct claims *claims, unsigned i, int64_t samples, int64_t arrival_ns)
{
    struct claim_source *source = &claims->sources[i];

    if (source->n_heaps > 0)
        drop(claims, i);
    source->near_at = claims->n_packets;
    source->near_ns = claims->near_ns = arrival_ns;
    source->near_samples = samples;
    source->away_ns = 0;
}

bool claims_heard_lately(const struct claims *claims, unsigned i, int64_t arrival_ns)
{
    const struct claim_source *source = &claims->sources[i];

    return source->near_at != 0 && arrival_ns - source->near_ns < claims->config.window_ns;
}

bool claims_extend(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns)
{
    struct claim_source *source = &claims->sources[packet->source];
    int64_t ahead = packet->timestamp - source->samples, window_samples = claims->config.window_samples;

    if (source->away_ns == 0)
        source->away_ns = arrival_ns;
    if (source->n_heaps == 0 || ahead > window_samples || ahead < -window_samples) {
        drop(claims, packet->source);
        source->since = claims->n_packets;
        source->renewed = claims->n_packets;
    } else if (ahead <= 0) {
        return false; /* the packet belongs to the claim's newest heap, or to an earlier heap */
    }
    source->samples = packet->timestamp;
    source->n_heaps++;
    if (source->n_heaps % claims->config.jump_heaps == 0) {
        source->since = source->renewed;
        source->renewed = claims->n_packets;
    }
    return source->n_heaps >= claims->config.jump_heaps;
}

bool claims_is_backlog(const struct claims *claims, unsigned i, int64_t arrival_ns)
{
    const struct claim_source *source = &claims->sources[i];
    const int64_t silence_ns = source->away_ns - source->near_ns;

    return source->near_at != 0 && source->samples > source->near_samples &&
           arrival_ns - source->away_ns < (silence_ns < BACKLOG_MAX_NS ? silence_ns : BACKLOG_MAX_NS);
}

/* Returns true if source 'i', which makes no claim, contradicts the claim of 'claimant'. */
static bool contradicts_jump(const struct claims *claims, unsigned i, const struct claim_source *claimant,
                             int64_t arrival_ns)
{
    const struct claim_source *source = &claims->sources[i];

    if (source->near_at == 0)
        return false;
    return source->near_at > claimant->since || (claims->config.live && claims_heard_lately(claims, i, arrival_ns));
}

static bool agree(const struct claims *claims, const struct claim_source *one, const struct claim_source *other)
{
    int64_t apart = one->samples - other->samples, window_samples = claims->config.window_samples;

    return apart >= -window_samples && apart <= window_samples;
}

bool claims_are_enough(const struct claims *claims, unsigned claimant, int64_t arrival_ns)
{
    const struct claims_config *config = &claims->config;
    unsigned n_agree = 0, n_against = 0;

    if (config->live && claims_heard_lately(claims, claimant, arrival_ns))
        return false;
    for (unsigned i = 0; i < config->n_sources; i++) {
        const struct claim_source *source = &claims->sources[i];

        if (source->n_heaps == 0)
            n_against += contradicts_jump(claims, i, &claims->sources[claimant], arrival_ns);
        else if (source->n_heaps >= config->jump_heaps)
            n_agree += agree(claims, source, &claims->sources[claimant]);
    }
    return n_agree > n_against && (n_agree >= config->jump_sources || n_against == 0);
}

uint8_t *claims_hold(struct claims *claims, const struct assemble_packet *packet, int64_t arrival_ns)
{
    return held_add(&claims->sources[packet->source].held, packet, arrival_ns);
}

void claims_believe(struct claims *claims, unsigned claimant)
{
    for (unsigned i = 0; i < claims->config.n_sources; i++) {
        struct claim_source *source = &claims->sources[i];
        bool agrees = source->n_heaps > 0 && agree(claims, source, &claims->sources[claimant]);

        source->next_held = agrees ? held_next(&source->held, NULL) : NULL;
        if (!agrees)
            drop(claims, i);
    }
}

/* Returns the source whose next held packet is the earliest; NULL if no held packet is left. */
static struct claim_source *earliest(const struct claims *claims)
{
    struct claim_source *found = NULL;

    for (unsigned i = 0; i < claims->config.n_sources; i++) {
        struct claim_source *source = &claims->sources[i];

        if (source->next_held && (!found || source->next_held->packet.timestamp < found->next_held->packet.timestamp))
            found = source;
    }
    return found;
}

const struct held_packet *claims_first_held(const struct claims *claims)
{
    const struct claim_source *source = earliest(claims);

    return source ? source->next_held : NULL;
}

const struct held_packet *claims_next_held(struct claims *claims)
{
    struct claim_source *source = earliest(claims);
    const struct held_packet *held = source ? source->next_held : NULL;

    if (source)
        source->next_held = held_next(&source->held, held);
    return held;
}

void claims_release(struct claims *claims)
{
    for (unsigned i = 0; i < claims->config.n_sources; i++)
        held_clear(&claims->sources[i].held);
}
