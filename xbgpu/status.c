/* status.c - computes numbers and spectra of dumps for the status page. */
#include "xbgpu/status.h"

#include "common/base/clock.h"
#include "common/telemetry/snapshot.h"
#include "common/http/spectrum.h"
#include "common/telemetry/stats.h"
#include "common/time/timebase.h"
#include "kernels/correlate/correlate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_INTERVAL_NS (900 * NS_PER_MS)
#define ASKED_NS         (10 * NS_PER_S) /* a pair of antennas is sampled for 10 s after its last request */

/* The baselines of a view: the first antenna with itself, the second antenna with itself, and both antennas. */
enum { VIEW_FIRST, VIEW_SECOND, VIEW_CROSS, N_VIEW_BASELINES };

struct pair {
    size_t ant1, ant2; /* ant1 <= ant2 */
};

/* The curves that describe one product of a baseline, with a value for each point of the spectrum. */
struct curve {
    float mean[SPECTRUM_MAX_POINTS], most[SPECTRUM_MAX_POINTS];       /* mean and maximum of magnitudes at each point */
    float phase[SPECTRUM_MAX_POINTS], coherence[SPECTRUM_MAX_POINTS]; /* only for pairs of different antennas */
};

/* A pair of antennas that HTTP clients have requested. */
struct view {
    struct pair pair;
    int64_t asked_ns;          /* 0: never */
    bool known;                /* true if the fields below are valid */
    struct pair found_pair;    /* pair to which 'values' belong */
    int64_t timestamp_samples; /* timestamp of the dump that contained 'values' */
    float *values;             /* same layout as 'values' in struct look */
};

/* A sample of one output.  The worker and the HTTP thread pass it to each other. */
struct look {
    struct snapshot turn;
    /* The thread that has the turn (worker or HTTP) owns these fields: */
    struct pair pairs[XBGPU_N_VIEWS];
    int64_t timestamp_samples;
    float *levels;                /* [ant][pol] mean power of the voltages */
    float *values[XBGPU_N_VIEWS]; /* [N_VIEW_BASELINES][product][chan][re, im] */
    /* The HTTP thread owns these fields: */
    int64_t wanted_ns;
    int64_t found_samples; /* timestamp of the last sample; -1: none yet */
    float *found_levels;   /* [ant][pol] */
    struct view views[XBGPU_N_VIEWS];
};

struct xbgpu_status {
    const struct xbgpu_config *config;
    const struct xbgpu_layout *layout;
    struct timebase timebase;
    struct look *looks; /* [n_outputs] */
    /* Scratch memory that the HTTP thread uses for one answer: */
    float *magnitudes; /* [n_chan] */
    struct curve curves[N_VIEW_BASELINES][N_POL_PRODUCTS];
    struct gauge look_ns;
};

/* Returns the size in bytes of a view's values. */
static size_t values_bytes(const struct xbgpu_status *status)
{
    return N_VIEW_BASELINES * N_POL_PRODUCTS * status->layout->n_chan * 2 * sizeof(float);
}

static float *values_of(const struct xbgpu_status *status, float *values, int baseline, size_t product)
{
    return values + ((size_t)baseline * N_POL_PRODUCTS + product) * status->layout->n_chan * 2;
}

/* ---- The worker's side ------------------------------------------------------------------------------------------- */

/* Returns the number by which a sum of this baseline and channel is divided; 0 if the sum is flagged. */
static float divisor(const struct xbgpu_dump *dump, size_t baseline, size_t chan)
{
    if (dump->weights[baseline] < dump->min_weight)
        return 0;
    return (float)(dump->gate_spectra ? dump->gate_spectra[chan] : dump->weights[baseline]);
}

/* Returns the mean of a product of a dump: the sum divided by the number of summed spectra.  Flagged values become
 * NAN. */
static void read_product(const struct xbgpu_status *status, const struct xbgpu_dump *dump, size_t baseline, size_t chan,
                         size_t product, float out[2])
{
    const struct xbgpu_layout *l = status->layout;
    size_t index = ((chan * l->n_baselines + baseline) * N_POL_PRODUCTS + product) * 2;
    float n = divisor(dump, baseline, chan);

    for (size_t part = 0; part < 2; part++) {
        float sum = correlate_sums_real(l->format) ? ((const float *)dump->visibilities)[index + part]
                                                   : (float)((const int32_t *)dump->visibilities)[index + part];
        out[part] = n > 0 ? sum / n : NAN;
    }
}

