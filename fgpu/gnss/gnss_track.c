/* gnss_track.c - computes a satellite's next replicas from the sums of its previous integrations. */
#include "fgpu/gnss/gnss_track.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define MIN_FRACTION  0.5  /* minimum fraction of present samples in an integration */
#define MIN_CODE      25.0 /* minimum C/N0 of a locked code, in dB-Hz */
#define MIN_CARRIER   0.25 /* minimum indicator of a locked carrier */
#define MOMENTS_MIN_S 0.4  /* if m2 and m4 cover fewer seconds of data, the code counts as locked */

static const struct {
    double frequency_hz, phase_hz, code_hz; /* bandwidths of the loops; 0: this loop is not used */
    double duration_s;
} stages[] = {
    [FGPU_GNSS_PULL_IN] = {4, 0, 2, 0.5},
    [FGPU_GNSS_SETTLING] = {0, 25, 1, 1},
    [FGPU_GNSS_TRACKING] = {0, 5, 0.5, INFINITY},
};

/* ---- Start ------------------------------------------------------------------------------------------------------- */

/* Returns the code error, in sub-chips, for a discriminator value of 1.  This error is the autocorrelation R of a
 * chip at the tap, divided by twice the downward slope of R.  For small errors E^2 - L^2 = -4 R R' error and E^2 +
 * L^2 = 2 R^2.  R is a straight line between whole sub-chips. */
static double code_gain(enum gnss_subcarrier subcarrier, double tap_subchips)
{
    const int8_t chip = 1;
    const int n = (int)gnss_subchips(subcarrier), whole = (int)floor(tap_subchips);
    int8_t levels[16];
    double at[2] = {0, 0};

    gnss_code_table(&chip, 1, subcarrier, levels);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k + whole + i < n; k++)
            at[i] += levels[k] * levels[k + whole + i];
    const double slope = at[0] - at[1];
    return (at[0] - slope * (tap_subchips - whole)) / (2 * slope);
}

void fgpu_gnss_track_init(struct fgpu_gnss_track *track, const struct fgpu_gnss_track_config *config)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(config->signal);
    const uint32_t chip_subchips = gnss_subchips(config->subcarrier);
    const double subchip_rate_hz = facts->chip_rate_hz * chip_subchips;

    assert(fabs(config->carrier_hz) < config->sample_rate_hz && subchip_rate_hz < 4 * config->sample_rate_hz);
    memset(track, 0, sizeof(*track));
    track->config = *config;
    track->rates = (struct fgpu_gnss_rates){.sample_rate_hz = config->sample_rate_hz,
                                            .carrier_hz = config->carrier_hz,
                                            .subchip_rate_hz = subchip_rate_hz,
                                            .subchips_per_turn = subchip_rate_hz / facts->carrier_hz};
    track->chip_subchips = chip_subchips;
    track->n_subchips = facts->n_chips * chip_subchips;
    track->period_s = facts->n_chips / facts->chip_rate_hz;
    track->tap_subchips = chip_subchips * (config->subcarrier == GNSS_PLAIN ? 0.25 : 2.5 / 12);
    track->code_gain = code_gain(config->subcarrier, track->tap_subchips);
    fgpu_gnss_symbol_init(&track->symbol, config->signal);
}

void fgpu_gnss_track_taps(const struct fgpu_gnss_track *track, struct gnss_satellite *satellite)
{
    satellite->n_subchips = track->n_subchips;
    satellite->taps[FGPU_GNSS_EARLY] = gnss_code_phase(track->tap_subchips, track->n_subchips);
    satellite->taps[FGPU_GNSS_PROMPT] = 0;
    satellite->taps[FGPU_GNSS_LATE] = gnss_code_phase(-track->tap_subchips, track->n_subchips);
}

void fgpu_gnss_track_start(struct fgpu_gnss_track *track, const struct fgpu_gnss_acquisition *acquisition)
{
    assert(acquisition->code_subchips >= 0 && acquisition->code_subchips < track->n_subchips);
    track->stage = FGPU_GNSS_PULL_IN;
    track->stage_s = 0;
    track->n_starts++;
    track->model = (struct fgpu_gnss_model){
        .sample = acquisition->sample,
        .code = (__int128)ldexpl(acquisition->code_subchips, 64),
        .doppler_hz = acquisition->doppler_hz,
    };
    for (size_t pol = 0; pol < N_POLS; pol++)
        fgpu_gnss_lock_init(&track->locks[pol]);
    fgpu_gnss_symbol_init(&track->symbol, track->config.signal);
    track->pol = 0;
    track->is_pure = false;
    track->polarity = 0;
    track->n_polarity = 0;
    track->last_period = -1;
    track->next_sample = acquisition->sample;
    track->n_integrations = 0;
    track->open_samples = 0;
    track->sum.is_open = false;
}

