/* gnss_config.c - satellites, sizes and checks of the streams of satellites' sums. */
#include "fgpu/gnss/gnss_config.h"

#include "common/base/units.h"
#include "common/engine/lane.h"
#include "fgpu/gnss/gnss_record.h"
#include "fgpu/config/layout.h"
#include "fgpu/gnss/gnss_track.h"
#include "kernels/gnss/gnss_correlate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define N_ITEMS 3 /* number of items in a heap: timestamp, feng_id, gnss_sums */
/* longest permitted chunk, in seconds; FGPU_GNSS_MAX_PENDING outstanding pieces suffice for such a chunk */
#define MAX_CHUNK_S 0.06

double fgpu_gnss_sample_rate_hz(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss)
{
    return timebase_decimal_to_double(config->time.adc_sample_rate_hz) / (double)fgpu_band_subsampling(&gnss->band);
}

/* Returns half the width of the complex band that the filter passes. */
static double half_band_hz(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss)
{
    const double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    if (gnss->band.pass_bandwidth_hz > 0)
        return gnss->band.pass_bandwidth_hz / 2;
    return rate_hz / 4 / (double)gnss->band.decimation;
}

static enum gnss_subcarrier subcarrier_of(enum gnss_signal signal, double sample_rate_hz)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);
    const double subchip_rate_hz = facts->chip_rate_hz * gnss_subchips(facts->subcarrier);

    return facts->subcarrier != GNSS_PLAIN && sample_rate_hz < subchip_rate_hz ? GNSS_BOC : facts->subcarrier;
}

size_t fgpu_gnss_satellites(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss,
                            struct fgpu_gnss_satellite *satellites)
{
    size_t n = 0;

    for (size_t i = 0; i < config->satellites.n; i++) {
        const struct fgpu_config_satellite *c = fgpu_config_satellite(config, i);
        const double carrier_hz = gnss_signal_facts((enum gnss_signal)c->signal)->carrier_hz - gnss->sky_hz;
        for (size_t p = 0; p < c->prns.n && fabs(carrier_hz) <= half_band_hz(config, gnss); p++, n++)
            if (n < FGPU_GNSS_MAX_SATELLITES)
                satellites[n] = (struct fgpu_gnss_satellite){
                    .signal = (enum gnss_signal)c->signal,
                    .prn = (unsigned)c->prns.items[p],
                    .config = c,
                    .subcarrier = subcarrier_of((enum gnss_signal)c->signal, fgpu_gnss_sample_rate_hz(config, gnss)),
                    .carrier_hz = carrier_hz,
                };
    }
    return n;
}

const char *fgpu_gnss_name(const struct fgpu_gnss_satellite *satellite, char text[FGPU_GNSS_NAME_BYTES])
{
    snprintf(text, FGPU_GNSS_NAME_BYTES, "%s-%u", gnss_signal_facts(satellite->signal)->name, satellite->prn);
    return text;
}

int fgpu_gnss_chips(const struct fgpu_config_gnss *gnss, const struct fgpu_gnss_satellite *satellite, int8_t *chips,
                    char *why, size_t why_bytes)
{
    if (gnss_signal_facts(satellite->signal)->is_in_memory)
        return gnss_code_read(gnss->codes, satellite->signal, satellite->prn, chips, why, why_bytes);
    gnss_code_generate(satellite->signal, satellite->prn, chips);
    return 0;
}

/* Returns the number of complex samples in 'n_periods' code periods, rounded up. */
static size_t period_samples(const struct fgpu_gnss_satellite *satellite, double sample_rate_hz, int64_t n_periods)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(satellite->signal);

    return (size_t)ceil((double)n_periods * facts->n_chips / facts->chip_rate_hz * sample_rate_hz);
}

unsigned fgpu_gnss_wait_chunks(const struct fgpu_config *config)
{
    const int64_t window_chunks = config->recv.base.window_chunks;

    return (unsigned)(window_chunks > LANE_N_INPUTS ? window_chunks : LANE_N_INPUTS) + 1;
}

uint32_t fgpu_gnss_narrow_periods(const struct gnss_signal_facts *facts, uint32_t wide_periods)
{
    const bool has_long_symbols = facts->symbol_periods > FGPU_GNSS_NARROW_PERIODS && facts->secondary[1] == '\0';

    return has_long_symbols && wide_periods < FGPU_GNSS_NARROW_PERIODS ? FGPU_GNSS_NARROW_PERIODS : wide_periods;
}