/* Computes the mean autocorrelations of all antennas, over evenly spaced channels. */
static void measure_levels(const struct xbgpu_status *status, const struct xbgpu_dump *dump, float *levels)
{
    const struct xbgpu_layout *l = status->layout;
    size_t step = (l->n_ants * l->n_chan + XBGPU_PREVIEW_LEVELS - 1) / XBGPU_PREVIEW_LEVELS;

    for (size_t ant = 0; ant < l->n_ants; ant++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            double sum = 0;
            size_t n = 0;
            for (size_t chan = 0; chan < l->n_chan; chan += step, n++) {
                float value[2];
                read_product(status, dump, correlate_baseline(ant, ant), chan, pol + 2 * pol, value);
                sum += value[0];
            }
            levels[ant * N_POLS + pol] = (float)(sum / (double)n);
        }
}

static void copy_view(const struct xbgpu_status *status, const struct xbgpu_dump *dump, struct look *look, size_t view)
{
    const struct pair *pair = &look->pairs[view];
    const size_t baselines[N_VIEW_BASELINES] = {correlate_baseline(pair->ant1, pair->ant1),
                                                correlate_baseline(pair->ant2, pair->ant2),
                                                correlate_baseline(pair->ant1, pair->ant2)};

    for (int b = 0; b < N_VIEW_BASELINES; b++)
        for (size_t chan = 0; chan < status->layout->n_chan; chan++)
            for (size_t product = 0; product < N_POL_PRODUCTS; product++)
                read_product(status, dump, baselines[b], chan, product,
                             values_of(status, look->values[view], b, product) + chan * 2);
}

void xbgpu_status_sample(struct xbgpu_status *status, const struct xbgpu_dump *dump)
{
    size_t output = (size_t)(dump->stream->output - xbgpu_config_output(status->config, 0));
    struct look *look = &status->looks[output];

    if (!snapshot_begin(&look->turn))
        return;
    int64_t start_ns = clock_monotonic_ns();
    look->timestamp_samples = dump->timestamp_samples;
    measure_levels(status, dump, look->levels);
    for (size_t view = 0; view < XBGPU_N_VIEWS; view++)
        if (look->pairs[view].ant1 <= look->pairs[view].ant2)
            copy_view(status, dump, look, view);
    gauge_set(&status->look_ns, clock_monotonic_ns() - start_ns);
    snapshot_end(&look->turn);
}

/* ---- HTTP's side: samples ---------------------------------------------------------------------------------------- */

/* Computes magnitudes and phases of one product.  Phases have the sign that they have in UVH5 files, which contain the
 * conjugates of a dump's visibilities (docs/visibilities.md). */
static void reduce_product(const struct xbgpu_status *status, const struct spectrum_points *points, const float *values,
                           struct curve *curve)
{
    float re[SPECTRUM_MAX_POINTS], ignored[SPECTRUM_MAX_POINTS];

    for (size_t c = 0; c < points->n_chan; c++)
        status->magnitudes[c] = hypotf(values[2 * c], values[2 * c + 1]);
    spectrum_reduce(points, status->magnitudes, 1, curve->mean, curve->most);
    spectrum_reduce(points, values, 2, re, ignored);
    spectrum_reduce(points, values + 1, 2, curve->phase, ignored);
    for (size_t i = 0; i < points->n; i++)
        curve->phase[i] = atan2f(-curve->phase[i], re[i]) * (float)(180 / M_PI);
}

/* Computes the coherence, which is the fraction of two antennas' power that is correlated. */
static void reduce_coherence(struct xbgpu_status *status, const struct spectrum_points *points, size_t product)
{
    size_t pol1 = product % 2, pol2 = product / 2;
    const float *power1 = status->curves[VIEW_FIRST][3 * pol1].mean;
    const float *power2 = status->curves[VIEW_SECOND][3 * pol2].mean;
    struct curve *cross = &status->curves[VIEW_CROSS][product];

    for (size_t i = 0; i < points->n; i++) {
        float power = sqrtf(power1[i] * power2[i]);
        cross->coherence[i] = power > 0 ? cross->mean[i] / power : NAN;
    }
}

/* Computes the curves of a view's channels. */
static void reduce_view(struct xbgpu_status *status, const struct spectrum_points *points, const struct view *view)
{
    size_t first = points->first_chan - (size_t)status->config->recv.chan_offset;

    for (int b = 0; b < N_VIEW_BASELINES; b++)
        for (size_t product = 0; product < N_POL_PRODUCTS; product++)
            reduce_product(status, points, values_of(status, view->values, b, product) + 2 * first,
                           &status->curves[b][product]);
    for (size_t product = 0; product < N_POL_PRODUCTS; product++)
        reduce_coherence(status, points, product);
}

