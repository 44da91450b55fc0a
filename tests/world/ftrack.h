/* ftrack.h - the parts of fworld's model of a satellite's loops.  ftrack.c judges records with these parts.
 *
 * For ftrack*.c only.
 * Threads: threads of the world. */
#ifndef TESTS_WORLD_FTRACK_H
#define TESTS_WORLD_FTRACK_H

#include "tests/world/fgnss.h"

#define MAX_MODELS   32
#define MAX_OFFSETS  40
#define SLOP         1e-6L /* chips and turns: error of a model in long double */
#define UNSEEN_CHIPS 0.02L /* bounds of unseen corrections */
#define UNSEEN_TURNS 0.2L
#define UNSEEN_HZ    9
#define SLOPE        0.375 /* chips of code error for a discriminator of 1 */

struct model {
    int64_t sample;
    long double chips, turns; /* since the start */
    double doppler_hz;
    bool is_guess; /* the Doppler is not known */
};

/* Rounds of consecutive samples. */
struct run {
    int64_t begin, end;   /* samples of replicas */
    unsigned first, last; /* indices of the rounds */
};

/* An integration, and its records at all antennas that sent a heap. */
struct set {
    struct record *of[MAX_ANTS];
    struct record *any; /* of the reference antenna, if it sent a heap */
};

/* The block of sums from which an antenna's delay is measured. */
struct block {
    bool is_unsure; /* sums were not seen */
    double open_s, replica, products[N_SATELLITE_TAPS][2][2];
    double span_s, span, delay_s; /* of all blocks since the antenna joined */
    double delay;                 /* chips */
    bool is_delay_known, is_coherent;
};

/* An antenna that the loops follow, or may follow later. */
struct follower {
    bool is_followed;
    uint32_t n_starts;
    unsigned next_order; /* the requests before this one are used up */
    /* Offsets that records may have.  The offsets before 'n_stale' are those of replicas that were made earlier. */
    int64_t offsets[MAX_OFFSETS];
    unsigned n_stale, n_offsets;
    unsigned since;    /* round in which the newest offsets became valid */
    bool is_uncertain; /* an unsure block may have changed the offset */
    struct block block;
};

struct loops {
    unsigned index;
    bool is_active, has_unseen; /* has_unseen: corrections since the start may be unseen */
    int64_t unseen_sample;      /* of the first model whose correction may be unseen */
    bool is_interrupted;        /* integrations may be unseen before the next record */
    bool has_seen_reference;    /* since the start, a record of the reference antenna was seen */
    unsigned reference;
    struct follower ants[MAX_ANTS];
    int64_t next;      /* first sample after all integrations so far */
    struct run run;    /* of the current round */
    struct run cut;    /* run in which a gap has cut an integration whose record has not come; 0, 0: none */
    unsigned n_models; /* since the start; the last MAX_MODELS are kept */
    struct model models[MAX_MODELS];
    int64_t block;       /* number of the open block (ftrack_delay.c); -1: none */
    int64_t last_period; /* of 'last'; -1: none */
    double last[2][2];
    unsigned n_used;                     /* records in the moments for C/N0 */
    double data_s, mean_s, m2[2], m4[2]; /* of the moments */
};

/* ---- ftrack_model.c: the model of the loops ---------------------------------------------------------------------- */

static inline long double track_turns_step(double doppler_hz)
{
    return ((long double)CARRIER_HZ + doppler_hz) / GNSS_RATE_HZ;
}

static inline long double track_chips_step(double doppler_hz)
{
    return (long double)CHIP_RATE_HZ * (1 + doppler_hz / (long double)L1_HZ) / GNSS_RATE_HZ;
}

static inline struct model track_moved(const struct model *model, int64_t sample)
{
    long double n = (long double)(sample - model->sample);

    return (struct model){sample, model->chips + n * track_chips_step(model->doppler_hz),
                          model->turns + n * track_turns_step(model->doppler_hz), model->doppler_hz, false};
}

static inline struct model *track_newest(struct loops *l)
{
    return &l->models[(l->n_models - 1) % MAX_MODELS];
}

static inline void track_add_model(struct loops *l, struct model model)
{
    l->models[l->n_models++ % MAX_MODELS] = model;
}

/* Returns the model after the i-th newest integration, or NULL. */
static inline struct model *track_model_before(struct loops *l, unsigned i)
{
    return i < l->n_models && i < MAX_MODELS ? &l->models[(l->n_models - 1 - i) % MAX_MODELS] : NULL;
}

static inline int64_t track_sample_of(const struct record *r)
{
    return gnss_unwrap((uint64_t)r->timestamp) / SUBSAMPLING;
}

