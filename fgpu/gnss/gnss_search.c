/* gnss_search.c - the thread that searches for satellites.  The worker hands blocks of samples to the thread, and gets
 * the result for the tracking loops. */
#include "fgpu/gnss/gnss_search.h"

#include "common/base/inbox.h"
#include "common/base/thread.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "fgpu/gnss/gnss_config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { SEARCH_BEGIN, SEARCH_BLOCK, SEARCH_COMPUTED }; /* kinds of items; the last kind comes from the device */

struct fgpu_gnss_searcher {
    struct engine *engine;
    struct inbox *inbox; /* each search has at most one item in the inbox */
    struct device_stream *stream;
    struct gnss_acquirer *acquirer;
    struct thread thread;
    bool is_started;
};

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static void push(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *s, int kind)
{
    inbox_push(searcher->inbox, &(struct inbox_item){kind, 0, s});
}

static void want_block(struct fgpu_gnss_search *s)
{
    s->state = FGPU_GNSS_SEARCH_WANTS;
    s->n_wanted = gnss_acquire_block_samples(s->acquire);
}

static void end(struct fgpu_gnss_search *s, bool is_found)
{
    s->is_found = is_found;
    s->state = FGPU_GNSS_SEARCH_ENDED;
}

static void open_acquire(struct fgpu_gnss_search *s)
{
    s->n_added = 0;
    gnss_acquire_begin(s->acquire, &s->config);
    want_block(s);
}

static double period_s(const struct fgpu_gnss_search *s)
{
    return s->config.facts->n_chips / s->config.facts->chip_rate_hz;
}

/* Begins the narrow search around the peak of the wide search.  The narrow search goes beyond the satellite's range of
 * Dopplers by a step of the wide search, as the wide search does. */
static void narrow(struct fgpu_gnss_search *s, const struct gnss_acquired *peak)
{
    const double step_hz = 0.5 / (s->config.n_periods * period_s(s)), doppler_hz = peak->doppler_hz;
    const double periods = ldexp((double)peak->code_phase, -GNSS_CODE_BITS) / s->config.n_subchips;

    s->period_samples = period_s(s) * s->config.sample_rate_hz / (1 + doppler_hz / s->config.facts->carrier_hz);
    s->period_begin = (double)s->origin_sample - periods * s->period_samples;
    s->is_narrow = true;
    s->config.min_doppler_hz = fmax(s->config.min_doppler_hz - step_hz, doppler_hz - FGPU_GNSS_NARROW_STEPS * step_hz);
    s->config.max_doppler_hz = fmin(s->config.max_doppler_hz + step_hz, doppler_hz + FGPU_GNSS_NARROW_STEPS * step_hz);
    s->config.n_periods = fgpu_gnss_narrow_periods(s->config.facts, s->config.n_periods);
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

static void on_computed(void *arg)
{
    struct fgpu_gnss_search *s = arg;

    push(s->searcher, s, SEARCH_COMPUTED);
}

static void compute_block(struct fgpu_gnss_search *s)
{
    if (s->begins_anew) {
        gnss_acquire_restart(s->acquire);
        s->n_added = 0;
        s->begins_anew = false;
    }
    if (s->n_added == 0)
        s->origin_sample = s->block_sample;
    gnss_acquire_add(s->acquire, s->samples, s->pitch_samples, s->block_sample - s->origin_sample);
    if (++s->n_added == s->n_blocks)
        gnss_acquire_finish(s->acquire);
    device_then(s->searcher->stream, on_computed, s);
}

/* After a failure of the device, the peaks are undefined. */
static void use_block(struct fgpu_gnss_search *s)
{
    if (!device_ok(s->searcher->engine->c.device))
        end(s, false);
    else if (s->n_added < s->n_blocks)
        want_block(s);
    else
        find(s);
}

static void *run(void *arg)
{
    struct fgpu_gnss_searcher *searcher = arg;
    struct inbox_item item;

    while (inbox_pop(searcher->inbox, &item) == 0) {
        struct fgpu_gnss_search *s = item.object;
        if (item.kind == SEARCH_BLOCK) {
            compute_block(s);
            continue;
        }
        if (item.kind == SEARCH_BEGIN)
            open_acquire(s);
        else
            use_block(s);
        atomic_store_explicit(&s->is_away, false, memory_order_release);
        inbox_push(searcher->engine->inbox, &(struct inbox_item){ENGINE_WAKE, 0, NULL});
    }
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

static void hand_over(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search, int kind)
{
    atomic_store_explicit(&search->is_away, true, memory_order_relaxed); /* inbox_push() orders this store */
    push(searcher, search, kind);
}

void fgpu_gnss_search_push(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search)
{
    hand_over(searcher, search, SEARCH_BLOCK);
}

void fgpu_gnss_search_begin(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                            const struct gnss_acquire_config *config, uint32_t n_blocks)
{
    search->config = *config;
    search->n_blocks = n_blocks;
    search->is_narrow = false;
    hand_over(searcher, search, SEARCH_BEGIN);
}

void fgpu_gnss_search_begin_narrow(struct fgpu_gnss_searcher *searcher, struct fgpu_gnss_search *search,
                                   const struct gnss_acquire_config *config, uint32_t n_blocks, double period_begin,
                                   double period_samples)
{
    search->config = *config;
    search->config.n_periods = fgpu_gnss_narrow_periods(config->facts, config->n_periods);
    search->n_blocks = n_blocks;
    search->is_narrow = true;
    search->period_begin = period_begin;
    search->period_samples = period_samples;
    hand_over(searcher, search, SEARCH_BEGIN);
}

/* ---- Creation and destruction ------------------------------------------------------------------------------------ */

int fgpu_gnss_searcher_create(struct engine *engine, size_t n_searches, const struct gnss_acquire_limits *limits,
                              struct fgpu_gnss_searcher **searcher)
{
    struct fgpu_gnss_searcher *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->engine = engine;
    int err = inbox_create(n_searches, &s->inbox);
    if (!err)
        err = device_stream_create(engine->c.device, "search", &s->stream);
    if (!err)
        err = gnss_acquirer_create(s->stream, limits, &s->acquirer);
    if (err) {
        fgpu_gnss_searcher_destroy(s);
        return err;
    }
    *searcher = s;
    return 0;
}

int fgpu_gnss_searcher_start(struct fgpu_gnss_searcher *searcher)
{
    int err = thread_start(&searcher->thread, "searcher", -1, run, searcher);

    searcher->is_started = !err;
    return err;
}

void fgpu_gnss_searcher_stop(struct fgpu_gnss_searcher *searcher)
{
    if (!searcher->is_started)
        return;
    inbox_stop(searcher->inbox);
    thread_join(&searcher->thread);
    device_stream_wait(searcher->stream);
    searcher->is_started = false;
}

void fgpu_gnss_searcher_destroy(struct fgpu_gnss_searcher *searcher)
{
    if (!searcher)
        return;
    fgpu_gnss_searcher_stop(searcher);
    device_stream_destroy(searcher->stream);
    gnss_acquirer_destroy(searcher->acquirer);
    inbox_destroy(searcher->inbox);
    free(searcher);
}

int fgpu_gnss_search_init(struct fgpu_gnss_searcher *searcher, const struct gnss_acquire_limits *limits,
                          struct fgpu_gnss_search *search)
{
    search->searcher = searcher;
    return gnss_acquire_create(searcher->acquirer, limits, &search->acquire);
}

void fgpu_gnss_search_fini(struct fgpu_gnss_search *search)
{
    gnss_acquire_destroy(search->acquire);
}