static void take_view(const struct xbgpu_status *status, const struct look *look, size_t v, struct view *view)
{
    if (look->pairs[v].ant1 > look->pairs[v].ant2)
        return;
    view->known = true;
    view->found_pair = look->pairs[v];
    view->timestamp_samples = look->timestamp_samples;
    memcpy(view->values, look->values[v], values_bytes(status));
}

/* Returns the view of a pair.  If the pair has no view yet, it replaces the view whose last request is the oldest. */
static struct view *find_view(struct look *look, struct pair pair, int64_t now_ns)
{
    struct view *oldest = &look->views[0];

    for (size_t v = 0; v < XBGPU_N_VIEWS; v++) {
        struct view *view = &look->views[v];
        if (view->asked_ns && view->pair.ant1 == pair.ant1 && view->pair.ant2 == pair.ant2) {
            view->asked_ns = now_ns;
            return view;
        }
        if (view->asked_ns < oldest->asked_ns)
            oldest = view;
    }
    oldest->pair = pair;
    oldest->asked_ns = now_ns;
    return oldest;
}

/* Returns the pair of antennas whose data a sample must copy for a view.  If the view has no recent request, returns an
 * invalid pair.  The second antenna of an invalid pair is before the first antenna. */
static struct pair wanted_pair(const struct view *view, int64_t now_ns)
{
    return view->asked_ns && now_ns - view->asked_ns < ASKED_NS ? view->pair : (struct pair){1, 0};
}

static bool views_changed(const struct look *look, int64_t now_ns)
{
    for (size_t v = 0; v < XBGPU_N_VIEWS; v++) {
        struct pair pair = wanted_pair(&look->views[v], now_ns);
        if (pair.ant1 != look->pairs[v].ant1 || pair.ant2 != look->pairs[v].ant2)
            return true;
    }
    return false;
}

/* Copies a finished sample.  Requests the next sample from the worker if a sample is due. */
static void refresh(struct xbgpu_status *status, struct look *look, int64_t now_ns)
{
    if (snapshot_take(&look->turn)) {
        look->found_samples = look->timestamp_samples;
        memcpy(look->found_levels, look->levels, status->layout->n_ants * N_POLS * sizeof(float));
        for (size_t v = 0; v < XBGPU_N_VIEWS; v++)
            take_view(status, look, v, &look->views[v]);
    }
    /* The HTTP thread may read look->pairs at any time, because only the HTTP thread changes look->pairs, and only
     * during its own turn. */
    if ((now_ns - look->wanted_ns < LOOK_INTERVAL_NS && !views_changed(look, now_ns)) || !snapshot_retract(&look->turn))
        return;
    for (size_t v = 0; v < XBGPU_N_VIEWS; v++)
        look->pairs[v] = wanted_pair(&look->views[v], now_ns);
    look->wanted_ns = now_ns;
    snapshot_want(&look->turn);
}

/* ---- HTTP's side: JSON ------------------------------------------------------------------------------------------- */

static double unix_s(const struct xbgpu_status *status, int64_t timestamp_samples)
{
    return (double)timebase_unix_ns(&status->timebase, timestamp_samples) / (double)NS_PER_S;
}

/* Returns the power that corresponds to 0 dB: the power of a tone of full amplitude, or 1 for half floats, which have
 * no full scale. */
static double full_scale(const struct xbgpu_status *status)
{
    double most = (double)((1 << (status->config->recv.sample_bits - 1)) - 1);

    return status->layout->format == VOLTAGES_16_BITS ? 1 : most * most;
}

static double channel_hz(const struct xbgpu_status *status)
{
    return timebase_decimal_to_double(status->config->time.adc_sample_rate_hz) /
           (double)status->config->recv.samples_between_spectra;
}

/* Returns true if xbgpu does not know the centre frequency, so that frequencies are relative.  This is the case for a
 * narrow band, which has fewer channels than samples_between_spectra implies. */
static bool is_relative(const struct xbgpu_config_recv *recv)
{
    return recv->samples_between_spectra != 2 * recv->n_chan;
}