/* A record's phases in the units of a model.  The sample is right for the reference antenna only. */
static inline struct model track_phases_of(const struct record *r)
{
    return (struct model){.sample = track_sample_of(r),
                          .chips = (long double)r->code_period * CODE_CHIPS + r->code_phase,
                          .turns = (long double)r->carrier_cycles + r->carrier_phase,
                          .doppler_hz = r->doppler};
}

_Noreturn void track_fail(const struct loops *l, unsigned ant, const struct record *r, const char *why);

/* Returns true if a replica follows from the model, within bounds.  fgpu rounds the code's step to 2^-48 chips, and the
 * sky frequency to 2^-22 Hz (double precision).  If the replica's sample is not known, it becomes the sample that the
 * code phase says. */
bool track_follows(struct model *replica, const struct model *model, bool is_sample_known, long double slop_chips,
                   long double slop_turns);

/* Finds the model from which the replica follows.  Writes its Doppler, and the sample if it is not known. */
bool track_find_model(struct loops *l, struct model *replica, bool is_sample_known);

/* Returns true if the replica is near the newest model, after corrections that are unseen. */
bool track_is_near(struct loops *l, struct model *replica, bool is_sample_known);

/* The correction of the newest model may be unseen. */
void track_set_unseen(struct loops *l);

/* Corrects the newest model with the reference antenna's record: the code by a loop of 2 Hz, the Doppler by a loop of
 * 4 Hz.  K = 4 B T. */
void track_correct(struct loops *l, const struct record *r);

/* Compares the Doppler of a record with the model after the record's integration. */
void track_check_doppler(struct loops *l, const struct record *r);

/* Another antenna's C/N0 is not measured before the stage after pull-in. */
void track_check_constants(const struct loops *l, unsigned ant, const struct record *r);

/* C/N0 from the second and fourth moments of the prompt sums. */
void track_check_cn0(const struct loops *l, const struct record *r);

/* Checks that the integration is the first one after 'next': it begins with the first sample of a code period, or less
 * than a chip later. */
void track_check_begin(const struct loops *l, const struct set *set, const struct model *replica, int64_t next);

/* ---- ftrack_sums.c: sums of records ------------------------------------------------------------------------------ */

/* Returns true if the antenna's record may be one of the first after it joined or after its offset changed: replicas
 * were made with the offset before. */
bool track_is_new(const struct follower *f, unsigned h);

/* Compares the sums with the samples of the run.  If an antenna joins within an integration, or if the earlier offset is
 * far from the delay, the samples before are missing.  If the offset changes a little within an integration, all samples
 * are missing. */
bool track_check_sums(const struct loops *l, unsigned ant, struct record *r, const struct model *replica,
                      const struct run *run, unsigned h);

void track_note_sums(const struct record *r);

/* ---- ftrack_delay.c: delays of the antennas ---------------------------------------------------------------------- */

/* The delay of a signal relative to a model, in samples. */
long double track_delay_of(const struct model *model, const struct model *signal);

void track_add_offset(struct follower *f, int64_t offset);

/* Keeps only the newest offsets, as offsets of replicas that were made earlier. */
void track_make_stale(struct follower *f, unsigned h);

void track_check_offset(const struct loops *l, unsigned ant, const struct record *r, int64_t offset, unsigned h);

/* Measures all antennas after an integration. */
void track_measure(struct loops *l, const struct set *set, const struct model *replica, unsigned h);

/* ---- ftrack_start.c: starts of the loops, and antennas that join and leave --------------------------------------- */

/* Returns true if the request, or its effect, may come before the round's records. */
bool track_may_precede(const struct order *order, const struct round *round);

bool track_is_meant(const struct loops *l, unsigned i, unsigned ant);

/* Returns the first sample of the next integration after 'from', about. */
int64_t track_predict_begin(struct loops *l, int64_t from);

/* Integrations after 'next' may end unseen.  The sums of one of them may correct the model.  Adds models at the middles
 * of 'n' integrations, so that the sums of later records can tell the Doppler. */
void track_interrupt(struct loops *l, int64_t next, unsigned n);

/* Begins a start with its first records.  The reference antenna's code counts as locked. */
void track_start(struct loops *l, const struct set *set, unsigned h);

/* Returns true if the records belong to the loops that run. */
bool track_continues(struct loops *l, const struct set *set, unsigned h);

/* Returns true if a request may have ended the tracking of an antenna before the round's records. */
bool track_may_leave(const struct loops *l, unsigned ant, unsigned h);

/* Finds the antennas that have joined or left before the round's records. */
void track_find_followers(struct loops *l, const struct set *set, unsigned h);

#endif
