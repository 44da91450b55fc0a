/* channelise_tune.c - the candidates, the search among them; what it calls to measure is channelise_timing.h. */
#include "kernels/filterbank/channelise_tune.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/filterbank/channelise_timing.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define REGISTERS 65536 /* of a multiprocessor */
#define HOPELESS  1.5   /* times the best: not measured any further */
#define FAR       1.2   /* the same for a number of rows, later on */
#define BETTER    0.995 /* of the best: less is noise */

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* A number and the values that are tried; the numbers of a group in all combinations. */
struct axis {
    size_t offset;
    size_t n;
    uint32_t values[8];
};
#define MAX_AXES 3
struct group {
    enum channelise_part part;
    struct axis axes[MAX_AXES];
};
#define VALUES(...)                                                                                                    \
    sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                                                              \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define AXIS(member, ...)                                                                                              \
    {                                                                                                                  \
        offsetof(struct channelise_shape, member), VALUES(__VA_ARGS__)                                                 \
    }

/* What makes most of a difference comes first. */
static const struct group groups[CHANNELISE_TUNE_N_GROUPS] = {
    {PART_FRONT,
     {AXIS(front_per_thread, 1, 2), AXIS(front_columns, 4, 8, 16, 32, 64), AXIS(front_blocks, 1, 2, 3, 4, 5, 6)}},
    {PART_BACK, {AXIS(back_radix, 4, 8, 16, 32)}},
    {PART_BACK,
     {AXIS(back_spectra, 4, 8, 16), AXIS(back_pairs, 1, 2, 4, 8, 16), AXIS(back_threads, 64, 128, 256, 512)}},
    {PART_FRONT, {AXIS(front_tensors, 0, 1)}},
    {PART_FRONT, {AXIS(front_spectra, 2, 4, 8, 16), AXIS(front_stages, 2, 3, 4)}},
    {PART_BACK, {AXIS(back_tiles, 1, 2), AXIS(back_bulk, 0, 1)}},
    {PART_BACK, {AXIS(back_blocks, 1, 2, 3, 4, 5, 6, 7, 8)}},
    {PART_FRONT, {AXIS(front_radix, 4, 8, 16)}},
    {PART_FRONT, {AXIS(front_section, 0, 64, 128, 256, 512)}}, /* which needs no compiling */
};

static uint32_t *member_at(struct channelise_shape *shape, size_t offset)
{
    return (uint32_t *)(void *)((char *)shape + offset);
}

/* Registers that a thread of so many blocks may have. */
static uint32_t registers(uint32_t threads, uint32_t blocks)
{
    return REGISTERS / (threads * blocks);
}

/* A thread of the front keeps the sums of both polarisations that are begun, and little else.  More registers than
 * twice what it needs are blocks that are not there. */
static bool front_plausible(const struct channelise_config *config, const struct channelise_shape *s)
{
    uint32_t columns = s->front_rows * s->front_columns, threads = columns / s->front_per_thread;
    uint32_t needed = 2 * s->front_per_thread * (config->n_taps - 1) + 32;
    uint32_t available = registers(threads, s->front_blocks);

    needed = needed < 64 ? 64 : needed;
    return threads >= 128 && (s->front_blocks == 1 || available >= needed) && available <= 2 * needed;
}

/* Passes of similar length; points enough for each thread and not too many, and registers for the longer pass. */
static bool back_plausible(const struct channelise_config *config, const struct channelise_shape *s)
{
    uint32_t m2 = 2 * config->n_chan / s->front_rows, a = s->back_radix, b = m2 / a;
    uint32_t most = a > b ? a : b, least = b > 1 && b < a ? b : a;
    uint32_t points = s->back_pairs * 2 * s->back_spectra * m2 / s->back_threads;
    uint32_t available = registers(s->back_threads, s->back_blocks);

    return most <= 2 * least && points >= 8 && points <= 64 && available >= 2 * most + 32 && available >= 64 &&
           available <= 170;
}

size_t channelise_tune_starts(const struct channelise_config *config, size_t shared_bytes,
                              struct channelise_shape starts[CHANNELISE_TUNE_STARTS])
{
    struct channelise_shape shape = channelise_fused_shape(config, shared_bytes);
    uint32_t default_rows = shape.front_rows;
    size_t n = 0;