static json_t *describe_curve(const struct xbgpu_status *status, const struct view *view, size_t n, int baseline,
                              size_t product)
{
    const struct curve *curve = &status->curves[baseline][product];
    bool is_cross = baseline == VIEW_CROSS;
    size_t ant1 = view->found_pair.ant1, ant2 = view->found_pair.ant2;
    json_t *json = json_pack("{s:s, s:[I, I], s:[I, I], s:o, s:o}", "kind", is_cross ? "cross" : "power", "antennas",
                             (json_int_t)(baseline == VIEW_SECOND ? ant2 : ant1),
                             (json_int_t)(baseline == VIEW_FIRST ? ant1 : ant2), "pols", (json_int_t)(product % 2),
                             (json_int_t)(product / 2), "mean", spectrum_decibels(curve->mean, n, full_scale(status)),
                             "most", spectrum_decibels(curve->most, n, full_scale(status)));

    if (is_cross) {
        json_object_set_new(json, "phase_deg", spectrum_numbers(curve->phase, n, 1));
        json_object_set_new(json, "coherence", spectrum_numbers(curve->coherence, n, 4));
    }
    return json;
}

static json_t *describe_view(struct xbgpu_status *status, size_t output, const struct view *view, const char *channels)
{
    struct pair pair = view->found_pair;
    json_t *curves = json_array();
    double step_hz = channel_hz(status);
    const struct xbgpu_config_recv *recv = &status->config->recv;
    struct spectrum_points points = spectrum_points_of((size_t)recv->chan_offset, status->layout->n_chan, channels);

    reduce_view(status, &points, view);
    for (int b = 0; b < N_VIEW_BASELINES; b++)
        for (size_t product = 0; product < N_POL_PRODUCTS; product++) {
            bool own = product == 0 || product == 3;
            if (b == VIEW_CROSS ? pair.ant1 != pair.ant2 || product == 1
                                : own && !(b == VIEW_SECOND && pair.ant1 == pair.ant2))
                json_array_append_new(curves, describe_curve(status, view, points.n, b, product));
        }
    return json_pack("{s:s, s:[I, I], s:I, s:o, s:s, s:o, s:b, s:o}", "stream",
                     xbgpu_config_output(status->config, output)->name, "baseline", (json_int_t)pair.ant1,
                     (json_int_t)pair.ant2, "timestamp", (json_int_t)view->timestamp_samples, "time",
                     status_number(unix_s(status, view->timestamp_samples)), "unit",
                     status->layout->format == VOLTAGES_16_BITS ? "dB" : "dBFS", "axis",
                     spectrum_axis(&points, 0, step_hz), "relative", is_relative(recv), "curves", curves);
}

static json_t *describe_levels(const struct xbgpu_status *status, const struct look *look)
{
    json_t *levels = json_array();

    for (size_t ant = 0; ant < status->layout->n_ants && look->found_samples >= 0; ant++)
        json_array_append_new(levels, spectrum_decibels(look->found_levels + ant * N_POLS, N_POLS, full_scale(status)));
    return levels;
}

static void describe_config(const struct xbgpu_status *status, json_t *into)
{
    const struct xbgpu_config_recv *recv = &status->config->recv;
    json_t *outputs = json_array();

    for (size_t o = 0; o < status->layout->n_outputs; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(status->config, o);
        double batch_s =
            (double)status->layout->batch_samples / timebase_decimal_to_double(status->config->time.adc_sample_rate_hz);
        json_array_append_new(outputs, json_pack("{s:s, s:f, s:o, s:o}", "name", output->name, "integration_s",
                                                 batch_s * (double)xbgpu_integration_batches(status->config, output),
                                                 "gate", output->gate ? json_string(output->gate) : json_null(),
                                                 "destinations", status_endpoints(&output->destination)));
    }
    json_object_set_new(into, "outputs", outputs);
    json_object_set_new(into, "n_antennas", json_integer((json_int_t)status->layout->n_ants));
    json_object_set_new(into, "channels",
                        json_pack("{s:I, s:I, s:I}", "first", (json_int_t)recv->chan_offset, "count",
                                  (json_int_t)recv->n_chan_substream, "of", (json_int_t)recv->n_chan));
    json_object_set_new(into, "sample_bits", json_integer((json_int_t)recv->sample_bits));
    json_object_set_new(into, "spectra_per_heap", json_integer((json_int_t)recv->spectra_per_heap));
    json_object_set_new(into, "channel_hz", status_number(channel_hz(status)));
    json_object_set_new(into, "relative", json_boolean(is_relative(recv)));
    json_object_set_new(into, "centre_frequency_hz",
                        status_number(recv->centre_frequency_hz > 0 ? recv->centre_frequency_hz : NAN));
}