static void lose(struct fgpu_gnss_track *track)
{
    track->stage = FGPU_GNSS_SEARCH;
    track->n_losses++;
}

void fgpu_gnss_track_stop(struct fgpu_gnss_track *track)
{
    track->stage = FGPU_GNSS_SEARCH;
    track->sum.is_open = false;
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

static __int128 code_length(const struct fgpu_gnss_track *track)
{
    return (__int128)track->n_subchips << 64;
}

static __int128 divide_down(__int128 value, __int128 divisor)
{
    return value / divisor - (value % divisor < 0);
}

static __int128 divide_up(__int128 value, __int128 divisor)
{
    return -divide_down(-value, divisor);
}

/* Returns the code phase in the format of gnss_correlate, rounded down. */
static uint64_t code_phase(const struct fgpu_gnss_track *track, __int128 code)
{
    const __int128 length = code_length(track);

    return (uint64_t)((code - divide_down(code, length) * length) >> (64 - GNSS_CODE_BITS));
}

/* Begins an integration, normally with the next code period.  A correction may have moved the code phase past the start
 * of a period.  If the next sample lies less than a chip after this start, the integration begins at the next sample.
 * Returns false if the period begins at or after 'end'. */
static bool begin_integration(struct fgpu_gnss_track *track, int64_t end)
{
    const __int128 length = code_length(track), chip = (__int128)track->chip_subchips << 64;
    const __int128 half_unit = (__int128)1 << (63 - GNSS_CODE_BITS);
    struct fgpu_gnss_model model = track->model;

    fgpu_gnss_model_move(&model, &track->rates, track->next_sample);
    const __int128 step = fgpu_gnss_code_step(&track->rates, model.doppler_hz);
    const __int128 period = divide_up(model.code - chip, length), late = period * length - model.code;
    const int64_t wait = late > 0 ? (int64_t)divide_up(late, step) : 0;
    if (wait >= end - track->next_sample)
        return false;
    track->next_sample += wait;
    fgpu_gnss_model_move(&model, &track->rates, track->next_sample);

    const uint32_t n = (uint32_t)divide_up((period + 1) * length - model.code, step);
    const double doppler_hz = model.doppler_hz + model.rate_hz_s * n / 2 / track->rates.sample_rate_hz;
    const __int128 carrier_step = fgpu_gnss_carrier_step(&track->rates, doppler_hz);
    const __int128 code_step = fgpu_gnss_code_step(&track->rates, doppler_hz);
    track->open = (struct gnss_piece){.code_phase = code_phase(track, model.code),
                                      .code_step = (uint64_t)((code_step + half_unit) >> (64 - GNSS_CODE_BITS)),
                                      .carrier_phase = (uint64_t)model.carrier,
                                      .carrier_step = (uint64_t)carrier_step};
    track->open_samples = n;
    track->open_pending = (struct fgpu_gnss_piece_pending){.start = track->n_starts,
                                                           .integration = track->n_integrations++,
                                                           .n_integration = n,
                                                           .period = (int64_t)period,
                                                           .middle = track->next_sample + n / 2,
                                                           .carrier = model.carrier + n / 2 * carrier_step,
                                                           .code = model.code + n / 2 * code_step};
    return true;
}

/* Returns a piece that covers the next 'n' samples of the open integration. */
static struct gnss_piece take_piece(struct fgpu_gnss_track *track, uint32_t n)
{
    struct gnss_piece piece = track->open;

    piece.n_samples = n;
    track->open.n_samples = track->open_samples;
    gnss_piece_skip(&track->open, track->n_subchips, n);
    track->open_samples -= n;
    track->next_sample += n;
    track->open_pending.n_samples = n;
    track->open_pending.is_last = track->open_samples == 0;
    track->pending[track->n_pushed++ % FGPU_GNSS_MAX_PENDING] = track->open_pending;
    return piece;
}

size_t fgpu_gnss_track_pieces(struct fgpu_gnss_track *track, int64_t begin, int64_t end, struct gnss_piece *pieces,
                              size_t max_pieces)
{
    const double ahead_s = (double)(end - track->model.sample) / track->rates.sample_rate_hz;
    const double doppler_hz = track->model.doppler_hz + track->model.rate_hz_s * ahead_s;
    size_t n = 0;

    if (track->stage != FGPU_GNSS_SEARCH && fabs(doppler_hz) > FGPU_GNSS_MAX_DOPPLER_HZ)
        lose(track); /* a loop has diverged, or time has jumped by hours */
    if (track->stage == FGPU_GNSS_SEARCH)
        return 0;
    if (track->next_sample < begin) {
        track->next_sample = begin;
        track->open_samples = 0;
    }
    while (track->next_sample < end && n < max_pieces && track->n_pushed - track->n_popped < FGPU_GNSS_MAX_PENDING) {
        if (!track->open_samples && !begin_integration(track, end))
            break;
        const int64_t first = track->next_sample - begin;
        pieces[n] = take_piece(track, (uint32_t)least(track->open_samples, (uint64_t)(end - track->next_sample)));
        pieces[n].first = first;
        pieces[n].integration = (uint32_t)n;
        n++;
    }
    return n;
}

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

/* An integration's prompt sums, rotated by the model's phase.  Their phase is the signal's phase minus the model's
 * phase. */
struct prompt {
    double of[N_POLS][2];
    double data_s; /* duration of the samples that arrived */
};

static void rotate(double sum[2], double turns)
{
    const double c = cos(2 * M_PI * turns), s = sin(2 * M_PI * turns), re = sum[0], im = sum[1];

    sum[0] = re * c - im * s;
    sum[1] = re * s + im * c;
}

static double turns_of(__int128 carrier)
{
    return (double)(int64_t)(uint64_t)carrier * 0x1p-64;
}

/* Returns the prompt sums relative to the model.  The sums are scaled to the noise of a whole integration.  So the
 * signal's amplitude is the amplitude in a whole integration times sqrt(fraction of present samples). */
static struct prompt prompt_of(const struct fgpu_gnss_track *track, const struct fgpu_gnss_sum *sum)
{
    struct prompt prompt = {.data_s = sum->n_samples / track->rates.sample_rate_hz};
    const double scale = sqrt((double)sum->of.n_integration / sum->n_samples);
    const double turns = turns_of(sum->of.carrier - track->model.carrier);

    for (size_t pol = 0; pol < N_POLS; pol++) {
        for (size_t part = 0; part < 2; part++)
            prompt.of[pol][part] = sum->parts[FGPU_GNSS_PROMPT][pol][part] * scale;
        rotate(prompt.of[pol], turns);
    }
    return prompt;
}

/* Corrects the code.  The discriminator is early power minus late power, summed over both polarisations.  The total
 * error is the signal's error relative to the replica, plus the replica's error relative to the model.  A signal that is
 * later by a known delay has a smaller code phase, so the delay is added. */
static void correct_code(struct fgpu_gnss_track *track, const struct fgpu_gnss_sum *sum, double data_s)
{
    double powers[FGPU_GNSS_N_TAPS] = {0};

    for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            powers[tap] += pow(sum->parts[tap][pol][0], 2) + pow(sum->parts[tap][pol][1], 2);
    const double early = powers[FGPU_GNSS_EARLY], late = powers[FGPU_GNSS_LATE];
    if (early + late <= 0)
        return;
    const double replica_subchips = (double)(sum->of.code - track->model.code) * 0x1p-64;
    const double delay_subchips = sum->delay / sum->n_samples;
    const double error_subchips =
        track->code_gain * (early - late) / (early + late) + replica_subchips + delay_subchips;
    fgpu_gnss_model_correct_code(&track->model, error_subchips, stages[track->stage].code_hz, data_s);
}

/* Measures the frequency relative to the model from the sums of two consecutive periods, and corrects the Doppler.
 * Also passes the product of these sums to the search for symbols. */
static void correct_frequency(struct fgpu_gnss_track *track, const struct prompt *prompt, int64_t period)
{
    double dot = 0, cross = 0;

    if (track->last_period < 0 || period != track->last_period + 1)
        return;
    for (size_t pol = 0; pol < N_POLS; pol++) {
        const double *now = prompt->of[pol], *last = track->last[pol];
        dot += now[0] * last[0] + now[1] * last[1];
        cross += now[1] * last[0] - now[0] * last[1];
    }
    if (stages[track->stage].frequency_hz > 0 && dot != 0)
        fgpu_gnss_model_correct_doppler(&track->model, atan(cross / dot) / (2 * M_PI * track->period_s),
                                        stages[track->stage].frequency_hz, prompt->data_s);
    if (track->stage == FGPU_GNSS_TRACKING)
        fgpu_gnss_symbol_add(&track->symbol, period, dot);
}

/* Resolves a pilot's ambiguity of half a turn.  Called when the signs of the pilot's secondary code are known. */
static void resolve_half_turn(struct fgpu_gnss_track *track, double chip_re)
{
    track->polarity += chip_re;
    if (++track->n_polarity < (int)track->symbol.n_periods)
        return;
    track->is_pure = true;
    if (track->polarity < 0)
        track->model.carrier += (__int128)1 << 63;
}

static void correct_phase(struct fgpu_gnss_track *track, const struct prompt *prompt, int64_t period)
{
    const int place = fgpu_gnss_symbol_place(&track->symbol, period);
    const bool is_pilot = gnss_signal_facts(track->config.signal)->symbol_periods == 0;
    const int chip = is_pilot && place >= 0 ? track->symbol.chips[place] : 0;
    const double re = prompt->of[track->pol][0], im = prompt->of[track->pol][1];
    double angle = 0;

    if (track->is_pure)
        angle = atan2(chip * im, chip * re);
    else if (re != 0)
        angle = atan(im / re);
    fgpu_gnss_model_correct_carrier(&track->model, angle / (2 * M_PI), stages[track->stage].phase_hz, prompt->data_s,
                                    track->stage == FGPU_GNSS_TRACKING);
    if (chip && !track->is_pure)
        resolve_half_turn(track, chip * re);
}

static double cn0_db_hz(const struct fgpu_gnss_track *track, size_t pol)
{
    return fgpu_gnss_lock_cn0_db_hz(&track->locks[pol]);
}

static bool is_code_locked(const struct fgpu_gnss_track *track)
{
    return track->locks[0].seconds < MOMENTS_MIN_S || fmax(cn0_db_hz(track, 0), cn0_db_hz(track, 1)) > MIN_CODE;
}

static bool is_carrier_locked(const struct fgpu_gnss_track *track)
{
    return fgpu_gnss_lock_carrier(&track->locks[track->pol]) > MIN_CARRIER;
}

static void next_stage(struct fgpu_gnss_track *track, double data_s)
{
    const bool is_locked = is_code_locked(track) && (track->stage != FGPU_GNSS_TRACKING || is_carrier_locked(track));

    if (!is_locked) {
        lose(track);
        return;
    }
    track->stage_s += data_s;
    if (track->stage_s < stages[track->stage].duration_s)
        return;
    if (track->stage == FGPU_GNSS_PULL_IN)
        track->pol = cn0_db_hz(track, 1) > cn0_db_hz(track, 0);
    track->stage++;
    track->stage_s = 0;
}

static struct fgpu_gnss_integration integration_of(const struct fgpu_gnss_track *track)
{
    const struct fgpu_gnss_sum *sum = &track->sum;
    struct fgpu_gnss_integration integration = {
        .stage = track->stage,
        .sample = sum->of.middle,
        .code_period = sum->of.period,
        .code_subchips = ldexp((double)code_phase(track, sum->of.code), -GNSS_CODE_BITS),
        .carrier_turns = (int64_t)(sum->of.carrier >> 64),
        .carrier_phase = (uint64_t)sum->of.carrier,
        .n_samples = sum->of.n_integration,
        .n_present = sum->n_samples,
    };

    memcpy(integration.sums, sum->parts, sizeof(integration.sums));
    return integration;
}

/* Corrects the model with the sums of a finished integration. */
static void use_sum(struct fgpu_gnss_track *track)
{
    struct fgpu_gnss_sum *sum = &track->sum;
    const int64_t period = sum->of.period;

    sum->is_open = false;
    fgpu_gnss_model_move(&track->model, &track->rates, sum->of.middle);
    if (sum->n_samples < MIN_FRACTION * sum->of.n_integration)
        return;
    struct prompt prompt = prompt_of(track, sum);
    for (size_t pol = 0; pol < N_POLS; pol++)
        fgpu_gnss_lock_add_power(&track->locks[pol], prompt.of[pol][0], prompt.of[pol][1], prompt.data_s);
    correct_code(track, sum, prompt.data_s);
    correct_frequency(track, &prompt, period);
    if (stages[track->stage].phase_hz > 0) {
        const double *of = prompt.of[track->pol];
        fgpu_gnss_lock_add_phase(&track->locks[track->pol], of[0], of[1], prompt.data_s);
        correct_phase(track, &prompt, period);
    }
    memcpy(track->last, prompt.of, sizeof(track->last));
    track->last_period = period;
    next_stage(track, prompt.data_s);
}

/* Ends the open integration. */
static struct fgpu_gnss_integration close_sum(struct fgpu_gnss_track *track)
{
    struct fgpu_gnss_integration ended = integration_of(track);

    use_sum(track);
    ended.after = fgpu_gnss_track_at(track, ended.sample);
    return ended;
}

const struct fgpu_gnss_piece_pending *fgpu_gnss_track_oldest(const struct fgpu_gnss_track *track)
{
    const struct fgpu_gnss_piece_pending *piece = &track->pending[track->n_popped % FGPU_GNSS_MAX_PENDING];

    assert(track->n_popped != track->n_pushed);
    return track->stage != FGPU_GNSS_SEARCH && piece->start == track->n_starts ? piece : NULL;
}

size_t fgpu_gnss_track_cut(struct fgpu_gnss_track *track, struct fgpu_gnss_integration *ended)
{
    const struct fgpu_gnss_piece_pending *piece = fgpu_gnss_track_oldest(track);

    if (!piece || !track->sum.is_open || track->sum.of.integration == piece->integration)
        return 0;
    *ended = close_sum(track);
    return 1;
}

size_t fgpu_gnss_track_sums(struct fgpu_gnss_track *track, const double (*sums)[N_POLS][2], uint32_t n_present,
                            double delay_subchips, struct fgpu_gnss_integration ended[2])
{
    size_t n_ended = fgpu_gnss_track_cut(track, ended);
    const struct fgpu_gnss_piece_pending *piece = fgpu_gnss_track_oldest(track);
    struct fgpu_gnss_sum *sum = &track->sum;

    track->n_popped++;
    if (!piece)
        return n_ended;
    assert(n_present <= piece->n_samples);
    if (!sum->is_open)
        *sum = (struct fgpu_gnss_sum){.is_open = true};
    sum->of = *piece;
    sum->n_samples += n_present;
    sum->delay += n_present * delay_subchips;
    for (size_t tap = 0; tap < FGPU_GNSS_N_TAPS; tap++)
        for (size_t pol = 0; pol < N_POLS; pol++)
            for (size_t part = 0; part < 2; part++)
                sum->parts[tap][pol][part] += sums[tap][pol][part];
    if (!piece->is_last)
        return n_ended;
    ended[n_ended++] = close_sum(track);
    return n_ended;
}

/* ---- State ------------------------------------------------------------------------------------------------------- */

struct fgpu_gnss_state fgpu_gnss_track_at(const struct fgpu_gnss_track *track, int64_t sample)
{
    struct fgpu_gnss_model model = track->model;

    fgpu_gnss_model_move(&model, &track->rates, sample);
    const int64_t period = (int64_t)divide_down(model.code, code_length(track));
    return (struct fgpu_gnss_state){
        .stage = track->stage,
        .is_code_locked = track->stage != FGPU_GNSS_SEARCH && is_code_locked(track),
        .is_carrier_locked = track->stage == FGPU_GNSS_TRACKING && is_carrier_locked(track),
        .has_half_turn = !track->is_pure,
        .code_period = period,
        .code_phase = code_phase(track, model.code),
        .carrier_turns = (int64_t)(model.carrier >> 64),
        .carrier_phase = (uint64_t)model.carrier,
        .doppler_hz = model.doppler_hz,
        .doppler_rate_hz_s = model.rate_hz_s,
        .cn0_db_hz = {cn0_db_hz(track, 0), cn0_db_hz(track, 1)},
        .symbol_period = fgpu_gnss_symbol_place(&track->symbol, period),
    };
}
