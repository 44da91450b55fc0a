/* ftrack_model.c - the model of a satellite's loops: how sums correct the model, and which replicas follow.  See ftrack.h. */
#include "tests/world/ftrack.h"
#include "tests/world/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void track_fail(const struct loops *l, unsigned ant, const struct record *r, const char *why)
{
    world_fail("antenna %u, L1CA-%u, start %u: the record of sample %lld, code period %lld, with %u of %u samples: %s",
               ant, gnss.prns[l->index], r->n_starts, (long long)(gnss_unwrap((uint64_t)r->timestamp) / SUBSAMPLING),
               (long long)r->code_period, r->n_present, r->n_samples, why);
}

bool track_follows(struct model *replica, const struct model *model, bool is_sample_known, long double slop_chips,
                   long double slop_turns)
{
    int64_t sample = replica->sample;

    if (!is_sample_known)
        sample = model->sample + llroundl((replica->chips - model->chips) / track_chips_step(model->doppler_hz));
    struct model m = track_moved(model, sample);
    long double n = (long double)llabs(sample - model->sample);
    if (llabs(sample - replica->sample) > gnss.delay_samples ||
        fabsl(m.chips - replica->chips) >= slop_chips + n * 0x1p-49L ||
        fabsl(m.turns - replica->turns) >= slop_turns + n * 0x1p-23L / GNSS_RATE_HZ)
        return false;
    replica->sample = sample;
    replica->doppler_hz = model->doppler_hz;
    return true;
}

bool track_find_model(struct loops *l, struct model *replica, bool is_sample_known)
{
    const struct model *model;

    for (unsigned i = 0; (model = track_model_before(l, i)) != NULL; i++)
        if (track_follows(replica, model, is_sample_known, SLOP, SLOP))
            return true;
    return false;
}

bool track_is_near(struct loops *l, struct model *replica, bool is_sample_known)
{
    long double cycles = UNSEEN_HZ * fabsl((long double)(replica->sample - l->unseen_sample)) / GNSS_RATE_HZ;

    return l->has_unseen && track_follows(replica, track_newest(l), is_sample_known,
                                          UNSEEN_CHIPS + cycles * CHIP_RATE_HZ / L1_HZ, UNSEEN_TURNS + cycles);
}

void track_set_unseen(struct loops *l)
{
    if (!l->has_unseen)
        l->unseen_sample = track_newest(l)->sample;
    l->has_unseen = true;
}

void track_correct(struct loops *l, const struct record *r)
{
    struct model replica = track_phases_of(r), model = track_moved(track_newest(l), replica.sample);
    double data_s = r->n_present / (double)GNSS_RATE_HZ, powers[N_SATELLITE_TAPS] = {0}, now[2][2], dot = 0, cross = 0;
    double angle = 2 * M_PI * (double)(replica.turns - model.turns);
    bool is_used = 2 * r->n_present >= r->n_samples;

    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++)
        powers[k / 2] += pow(r->sums[k / 2][k % 2][0], 2) + pow(r->sums[k / 2][k % 2][1], 2);
    for (unsigned pol = 0; is_used && pol < 2; pol++) {
        const double *prompt = r->sums[1][pol];
        now[pol][0] = prompt[0] * cos(angle) - prompt[1] * sin(angle);
        now[pol][1] = prompt[0] * sin(angle) + prompt[1] * cos(angle);
        dot += now[pol][0] * l->last[pol][0] + now[pol][1] * l->last[pol][1];
        cross += now[pol][1] * l->last[pol][0] - now[pol][0] * l->last[pol][1];
        double power = pow(hypot(prompt[0], prompt[1]), 2) * r->n_samples / r->n_present;
        double weight = data_s / (l->data_s + data_s);
        l->m2[pol] += weight * (power - l->m2[pol]);
        l->m4[pol] += weight * (power * power - l->m4[pol]);
    }
    if (is_used) {
        double error = SLOPE * (powers[0] - powers[2]) / (powers[0] + powers[2]);
        model.chips += 4 * 2 * data_s * (error + (double)(replica.chips - model.chips));
        if (l->last_period >= 0 && r->code_period == l->last_period + 1)
            model.doppler_hz += 4 * 4 * data_s * atan(cross / dot) / (2 * M_PI * 1e-3);
        memcpy(l->last, now, sizeof(l->last));
        l->last_period = r->code_period;
        l->data_s += data_s;
        l->mean_s += data_s / l->data_s * (data_s - l->mean_s);
        l->n_used++;
    }
    track_add_model(l, model);
}

void track_check_doppler(struct loops *l, const struct record *r)
{
    if (fabs(track_newest(l)->doppler_hz - r->doppler) > (l->has_unseen ? UNSEEN_HZ : 1e-6))
        world_fail("L1CA-%u: the Doppler after code period %lld is %.9f Hz, not %.9f Hz", r->prn,
                   (long long)r->code_period, r->doppler, track_newest(l)->doppler_hz);
    track_newest(l)->doppler_hz = r->doppler;
    track_newest(l)->is_guess = false;
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

void track_check_constants(const struct loops *l, unsigned ant, const struct record *r)
{
    bool is_reference = ant == l->reference;

    if (r->timestamp % SUBSAMPLING != 0 || r->doppler_rate != 0 || r->signal != 0 || r->stage != 1 ||
        r->flags != (is_reference ? 5 : 4) || r->symbol_period != -1 || r->n_present > r->n_samples ||
        !(r->code_phase >= 0 && r->code_phase < CODE_CHIPS) || !(r->carrier_phase >= 0 && r->carrier_phase < 1))
        track_fail(l, ant, r, "the state is wrong");
    if (!is_reference && (r->cn0[0] != -INFINITY || r->cn0[1] != -INFINITY))
        track_fail(l, ant, r, "C/N0 is not measured yet");
}

void track_check_cn0(const struct loops *l, const struct record *r)
{
    for (unsigned pol = 0; pol < 2 && !l->has_unseen; pol++) {
        double m2 = l->m2[pol], square = 2 * m2 * m2 - l->m4[pol], signal = sqrt(fmax(square, 0));
        bool is_clear = l->n_used > 1 && square > 1e-6 * m2 * m2 && m2 - signal > 1e-6 * m2;
        if (square < -1e-6 * m2 * m2 && r->cn0[pol] != -INFINITY)
            track_fail(l, l->reference, r, "there is no signal, and C/N0 is finite");
        if (is_clear && fabs(r->cn0[pol] - 10 * log10(signal / (m2 - signal) / l->mean_s)) > 1e-3)
            track_fail(l, l->reference, r, "C/N0 is wrong");
    }
}

void track_check_begin(const struct loops *l, const struct set *set, const struct model *replica, int64_t next)
{
    const struct record *r = set->any;
    int64_t begin = replica->sample - r->n_samples / 2;
    long double period = (long double)r->code_period * CODE_CHIPS;
    long double step = track_chips_step(replica->doppler_hz), first = replica->chips - r->n_samples / 2 * step;
    long double at_next = first - (begin - next) * step, end = first + r->n_samples * step;

    if (begin < next || (begin > next && first - step >= period + SLOP) || first < period - SLOP ||
        first > period + 1 + SLOP || at_next <= period - CODE_CHIPS + 1 - SLOP)
        track_fail(l, l->reference, r, "it begins at the wrong sample");
    if (end < period + CODE_CHIPS - SLOP || end - step >= period + CODE_CHIPS + SLOP)
        track_fail(l, l->reference, r, "it ends at the wrong sample");
}
