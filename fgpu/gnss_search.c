/* gnss_search.c - the thread that searches for satellites. */
#include "fgpu/gnss_search.h"

#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/engine/engine.h"
#include "fgpu/gnss_config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NARROW_STEPS 3 /* half width of a narrow search, in Doppler steps of the wide search */

struct fgpu_gnss_searcher {
    struct engine *engine;
    struct inbox *inbox;
    struct thread thread;
    bool is_started;
};

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static void drop_acquire(struct fgpu_gnss_search *s)
{
    gnss_acquire_destroy(s->acquire);
    s->acquire = NULL;
}

static void want_block(struct fgpu_gnss_search *s)
{
    s->state = FGPU_GNSS_SEARCH_WANTS;
    s->n_wanted = gnss_acquire_block_samples(s->acquire);
}

static void end(struct fgpu_gnss_search *s, bool is_found)
{
    drop_acquire(s);
    s->is_found = is_found;
    s->state = FGPU_GNSS_SEARCH_ENDED;
}

static void open_acquire(struct fgpu_gnss_search *s)
{
    s->n_added = 0;
    if (gnss_acquire_create(&s->config, &s->acquire) == 0) {
        want_block(s);
        return;
    }
    end(s, false); /* out of memory: the satellite counts as not found */
}

static double period_s(const struct fgpu_gnss_search *s)
{
    return s->config.facts->n_chips / s->config.facts->chip_rate_hz;
}

/* Lengthens the blocks of a narrow search, if data bits allow this. */
static void lengthen(struct gnss_acquire_config *config)
{
    if (config->facts->symbol_periods > FGPU_GNSS_NARROW_PERIODS && config->facts->secondary[1] == '\0' &&
        config->n_periods < FGPU_GNSS_NARROW_PERIODS)
        config->n_periods = FGPU_GNSS_NARROW_PERIODS;
}

/* Begins the narrow search around the peak of the wide search.  The narrow search goes beyond the satellite's range of
 * Dopplers by a step of the wide search, as the wide search does. */
static void narrow(struct fgpu_gnss_search *s, const struct gnss_acquired *peak)
{
    const double step_hz = 0.5 / (s->config.n_periods * period_s(s)), doppler_hz = peak->doppler_hz;
    const double periods = ldexp((double)peak->code_phase, -GNSS_CODE_BITS) / s->config.n_subchips;

    s->period_samples = period_s(s) * s->config.sample_rate_hz / (1 + doppler_hz / s->config.facts->carrier_hz);
    s->period_begin = (double)s->origin_sample - periods * s->period_samples;
    drop_acquire(s);
    s->is_narrow = true;
    s->config.min_doppler_hz = fmax(s->config.min_doppler_hz - step_hz, doppler_hz - NARROW_STEPS * step_hz);
    s->config.max_doppler_hz = fmin(s->config.max_doppler_hz + step_hz, doppler_hz + NARROW_STEPS * step_hz);
    lengthen(&s->config);
    open_acquire(s);
}

static void find(struct fgpu_gnss_search *s)
{
    const struct gnss_acquired acquired = gnss_acquire_find(s->acquire);

    if (!acquired.is_found) {
        end(s, false);
        return;
    }
    if (!s->is_narrow) {
        narrow(s, &acquired);
        return;
    }
    s->found = (struct fgpu_gnss_acquisition){.sample = s->origin_sample,
                                              .code_subchips = ldexp((double)acquired.code_phase, -GNSS_CODE_BITS),
                                              .doppler_hz = acquired.doppler_hz};
    if (s->found.code_subchips >= s->config.n_subchips)
        s->found.code_subchips = 0; /* rounding may raise the phase to the table's length */
    end(s, true);
}

static void serve(struct fgpu_gnss_search *s)
{
    if (!s->acquire) {
        open_acquire(s);
        return;
    }
    if (s->begins_anew) {
        gnss_acquire_restart(s->acquire);
        s->n_added = 0;
        s->begins_anew = false;
    }
    if (s->n_added == 0)
        s->origin_sample = s->block_sample;
    gnss_acquire_add(s->acquire, s->samples, s->pitch_samples, s->block_sample - s->origin_sample);
    if (++s->n_added < s->n_blocks)
        want_block(s);
    else
        find(s);
}

static void *run(void *arg)
{
    struct fgpu_gnss_searcher *searcher = arg;
    struct inbox_item item;

    thread_watched(false); /* a block may take longer than the watchdog allows */
    while (inbox_pop(searcher->inbox, &item) == 0) {
        struct fgpu_gnss_search *s = item.object;
        serve(s);
        atomic_store_explicit(&s->is_away, false, memory_order_release);
        inbox_push(searcher->engine->inbox, &(struct inbox_item){ENGINE_WAKE, 0, NULL});
    }
    thread_watched(true);
    return NULL;
}

/* ---- The worker -------------------------------------------------------------------------------------------------- */

int64_t fgpu_gnss_search_block(const struct fgpu_gnss_search *search, int64_t sample)
{
    if (!search->is_narrow)
        return sample;
    const double n_periods = ceil(((double)sample - search->period_begin) / search->period_samples);
    const int64_t first = (int64_t)ceil(search->period_begin + n_periods * search->period_samples);
    return first > sample ? first : sample;
}

void fgpu_gnss_search_push(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search)
{
    atomic_store_explicit(&search->is_away, true, memory_order_relaxed); /* inbox_push() orders this store */
    inbox_push(searcher->inbox, &(struct inbox_item){0, 0, search});
}

void fgpu_gnss_search_begin(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                            const struct gnss_acquire_config *config, uint32_t n_blocks)
{
    search->config = *config;
    search->n_blocks = n_blocks;
    search->is_narrow = false;
    fgpu_gnss_search_push(searcher, search);
}

void fgpu_gnss_search_begin_narrow(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                                   const struct gnss_acquire_config *config, uint32_t n_blocks, double period_begin,
                                   double period_samples)
{
    search->config = *config;
    lengthen(&search->config);
    search->n_blocks = n_blocks;
    search->is_narrow = true;
    search->period_begin = period_begin;
    search->period_samples = period_samples;
    fgpu_gnss_search_push(searcher, search);
}

void fgpu_gnss_search_fini(struct fgpu_gnss_search *search)
{
    drop_acquire(search);
}

/* ---- Creation and destruction ------------------------------------------------------------------------------------ */

int fgpu_gnss_searcher_create(struct engine *engine, size_t n_streams, struct fgpu_gnss_searcher **searcher)
{
    struct fgpu_gnss_searcher *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->engine = engine;
    int err = inbox_create(n_streams, &s->inbox);
    if (err) {
        free(s);
        return err;
    }
    *searcher = s;
    return 0;
}

int fgpu_gnss_searcher_start(struct fgpu_gnss_searcher *searcher)
{
    int err = thread_start(&searcher->thread, "search", -1, run, searcher);

    searcher->is_started = !err;
    return err;
}

void fgpu_gnss_searcher_stop(struct fgpu_gnss_searcher *searcher)
{
    if (!searcher->is_started)
        return;
    inbox_stop(searcher->inbox);
    thread_join(&searcher->thread);
    searcher->is_started = false;
}

void fgpu_gnss_searcher_destroy(struct fgpu_gnss_searcher *searcher)
{
    if (!searcher)
        return;
    fgpu_gnss_searcher_stop(searcher);
    inbox_destroy(searcher->inbox);
    free(searcher);
}