double fgpu_gnss_join_hz(const struct gnss_signal_facts *facts)
{
    return 0.5 / FGPU_GNSS_NARROW_PERIODS / facts->n_chips * facts->chip_rate_hz;
}

/* A narrow search covers FGPU_GNSS_NARROW_STEPS steps of the wide search on both sides. */
void fgpu_gnss_add_limits(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss,
                          struct gnss_acquire_limits *limits)
{
    const uint32_t n_periods = (uint32_t)gnss->acquire_periods;
    struct fgpu_gnss_satellite satellites[FGPU_GNSS_MAX_SATELLITES];
    const size_t n = least(fgpu_gnss_satellites(config, gnss, satellites), FGPU_GNSS_MAX_SATELLITES);

    for (size_t s = 0; s < n; s++) {
        const struct gnss_signal_facts *facts = gnss_signal_facts(satellites[s].signal);
        const uint32_t narrow = fgpu_gnss_narrow_periods(facts, n_periods);
        const double step_hz = facts->chip_rate_hz / facts->n_chips / n_periods / 2;
        gnss_acquire_limits_add(limits, facts, n_periods, 2 * satellites[s].config->doppler_range_hz);
        gnss_acquire_limits_add(limits, facts, narrow, 2 * FGPU_GNSS_NARROW_STEPS * step_hz);
        gnss_acquire_limits_add(limits, facts, narrow, 2 * fgpu_gnss_join_hz(facts));
    }
}

struct fgpu_gnss_sizes fgpu_gnss_sizes(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss)
{
    const double rate_hz = fgpu_gnss_sample_rate_hz(config, gnss);
    struct fgpu_gnss_satellite satellites[FGPU_GNSS_MAX_SATELLITES];
    struct fgpu_gnss_sizes z = {0};

    z.n_satellites = least(fgpu_gnss_satellites(config, gnss, satellites), FGPU_GNSS_MAX_SATELLITES);
    z.chunk_samples = (size_t)(config->recv.chunk_samples / fgpu_band_subsampling(&gnss->band)) + 3;
    z.delay_samples = config->antennas.n > 1 ? (int64_t)ceil(gnss->max_delay_s * rate_hz) : 0;
    z.pitch_samples = (size_t)round_up((int64_t)z.chunk_samples + 2 * z.delay_samples, 8);
    z.n_slots = config->antennas.n > 1 ? fgpu_gnss_wait_chunks(config) + 4 : 2;
    for (size_t s = 0; s < z.n_satellites; s++) {
        const size_t period = period_samples(&satellites[s], rate_hz, 1);
        const int64_t n_periods =
            gnss->acquire_periods > FGPU_GNSS_NARROW_PERIODS ? gnss->acquire_periods : FGPU_GNSS_NARROW_PERIODS;
        const size_t block = period_samples(&satellites[s], rate_hz, n_periods);
        z.max_pieces += 2 + z.chunk_samples / (period - period / 8);
        z.search_samples = block > z.search_samples ? block : z.search_samples;
        z.table_bytes +=
            gnss_signal_facts(satellites[s].signal)->n_chips * (size_t)gnss_subchips(satellites[s].subcarrier);
    }
    z.heap_bytes = z.max_pieces * sizeof(struct fgpu_gnss_record);
    return z;
}