/* Parses a pair "a,b", where a and b can be in either order.  Returns the first two antennas if 'text' is not a pair of
 * antennas. */
static struct pair parse_baseline(const struct xbgpu_status *status, const char *text)
{
    size_t a, b, n_ants = status->layout->n_ants;

    if (!spectrum_parse_pair(text, &a, &b) || a >= n_ants || b >= n_ants)
        return (struct pair){0, n_ants > 1};
    return a <= b ? (struct pair){a, b} : (struct pair){b, a};
}

static size_t find_output(const struct xbgpu_status *status, const char *name)
{
    for (size_t o = 0; name && o < status->layout->n_outputs; o++)
        if (!strcmp(xbgpu_config_output(status->config, o)->name, name))
            return o;
    return 0;
}

void xbgpu_status_describe(void *arg, const struct status_query *query, json_t *into)
{
    struct xbgpu_status *status = arg;
    const struct config_time *time = &status->config->time;
    size_t output = find_output(status, query->stream);
    struct look *look = &status->looks[output];
    int64_t now_ns = clock_monotonic_ns();
    struct pair pair = parse_baseline(status, query->baseline);
    struct view *view = query->no_spectrum ? NULL : find_view(look, pair, now_ns);

    if (view)
        refresh(status, look, now_ns);
    json_object_set_new(into, "sync_time", status_number(timebase_decimal_to_double(time->sync_time_s)));
    json_object_set_new(into, "adc_sample_rate", status_number(timebase_decimal_to_double(time->adc_sample_rate_hz)));
    describe_config(status, into);
    json_object_set_new(into, "levels", describe_levels(status, look));
    json_object_set_new(into, "levels_time",
                        status_number(look->found_samples < 0 ? NAN : unix_s(status, look->found_samples)));
    bool known = view && view->known && view->found_pair.ant1 == pair.ant1 && view->found_pair.ant2 == pair.ant2;
    json_object_set_new(into, "spectrum", known ? describe_view(status, output, view, query->channels) : json_null());
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static int create_look(struct xbgpu_status *status, struct look *look)
{
    const struct xbgpu_layout *l = status->layout;

    look->found_samples = -1;
    look->levels = calloc(l->n_ants * N_POLS, sizeof(float));
    look->found_levels = calloc(l->n_ants * N_POLS, sizeof(float));
    if (!look->levels || !look->found_levels)
        return -ENOMEM;
    for (size_t v = 0; v < XBGPU_N_VIEWS; v++) {
        look->values[v] = malloc(values_bytes(status));
        look->views[v].values = malloc(values_bytes(status));
        if (!look->values[v] || !look->views[v].values)
            return -ENOMEM;
        /* Fills the array with NANs.  So page faults occur now, before READY, and not later in the worker. */
        memset(look->values[v], 0xff, values_bytes(status));
    }
    return 0;
}

static void destroy_look(struct look *look)
{
    for (size_t v = 0; v < XBGPU_N_VIEWS; v++) {
        free(look->values[v]);
        free(look->views[v].values);
    }
    free(look->levels);
    free(look->found_levels);
}

int xbgpu_status_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                        struct xbgpu_status **status)
{
    struct xbgpu_status *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->config = config;
    s->layout = layout;
    s->timebase = (struct timebase){config->time.sync_time_s, config->time.adc_sample_rate_hz, false};
    s->looks = calloc(layout->n_outputs, sizeof(*s->looks));
    s->magnitudes = calloc(layout->n_chan, sizeof(float));
    int err = s->looks && s->magnitudes ? 0 : -ENOMEM;
    for (size_t o = 0; !err && o < layout->n_outputs; o++)
        err = create_look(s, &s->looks[o]);
    if (err) {
        xbgpu_status_destroy(s);
        return err;
    }
    stats_gauge_scaled("xbgpu_snapshot_seconds",
                       "Time in which the worker collected the newest data for the status page, in seconds.", NULL,
                       &s->look_ns, 1e-9);
    *status = s;
    return 0;
}

void xbgpu_status_destroy(struct xbgpu_status *status)
{
    if (!status)
        return;
    for (size_t o = 0; status->looks && o < status->layout->n_outputs; o++)
        destroy_look(&status->looks[o]);
    free(status->looks);
    free(status->magnitudes);
    free(status);
}