    if (channelise_shape_valid(config, &shape, shared_bytes))
        starts[n++] = shape;
    for (uint32_t rows = 8; rows <= 256 && rows <= config->n_chan / 8; rows *= 2) {
        shape = channelise_shape_of_rows(config, rows, shared_bytes);
        if (rows != default_rows && n < CHANNELISE_TUNE_STARTS && channelise_shape_valid(config, &shape, shared_bytes))
            starts[n++] = shape;
    }
    return n;
}

/* Combination 'index' of the group's values; false beyond the last. */
static bool combine(const struct group *group, size_t index, struct channelise_shape *shape)
{
    for (const struct axis *axis = group->axes; axis < group->axes + MAX_AXES && axis->n; axis++) {
        *member_at(shape, axis->offset) = axis->values[index % axis->n];
        index /= axis->n;
    }
    return index == 0;
}

size_t channelise_tune_candidates(const struct channelise_config *config, size_t shared_bytes, unsigned group,
                                  const struct channelise_shape *base,
                                  struct channelise_shape candidates[CHANNELISE_TUNE_MOST])
{
    size_t n = 0;

    for (size_t i = 0; n < CHANNELISE_TUNE_MOST; i++) {
        struct channelise_shape shape = *base;
        if (!combine(&groups[group], i, &shape))
            break;
        if (shape.back_spectra == 16 && base->back_spectra < 16)
            shape.back_tiles = 1;
        if (memcmp(&shape, base, sizeof(shape)) == 0 || !channelise_shape_valid(config, &shape, shared_bytes))
            continue;
        if (groups[group].part == PART_FRONT ? front_plausible(config, &shape) : back_plausible(config, &shape))
            candidates[n++] = shape;
    }
    return n;
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* The best so far with so many rows. */
struct contender {
    struct channelise_shape shape;
    double ns[N_PARTS];
};

struct search {
    const struct channelise_tune_config *config;
    size_t shared_bytes;
    channelise_measure *measure;
    void *of;
    int64_t end_ns;
    size_t n_measured;
    struct contender contenders[CHANNELISE_TUNE_STARTS];
    size_t n_contenders;
    int err; /* of the device: the end */
};

static double sum_of(const struct contender *contender)
{
    return contender->ns[PART_FRONT] + contender->ns[PART_BACK];
}

static const struct contender *best_of(const struct search *s)
{
    const struct contender *best = &s->contenders[0]; /* where there is none, it is all zeros */

    for (size_t i = 1; i < s->n_contenders; i++)
        if (sum_of(&s->contenders[i]) < sum_of(best))
            best = &s->contenders[i];
    return best;
}

static bool may_resume(const struct search *s)
{
    return !s->err && clock_monotonic_ns() < s->end_ns &&
           (s->config->n_candidates == 0 || s->n_measured < s->config->n_candidates);
}

/* INFINITY where it is hopeless beside 'best_ns', or does not run. */
static double measure(struct search *s, const struct channelise_choice *choice, enum channelise_part part,
                      double best_ns)
{
    double ns = INFINITY;

    if (s->err)
        return ns;
    s->n_measured++;
    s->err = s->measure(s->of, choice, part, best_ns * HOPELESS, &ns);
    return ns;
}

static double measure_shape(struct search *s, const struct channelise_shape *shape, enum channelise_part part,
                            double best_ns)
{
    const struct channelise_choice choice = {.method = CHANNELISE_FUSED, .shape = *shape};

    return measure(s, &choice, part, best_ns);
}

/* Drops the rows that are behind by more than 'factor'; the best stays, and the order. */
static void drop_far(struct search *s, double factor)
{
    double limit_ns = sum_of(best_of(s)) * factor;
    size_t n = 0;

    for (size_t i = 0; i < s->n_contenders; i++)
        if (sum_of(&s->contenders[i]) <= limit_ns)
            s->contenders[n++] = s->contenders[i];
    s->n_contenders = n;
}

static void begin(struct search *s)
{
    struct channelise_shape starts[CHANNELISE_TUNE_STARTS];
    size_t n = channelise_tune_starts(&s->config->work.config, s->shared_bytes, starts);

    for (size_t i = 0; i < n && (i == 0 || may_resume(s)); i++) {
        double best_ns = i == 0 ? INFINITY : sum_of(best_of(s));
        struct contender *c = &s->contenders[s->n_contenders++];

        c->shape = starts[i];
        c->ns[PART_FRONT] = measure_shape(s, &c->shape, PART_FRONT, best_ns);
        c->ns[PART_BACK] = measure_shape(s, &c->shape, PART_BACK, best_ns);
        s->n_measured -= 1; /* they are one candidate */
    }
}

static void vary(struct search *s, struct contender *c, unsigned group)
{
    struct channelise_shape candidates[CHANNELISE_TUNE_MOST];
    enum channelise_part part = groups[group].part;
    size_t n = channelise_tune_candidates(&s->config->work.config, s->shared_bytes, group, &c->shape, candidates);

    for (size_t i = 0; i < n && may_resume(s); i++) {
        double ns = measure_shape(s, &candidates[i], part, c->ns[part]);
        if (ns < c->ns[part] * BETTER) {
            c->ns[part] = ns;
            c->shape = candidates[i];
        }
    }
}

/* The best shape, if it is better than what is chosen. */
static void choose_shape(const struct search *s, struct channelise_tuned *tuned)
{
    if (s->n_contenders == 0 || sum_of(best_of(s)) >= tuned->best_ns)
        return;
    tuned->choice = (struct channelise_choice){.method = CHANNELISE_FUSED, .shape = best_of(s)->shape};
    tuned->best_ns = sum_of(best_of(s));
}

/* The stages, if they are better; where there is no shape, they are the default. */
static void choose_stages(struct search *s, struct channelise_tuned *tuned)
{
    static const unsigned unzips[] = {1, 2, 4};

    for (size_t i = 0; i < ARRAY_LEN(unzips) && (isinf(tuned->best_ns) || may_resume(s)); i++) {
        struct channelise_choice choice = {.method = CHANNELISE_STAGES, .unzip = unzips[i]};
        double ns = measure(s, &choice, PART_FRONT, tuned->best_ns);
        ns += isinf(ns) ? 0 : measure(s, &choice, PART_BACK, tuned->best_ns);
        if (i == 0 && isinf(tuned->default_ns))
            tuned->default_ns = ns;
        if (ns < tuned->best_ns * BETTER) {
            tuned->choice = choice;
            tuned->best_ns = ns;
        }
    }
}

int channelise_search(const struct channelise_tune_config *config, size_t shared_bytes,
                      channelise_measure *measure_part, void *of, struct channelise_tuned *tuned)
{
    struct search s = {.config = config,
                       .shared_bytes = shared_bytes,
                       .measure = measure_part,
                       .of = of,
                       .end_ns = clock_monotonic_ns() + config->limit_ns};
    struct channelise_tuned found = {.default_ns = INFINITY, .best_ns = INFINITY};

    begin(&s);
    if (s.n_contenders > 0)
        found.default_ns = sum_of(&s.contenders[0]);
    choose_shape(&s, &found);
    choose_stages(&s, &found);
    drop_far(&s, HOPELESS);
    for (unsigned group = 0; group < CHANNELISE_TUNE_N_GROUPS; group++) {
        for (size_t i = 0; i < s.n_contenders; i++)
            vary(&s, &s.contenders[i], group);
        drop_far(&s, FAR);
    }
    choose_shape(&s, &found);
    found.n_candidates = s.n_measured;
    found.complete = may_resume(&s);
    if (s.err || isinf(found.best_ns))
        return s.err ? s.err : -ENOMEM; /* the only reason why nothing runs that is no error */
    *tuned = found;
    return 0;
}

struct channelise_tune_config channelise_tune_config(const struct channelise_work *work)
{
    return (struct channelise_tune_config){
        .work = *work, .run_ns = 10 * NS_PER_MS, .n_runs = 5, .limit_ns = 60 * NS_PER_S};
}

int channelise_tune(struct device *device, const struct channelise_tune_config *config, struct channelise_tuned *tuned)
{
    struct timing *timing;
    int err = timing_create(device, &config->work, config->run_ns, config->n_runs, &timing);

    if (err)
        return err;
    err = channelise_search(config, device_shared_bytes(device), timing_measure, timing, tuned);
    timing_destroy(timing);
    return err;
}