double fgpu_gnss_rate(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss)
{
    const double chunk_s =
        (double)config->recv.chunk_samples / timebase_decimal_to_double(config->time.adc_sample_rate_hz);

    return send_keys_rate(&config->send, fgpu_gnss_sizes(config, gnss).heap_bytes, N_ITEMS, chunk_s);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Returns the lowest rate of complex samples.  A sample is at most a chip, and GNSS_BLOCK_SAMPLES samples are at most a
 * code period, as gnss_correlate requires. */
static double least_rate_hz(const struct gnss_signal_facts *facts)
{
    const double block = (double)GNSS_BLOCK_SAMPLES / facts->n_chips;

    return facts->chip_rate_hz * fmax(1, block * (1 + FGPU_GNSS_MAX_DOPPLER_HZ / facts->carrier_hz));
}

static void check_stream(const struct fgpu_config *config, size_t g, struct config *errors)
{
    const struct fgpu_config_gnss *gnss = fgpu_config_gnss(config, g);
    const double chunk_s =
        (double)config->recv.chunk_samples / timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    struct fgpu_gnss_satellite satellites[FGPU_GNSS_MAX_SATELLITES];
    const size_t n = fgpu_gnss_satellites(config, gnss, satellites);

    for (size_t o = 0; o < config->outputs.n; o++)
        if (strcmp(gnss->name, fgpu_config_output(config, o)->name) == 0)
            config_error(errors, &gnss->name, "a stream and an output have the same name, %s", gnss->name);
    for (size_t h = 0; h < g; h++)
        if (strcmp(gnss->name, fgpu_config_gnss(config, h)->name) == 0)
            config_error(errors, &gnss->name, "two streams are called %s", gnss->name);
    if (chunk_s > MAX_CHUNK_S)
        config_error(errors, &config->recv.chunk_samples,
                     "chunk_samples must be at most %g s of data if there are gnss streams, not %.3g s", MAX_CHUNK_S,
                     chunk_s);
    if (config->antennas.n > GNSS_MAX_ANTS)
        config_error(errors, &config->antennas, "with gnss streams there may be at most %d antennas, not %zu",
                     GNSS_MAX_ANTS, config->antennas.n);
    if (n == 0)
        config_error(errors, &gnss->sky_hz, "no satellite of 'satellites' has its carrier in the band of stream %s",
                     gnss->name);
    if (n > FGPU_GNSS_MAX_SATELLITES)
        config_error(errors, &gnss->name, "stream %s has %zu satellites, but the maximum is %d", gnss->name, n,
                     FGPU_GNSS_MAX_SATELLITES);
    if (n > 0 && (double)gnss->acquire_blocks * (double)fgpu_gnss_sizes(config, gnss).search_samples > 0x1p33)
        config_error(errors, &gnss->acquire_blocks, "the blocks of a search must have at most 2^33 samples in all");
    for (size_t s = 0; s < n && s < FGPU_GNSS_MAX_SATELLITES; s++) {
        const struct gnss_signal_facts *facts = gnss_signal_facts(satellites[s].signal);
        if (facts->is_in_memory && !gnss->codes) {
            config_error(errors, &gnss->codes, "codes must name the file with the codes of %s", facts->name);
            break;
        }
        if (least_rate_hz(facts) > fgpu_gnss_sample_rate_hz(config, gnss)) {
            config_error(errors, &gnss->band.decimation,
                         "%s needs at least %.9g complex samples a second, but stream %s has %.9g", facts->name,
                         least_rate_hz(facts), gnss->name, fgpu_gnss_sample_rate_hz(config, gnss));
            break;
        }
    }
}

static void check_satellites(const struct fgpu_config *config, size_t i, struct config *errors)
{
    const struct fgpu_config_satellite *c = fgpu_config_satellite(config, i);
    const struct gnss_signal_facts *facts = gnss_signal_facts((enum gnss_signal)c->signal);

    for (size_t p = 0; p < c->prns.n; p++) {
        if (c->prns.items[p] > facts->max_prn)
            config_error(errors, &c->prns, "satellites of %s have the numbers 1 to %u, not %lld", facts->name,
                         facts->max_prn, (long long)c->prns.items[p]);
        for (size_t j = 0; j <= i; j++) {
            const struct fgpu_config_satellite *other = fgpu_config_satellite(config, j);
            for (size_t q = 0; other->signal == c->signal && q < (j == i ? p : other->prns.n); q++)
                if (other->prns.items[q] == c->prns.items[p])
                    config_error(errors, &c->prns, "satellite %s-%lld is listed twice", facts->name,
                                 (long long)c->prns.items[p]);
        }
    }
}

void fgpu_gnss_check(const struct fgpu_config *config, struct config *errors)
{
    for (size_t g = 0; g < config->gnss.n; g++)
        check_stream(config, g, errors);
    for (size_t i = 0; i < config->satellites.n; i++)
        check_satellites(config, i, errors);
    if (config->satellites.n > 0 && config->gnss.n == 0)
        config_error(errors, &config->satellites, "the section gnss has no stream that follows these satellites");
}
