/* detected_health.c - computes statistics of detected beams for metrics. */
#include "xbgpu/beam/detected_health.h"

#include "common/base/units.h"
#include "common/telemetry/stats.h"
#include "kernels/beamform/beam_detect.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MILLION 1e6

/* Statistics of a beam from its last measurement, in millionths. */
struct xbgpu_detected_figures {
    struct gauge powers[BEAM_MAX_PRODUCTS]; /* mean power of a sample */
    struct gauge zeros;                     /* fraction of the powers that are 0 */
    struct gauge clipped;                   /* fraction of the samples that were clipped */
};

/* ---- The worker's side ------------------------------------------------------------------------------------------- */

/* Sum and counts of one product's powers, over windows and groups of channels. */
struct tally {
    double sum;
    size_t n, n_zero;
};

/* Adds the powers of one product of a beam in a window. */
static void add_window(const struct xbgpu_detected_health *h, const uint8_t *payload, size_t beam, size_t window,
                       size_t product, struct tally *tally)
{
    const struct xbgpu_detected_sizes *z = &h->sizes;
    const float *offsets = (const float *)(payload + z->fractions_bytes) + beam * z->n_cells + product * z->n_groups;
    const float *scales = offsets + z->scales_bytes / sizeof(*scales);
    const uint8_t *powers = payload + z->fractions_bytes + 2 * z->scales_bytes;
    size_t row = (beam * (size_t)h->config->heap_windows + window) * z->n_cells + product * z->n_groups;

    for (size_t g = 0; g < z->n_groups; g += h->group_step) {
        float power =
            z->scales_bytes ? offsets[g] + scales[g] * (float)powers[row + g] : ((const float *)powers)[row + g];
        tally->sum += power;
        tally->n_zero += power == 0;
        tally->n++;
    }
}

static void measure(struct xbgpu_detected_health *h, const uint8_t *payload, const uint64_t *n_present, size_t beam)
{
    struct xbgpu_detected_figures *figures = &h->figures[beam];
    double samples = (double)h->config->window_spectra * (double)h->config->group_channels;
    struct tally all = {0};

    for (size_t product = 0; product < h->sizes.n_products; product++) {
        struct tally one = {0};
        for (size_t w = 0; w < (size_t)h->config->heap_windows; w += h->window_step)
            if (n_present[w] > 0)
                add_window(h, payload, beam, w, product, &one);
        if (one.n == 0)
            return;
        double mean = one.sum / ((double)one.n * samples * BEAM_DETECT_STEPS * BEAM_DETECT_STEPS);
        gauge_set(&figures->powers[product], llrint(MILLION * mean));
        all.n += one.n;
        all.n_zero += one.n_zero;
    }
    gauge_set(&figures->zeros, llrint(MILLION * (double)all.n_zero / (double)all.n));
}

void xbgpu_detected_health_take(struct xbgpu_detected_health *health, int64_t number, const uint8_t *payload,
                                const uint32_t *saturated, const uint64_t *n_present)
{
    struct xbgpu_detected_health *h = health;
    uint64_t n_came = 0;

    for (int64_t w = 0; w < h->config->heap_windows; w++)
        n_came += n_present[w];
    double came = (double)n_came / ((double)h->sizes.heap_spectra * (double)h->n_ants);
    gauge_set(&h->present, llrint(MILLION * came));
    if (n_came == 0)
        return;
    double n_samples = (double)h->sizes.heap_spectra * (double)h->n_chan * N_POLS;
    for (size_t beam = (size_t)(number % h->n_turns); beam < h->sizes.n_beams; beam += (size_t)h->n_turns) {
        measure(h, payload, n_present, beam);
        gauge_set(&h->figures[beam].clipped, llrint(MILLION * saturated[beam] / n_samples));
    }
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

static const char *product_name(enum beam_products products, size_t product)
{
    static const char *const stokes[BEAM_MAX_PRODUCTS] = {"I", "Q", "U", "V"};

    return products == BEAM_POWER_0 ? "power_0" : products == BEAM_POWER_1 ? "power_1" : stokes[product];
}

static void register_beam(struct xbgpu_detected_health *h, size_t beam)
{
    struct xbgpu_detected_figures *figures = &h->figures[beam];
    char name[96], labels[160] = "";

    snprintf(name, sizeof(name), "%s.%zu", h->config->name, beam);
    stats_label(labels, sizeof(labels), "stream", name);
    stats_gauge_scaled("xbgpu_output_b_zero_powers_ratio",
                       "Fraction of the powers of a detected beam that are 0, when last measured.", labels,
                       &figures->zeros, 1 / MILLION);
    stats_gauge_scaled("xbgpu_output_b_clipped_ratio",
                       "Fraction of the complex samples of a detected beam that saturated, when last measured.", labels,
                       &figures->clipped, 1 / MILLION);
    for (size_t product = 0; product < h->sizes.n_products; product++) {
        char both[200];
        snprintf(both, sizeof(both), "%s", labels);
        stats_label(both, sizeof(both), "product", product_name((enum beam_products)h->config->products, product));
        stats_gauge_scaled("xbgpu_output_b_power",
                           "Mean power of a detected beam's samples, in squared quantisation steps of a voltage beam, "
                           "when last measured.",
                           both, &figures->powers[product], 1 / MILLION);
    }
}

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Chooses the distances between measured groups of channels and between measured windows.  The function first chooses
 * the distance between groups.  Windows are skipped only if the measured groups still have more than
 * DETECTED_HEALTH_POWERS powers. */
static void choose_steps(struct xbgpu_detected_health *h)
{
    size_t n_rows = (size_t)h->config->heap_windows * h->sizes.n_products, n_groups = h->sizes.n_groups;

    h->group_step = divide_up(n_rows * n_groups, DETECTED_HEALTH_POWERS);
    h->group_step = h->group_step < n_groups ? h->group_step : n_groups;
    h->window_step = divide_up(n_rows * divide_up(n_groups, h->group_step), DETECTED_HEALTH_POWERS);
}

int xbgpu_detected_health_init(struct xbgpu_detected_health *health, const struct xbgpu_config *config,
                               const struct xbgpu_layout *layout, size_t i)
{
    struct xbgpu_detected_health *h = health;
    char labels[128] = "";

    h->config = xbgpu_config_detected(config, i);
    h->sizes = xbgpu_detected_sizes(config, layout, i);
    h->n_ants = layout->n_ants;
    h->n_chan = layout->n_chan;
    double heap_samples = (double)h->sizes.heap_spectra * (double)config->recv.samples_between_spectra;
    h->n_turns = llround(timebase_decimal_to_double(config->time.adc_sample_rate_hz) / heap_samples);
    h->n_turns = h->n_turns > 0 ? h->n_turns : 1;
    choose_steps(h);
    h->figures = calloc(h->sizes.n_beams, sizeof(*h->figures));
    if (!h->figures)
        return -ENOMEM;
    stats_label(labels, sizeof(labels), "stream", h->config->name);
    stats_gauge_scaled("xbgpu_output_b_present_ratio",
                       "Fraction of the antennas' spectra that arrived for the last heap of detected beams.", labels,
                       &h->present, 1 / MILLION);
    for (size_t beam = 0; beam < h->sizes.n_beams; beam++)
        register_beam(h, beam);
    return 0;
}

void xbgpu_detected_health_fini(struct xbgpu_detected_health *health)
{
    free(health->figures);
}
