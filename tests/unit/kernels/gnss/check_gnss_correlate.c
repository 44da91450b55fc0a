/* check_gnss_correlate - sums of the C version and of the CUDA variants, against a model.  The model computes the
 * phases of each sample separately in 128-bit integers.  Both devices give the same bits.
 * Cases: tables of all lengths in one launch, taps and offsets anywhere, large and negative frequencies, integrations
 * of several pieces, the largest sums.  Phases over 1e8 samples are compared with exact rates, and the replica's loss
 * with double precision. */
#include "kernels/gnss/gnss_correlate.h"

#include "common/base/units.h"
#include "kernels/gnss/gnss_codes.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"

#include <complex.h>
#include <math.h>

typedef unsigned __int128 u128;

#define GUARD UINT64_C(0x5a5a5a5a5a5a)

static const uint32_t lengths[] = {1023, 49104, 10230, 8184};

/* ---- The model --------------------------------------------------------------------------------------------------- */

static size_t model_subchip(const struct gnss_piece *piece, uint64_t tap, uint32_t n_subchips, uint64_t n)
{
    u128 phase = (u128)piece->code_phase + tap + (u128)n * piece->code_step;

    return (size_t)((phase % ((u128)n_subchips << 48)) >> 48);
}

/* The replica is level times carrier, each entry of which stands for 1/256 turn. */
static void model_replica(const struct gnss_piece *piece, const int8_t *table, uint64_t tap, uint32_t n_subchips,
                          uint64_t n, int64_t replica[2])
{
    u128 phase = ((u128)piece->carrier_phase + (u128)n * piece->carrier_step) & UINT64_MAX;
    long double turn = (floorl((long double)(uint64_t)phase * 0x1p-56L) + 0.5L) / 256;
    int level = table[model_subchip(piece, tap, n_subchips, n)];

    replica[0] = level * lrintl(63 * cosl(2 * M_PIl * turn));
    replica[1] = level * lrintl(63 * sinl(2 * M_PIl * turn));
}

/* Adds a piece to the sums. */
static void model_piece(const struct gnss_correlate_args *a, const struct gnss_piece *piece, int64_t *sums)
{
    const struct gnss_satellite *satellite = &a->satellites[piece->satellite];
    size_t n_inputs = (size_t)a->n_ants * N_POLS;

    for (size_t tap = 0; tap < a->n_taps; tap++)
        for (uint32_t n = 0; n < piece->n_samples; n++) {
            int64_t r[2];
            model_replica(piece, a->codes + satellite->table, satellite->taps[tap], satellite->n_subchips, n, r);
            for (size_t input = 0; input < n_inputs; input++) {
                int64_t at = piece->first + a->offsets[piece->satellite * a->n_ants + input / N_POLS] + n;
                const int8_t *x = a->samples + 2 * (input * a->pitch_samples + (uint64_t)at);
                int64_t *to = &sums[((piece->integration * a->n_taps + tap) * n_inputs + input) * 2];
                to[0] += x[0] * r[0] + x[1] * r[1];
                to[1] += x[1] * r[0] - x[0] * r[1];
            }
        }
}

/* ---- Random work ------------------------------------------------------------------------------------------------- */

static const struct {
    uint32_t n_ants, n_taps, n_satellites, n_pieces, n_samples, max_offset; /* n_samples of a piece, at most */
} sizes[] = {{1, 3, 1, 1, 1, 40},     {1, 1, 1, 2, 1023, 40}, {2, 15, 3, 2, 1500, 40},  {3, 3, 4, 5, 2049, 40},
             {5, 2, 2, 3, 4100, 40},  {8, 5, 3, 2, 1024, 40}, {17, 3, 2, 2, 777, 40},   {64, 4, 2, 1, 300, 40},
             {1, 3, 2, 1, 40000, 40}, {9, 7, 2, 2, 1300, 40}, {8, 3, 5, 37, 1700, 400}, {4, 3, 9, 18, 900, 3000},
             {35, 2, 3, 4, 1001, 700}};

struct work {
    struct gnss_correlate_args args;
    int8_t *samples, *codes;
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    struct gnss_satellite *satellites;
    int32_t *offsets;
    struct gnss_piece *pieces;
    int64_t *sums;
    size_t n_samples, n_codes, n_sums; /* n_sums without the guards on both sides */
    uint32_t n_satellites, n_integrations;
};

static uint64_t random_phase(uint32_t n_subchips)
{
    return (uint64_t)((u128)random_u64() * ((u128)n_subchips << 48) >> 64);
}

static void choose_satellites(struct work *w)
{
    uint32_t at = (uint32_t)random_below(8);

    for (size_t s = 0; s < w->n_satellites; s++) {
        struct gnss_satellite *satellite = &w->satellites[s];
        satellite->table = at;
        satellite->n_subchips = lengths[random_below(ARRAY_LEN(lengths))];
        at += satellite->n_subchips;
        for (size_t tap = 0; tap < GNSS_MAX_TAPS; tap++) {
            double subchips = random_below(3) ? random_between(-2, 2) : random_between(-1, 1) * satellite->n_subchips;
            satellite->taps[tap] = random_below(5) ? gnss_code_phase(subchips, satellite->n_subchips) : 0;
        }
    }
    w->n_codes = at;
    w->codes = malloc(at);
    for (size_t i = 0; i < at; i++)
        w->codes[i] = (int8_t)((random_below(2) ? 1 : -1) * (1 + (int)random_below(GNSS_MAX_LEVEL)));
}

/* Pieces of any satellite and integration; the first begins and the last ends with the rows, at some offset. */
static void choose_pieces(struct work *w, uint32_t n_samples, int32_t max_offset)
{
    for (size_t i = 0; i < w->args.n_pieces; i++) {
        struct gnss_piece *piece = &w->pieces[i];
        uint32_t s = (uint32_t)random_below(w->n_satellites), n_subchips = w->satellites[s].n_subchips;
        uint64_t most = (uint64_t)least(n_subchips * (UINT64_C(1) << 38), (UINT64_C(1) << 50) - 1);
        *piece =
            (struct gnss_piece){.code_phase = random_below(4) ? random_phase(n_subchips)
                                                              : gnss_code_length(n_subchips) - 1 - random_below(2),
                                .code_step = random_below(4) ? random_u64() % most : most,
                                .carrier_phase = random_u64(),
                                .carrier_step = random_below(3) ? random_u64() : -(random_u64() >> random_below(64)),
                                .n_samples = i ? (uint32_t)random_below(n_samples + 1) : n_samples,
                                .satellite = s,
                                .integration = (uint32_t)random_below(w->n_integrations)};
        if (random_below(4) == 0) { /* phases come exactly to the table's end */
            piece->code_phase &= -(UINT64_C(1) << 47);
            piece->code_step = UINT64_C(1) << (46 + random_below(2));
        }
        size_t room = n_samples - piece->n_samples;
        piece->first = max_offset + (int64_t)(random_below(4) ? random_below(room + 1) : room);
    }
}

static void work_init(struct work *w, size_t size)
{
    uint32_t n_ants = sizes[size].n_ants, n_inputs = n_ants * N_POLS;
    int32_t max_offset = (int32_t)sizes[size].max_offset;
    uint64_t pitch = (sizes[size].n_samples + 2 * sizes[size].max_offset + random_below(17) + 7) / 8 * 8;

    *w = (struct work){.n_satellites = sizes[size].n_satellites, .n_integrations = 1 + (uint32_t)random_below(3)};
    w->args = (struct gnss_correlate_args){.pitch_samples = pitch,
                                           .n_pieces = sizes[size].n_pieces,
                                           .max_samples = sizes[size].n_samples + (uint32_t)random_below(2) * 5000,
                                           .n_ants = n_ants,
                                           .n_taps = sizes[size].n_taps,
                                           .max_spread = random_below(2) ? 2 * sizes[size].max_offset : 0};
    w->n_samples = pitch * n_inputs;
    w->n_sums = (size_t)w->n_integrations * sizes[size].n_taps * n_inputs * 2;
    w->samples = malloc(2 * w->n_samples);
    w->satellites = calloc(w->n_satellites, sizeof(*w->satellites));
    w->offsets = malloc(w->n_satellites * n_ants * sizeof(*w->offsets));
    w->pieces = malloc(w->args.n_pieces * sizeof(*w->pieces));
    w->sums = malloc((w->n_sums + 2) * sizeof(*w->sums));
    random_bytes(w->samples, 2 * w->n_samples);
    gnss_carrier_table(w->carrier);
    choose_satellites(w);
    for (size_t i = 0; i < w->n_satellites * n_ants; i++)
        w->offsets[i] = random_below(4) ? (int32_t)random_below(2 * max_offset + 1) - max_offset
                                        : (random_below(2) ? max_offset : -max_offset);
    choose_pieces(w, sizes[size].n_samples, max_offset);
    for (size_t i = 0; i < w->n_sums + 2; i++)
        w->sums[i] = (int64_t)(GUARD - i);
    w->args.samples = w->samples;
    w->args.carrier = w->carrier;
    w->args.codes = w->codes;
    w->args.satellites = w->satellites;
    w->args.offsets = w->offsets;
    w->args.pieces = w->pieces;
    w->args.sums = w->sums + 1;
}

static void work_fini(struct work *w)
{
    free(w->samples);
    free(w->codes);
    free(w->satellites);
    free(w->offsets);
    free(w->pieces);
    free(w->sums);
}

static int64_t *copy_of_sums(const struct work *w)
{
    int64_t *copy = malloc((w->n_sums + 2) * sizeof(*copy));

    memcpy(copy, w->sums, (w->n_sums + 2) * sizeof(*copy));
    return copy;
}

static void run_plain_c(const struct gnss_correlate_args *args)
{
    gnss_correlate_kernel.cpu(args, 1 + (int)random_below(3));
}

/* 'sums' have the guards, too. */
static void check_sums(const struct work *w, const int64_t *sums, const int64_t *expected)
{
    for (size_t i = 0; i < w->n_sums + 2; i++)
        ck_assert_msg(sums[i] == expected[i], "sum %zu of %zu: %lld, not %lld", i, w->n_sums, (long long)sums[i],
                      (long long)expected[i]);
}

/* ---- Phases ------------------------------------------------------------------------------------------------------ */

/* The sub-chip rate 'numerator' / 'denominator', in sub-chips a sample, is exact.  The phase is that of the kernels. */
static void check_rate(uint64_t numerator, uint64_t denominator, uint32_t n_subchips, uint32_t n_samples)
{
    uint64_t step = gnss_code_step((double)((long double)numerator / (long double)denominator));
    uint64_t start = random_u64() % n_subchips, phase = start << 48, length = gnss_code_length(n_subchips);
    uint64_t subchip = start, rest = 0; /* rest / denominator of a sub-chip more */

    for (uint32_t n = 0; n < n_samples; n++) {
        if (phase >> 48 != subchip) {
            double fraction = (double)rest / (double)denominator, off = (n + 1) * 0x1p-49;
            ck_assert_msg(fraction < off || fraction > 1 - off, "sample %u: sub-chip %u, not %u and %g", n,
                          (unsigned)(phase >> 48), (unsigned)subchip, fraction);
        }
        phase = gnss_code_add(phase, step, length);
        rest += numerator;
        uint64_t carry = rest >= denominator;
        rest -= carry ? denominator : 0;
        subchip += carry;
        subchip = subchip == n_subchips ? 0 : subchip;
    }
    ck_assert(phase == gnss_code_at(start << 48, step, n_samples, n_subchips));
}

/* E1 with the Doppler of a setting satellite at 26.75 MS/s; C/A with more than there is.  Rates are below one sub-chip
 * a sample, in units of 1 mHz. */
TEST(code_phase_1e8_samples, .end = 2)
{
    if (_i == 0)
        check_rate(UINT64_C(12276000000) - 39000 - random_below(1000), UINT64_C(26750000000), 49104, 100000000);
    else
        check_rate(UINT64_C(1023000000) + 650000 + random_below(1000), UINT64_C(3906250000), 1023, 100000000);
}

TEST(code_at)
{
    for (size_t i = 0; i < 200000; i++) {
        uint32_t n_subchips = lengths[random_below(ARRAY_LEN(lengths))];
        uint32_t n = (uint32_t)random_u64() >> (2 + random_below(30));
        u128 length = (u128)n_subchips << 48;
        uint64_t step = random_below(9) ? random_u64() >> 14 : (UINT64_C(1) << 50) - 1;
        uint64_t phase = random_below(9) ? random_phase(n_subchips) : (uint64_t)(length - 1);
        uint64_t other = random_below(9) ? random_phase(n_subchips) : (uint64_t)(length - (phase ? phase : length));
        ck_assert(gnss_code_at(phase, step, n, n_subchips) == (uint64_t)((phase + (u128)n * step) % length));
        ck_assert(gnss_code_add(phase, other, (uint64_t)length) == (uint64_t)(((u128)phase + other) % length));
    }
}

TEST(phases_of_numbers)
{
    ck_assert(gnss_code_phase(-0.5, 1023) == (UINT64_C(2045) << 47));
    ck_assert(gnss_code_phase(49104 + 0.25, 49104) == UINT64_C(1) << 46);
    ck_assert(gnss_code_phase(-1e-30, 1023) == 0 && gnss_code_phase(1023, 1023) == 0);
    ck_assert(gnss_code_phase(1023 - 0x1p-43, 1023) == gnss_code_length(1023) - 32);
    ck_assert(gnss_code_step(0) == 0 && gnss_code_step(3.5) == UINT64_C(7) << 47);
    ck_assert(gnss_carrier_turns(-0.25) == UINT64_C(3) << 62 && gnss_carrier_turns(7.5) == UINT64_C(1) << 63);
    ck_assert(gnss_carrier_turns(-0x1p-64) == UINT64_MAX && gnss_carrier_turns(-1e-30) == 0);
    ck_assert(gnss_carrier_turns(1 - 0x1p-53) == UINT64_MAX - 2047);
    for (size_t i = 0; i < 1000; i++) {
        double turns = random_between(-3, 3), subchips = random_between(-5000, 5000);
        long double exact = ((long double)turns - floorl((long double)turns)) * 0x1p64L;
        ck_assert(fabsl((long double)gnss_carrier_turns(turns) - exact) <= 1);
        exact = (long double)subchips - floorl((long double)subchips / 1023) * 1023;
        ck_assert(fabsl((long double)gnss_code_phase(subchips, 1023) * 0x1p-48L - exact) < 2e-13L);
    }
}

/* Each entry is near all phases that it stands for; errors of opposite entries cancel. */
TEST(carrier_table)
{
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    double complex sum = 0, mean = 0;
    double power = 0;

    gnss_carrier_table(carrier);
    for (size_t i = 0; i < GNSS_CARRIER_ENTRIES; i++) {
        double complex entry = carrier[2 * i] + I * (double)carrier[2 * i + 1];
        for (double within = 0; within <= 1; within += 0.125) {
            double angle = 2 * M_PI * ((double)i + within) / GNSS_CARRIER_ENTRIES;
            ck_assert(cabs(entry - GNSS_AMPLITUDE * cexp(I * angle)) < GNSS_CARRIER_ERROR);
        }
        /* the mean over the entry's phases */
        mean += entry * cexp(-2 * M_PI * I * ((double)i + 0.5) / 256) * sin(M_PI / 256) / (M_PI / 256);
        power += creal(entry * conj(entry));
        sum += entry;
    }
    ck_assert(sum == 0);
    double loss_db = -10 * log10(pow(cabs(mean), 2) / (256 * power));
    ck_assert_msg(loss_db >= 0 && loss_db < 0.001, "loss of %g dB", loss_db);
}

/* ---- The C version ----------------------------------------------------------------------------------------------- */

TEST(plain_c, .end = 3 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, (size_t)_i / 3);
    int64_t *expected = copy_of_sums(&w);
    for (size_t i = 0; i < w.args.n_pieces; i++)
        model_piece(&w.args, &w.pieces[i], expected + 1);
    run_plain_c(&w.args);
    check_sums(&w, w.sums, expected);
    free(expected);
    work_fini(&w);
}

#define N_CUTS 8

/* Cuts each piece at random places.  Returns N_CUTS pieces of each, to be freed. */
static struct gnss_piece *cut_pieces(const struct work *w)
{
    struct gnss_piece *pieces = malloc(N_CUTS * w->args.n_pieces * sizeof(*pieces));
    uint32_t n = 0;

    for (size_t i = 0; i < w->args.n_pieces; i++) {
        struct gnss_piece rest = w->pieces[i];
        for (size_t k = 0; k < N_CUTS; k++, n++) {
            pieces[n] = rest;
            pieces[n].n_samples = k < N_CUTS - 1 ? (uint32_t)random_below(rest.n_samples + 1) : rest.n_samples;
            gnss_piece_skip(&rest, w->satellites[rest.satellite].n_subchips, pieces[n].n_samples);
        }
        ck_assert_uint_eq(rest.n_samples, 0);
    }
    return pieces;
}

/* Correlates what cutting results in, in one launch or each by itself. */
TEST(plain_c_cut, .end = 2 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, (size_t)_i / 2);
    int64_t *cut = copy_of_sums(&w);
    struct gnss_piece *pieces = cut_pieces(&w);
    struct gnss_correlate_args args = w.args;
    uint32_t n = N_CUTS * w.args.n_pieces;
    run_plain_c(&w.args);
    args.sums = cut + 1;
    args.n_pieces = _i % 2 ? n : 1;
    for (uint32_t i = 0; i < n; i += args.n_pieces) {
        args.pieces = pieces + i;
        run_plain_c(&args);
    }
    check_sums(&w, cut, w.sums);
    free(pieces);
    free(cut);
    work_fini(&w);
}

/* The largest sums of one antenna: samples of -128, levels of 2, a carrier that stands still. */
static void largest_init(struct work *w, uint32_t n_samples)
{
    work_init(w, 0);
    free(w->samples);
    w->args.pitch_samples = (n_samples + 7) / 8 * 8;
    w->args.max_samples = n_samples;
    w->n_samples = w->args.pitch_samples * N_POLS;
    w->args.samples = w->samples = malloc(2 * w->n_samples);
    memset(w->samples, -128, 2 * w->n_samples);
    memset(w->codes, 2, w->n_codes);
    w->offsets[0] = 0;
    w->pieces[0].first = 0;
    w->pieces[0].n_samples = n_samples;
    w->pieces[0].carrier_step = 0;
    w->pieces[0].carrier_phase = UINT64_C(1) << 61; /* an eighth of a turn: 44 + 45 i */
}

static void check_largest(const struct work *w, const int64_t *sums, const int64_t *before)
{
    for (size_t tap = 0; tap < w->args.n_taps; tap++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            size_t at = 1 + ((w->pieces[0].integration * w->args.n_taps + tap) * N_POLS + pol) * 2;
            ck_assert_int_eq(sums[at] - before[at], INT64_C(-128) * 2 * (44 + 45) * w->pieces[0].n_samples);
            ck_assert_int_eq(sums[at + 1] - before[at + 1], INT64_C(-128) * 2 * (44 - 45) * w->pieces[0].n_samples);
        }
}

static const uint32_t largest_samples[] = {65000, 300001};

TEST(plain_c_largest, .end = ARRAY_LEN(largest_samples))
{
    struct work w;

    largest_init(&w, largest_samples[_i]);
    int64_t *before = copy_of_sums(&w);

    run_plain_c(&w.args);
    check_largest(&w, w.sums, before);
    free(before);
    work_fini(&w);
}

/* ---- CUDA -------------------------------------------------------------------------------------------------------- */

static const struct kernel *const variants[] = {&gnss_correlate_kernel, &gnss_correlate_mma_kernel};

static const size_t cut_sizes[] = {4, 5, 10};

/* Runs a CUDA variant on copies of the work, and downloads the sums with their guards to 'sums'.  The shape is that of
 * a device with as much shared memory or less. */
static void run_cuda(struct test_device *d, const struct kernel *variant, const struct work *w, int64_t *sums)
{
    struct kernel_constant constants[GNSS_CORRELATE_N_CONSTANTS];
    struct gnss_correlate_args args = w->args;
    size_t sums_bytes = (w->n_sums + 2) * sizeof(*sums);
    size_t shared_bytes = random_below(2) ? device_shared_bytes(d->device) : 99 << 10;
    int64_t *to = test_copy_in(d, w->sums, sums_bytes);

    gnss_correlate_constants(variant, &args, shared_bytes, constants);
    test_kernel(d, variant, constants, GNSS_CORRELATE_N_CONSTANTS);
    args.samples = test_copy_in(d, w->samples, 2 * w->n_samples);
    args.carrier = test_copy_in(d, w->carrier, sizeof(w->carrier));
    args.codes = test_copy_in(d, w->codes, w->n_codes);
    args.satellites = test_copy_in(d, w->satellites, w->n_satellites * sizeof(*w->satellites));
    args.offsets = test_copy_in(d, w->offsets, w->n_satellites * args.n_ants * sizeof(*w->offsets));
    args.pieces = test_copy_in(d, w->pieces, args.n_pieces * sizeof(*w->pieces));
    args.sums = to + 1;
    test_launch(d, gnss_correlate_grid(variant, &args, shared_bytes, 1 + (uint32_t)random_below(200)), &args);
    test_download(d, sums, to, sums_bytes);
}

TEST_ON_DEVICE(cuda, .end = 2 * ARRAY_LEN(sizes))
{
    struct work w;

    work_init(&w, (size_t)_i / 2);
    int64_t *sums = copy_of_sums(&w);
    run_cuda(d, variants[_i % 2], &w, sums);
    run_plain_c(&w.args);
    check_sums(&w, sums, w.sums);
    free(sums);
    work_fini(&w);
}

/* Pieces of a launch are at other times, and none is as long as all of them together. */
TEST_ON_DEVICE(cuda_cut, .end = 2 * ARRAY_LEN(cut_sizes))
{
    struct work w;

    work_init(&w, cut_sizes[_i / 2]);
    int64_t *sums = copy_of_sums(&w);
    struct gnss_piece *pieces = cut_pieces(&w), *whole = w.pieces;
    run_plain_c(&w.args);
    int64_t *expected = copy_of_sums(&w);
    memcpy(w.sums, sums, (w.n_sums + 2) * sizeof(*sums));
    w.pieces = pieces;
    w.args.n_pieces *= N_CUTS;
    w.args.max_samples = 0;
    for (uint32_t i = 0; i < w.args.n_pieces; i++)
        w.args.max_samples = pieces[i].n_samples > w.args.max_samples ? pieces[i].n_samples : w.args.max_samples;
    run_cuda(d, variants[_i % 2], &w, sums);
    check_sums(&w, sums, expected);
    w.pieces = whole;
    free(pieces);
    free(expected);
    free(sums);
    work_fini(&w);
}

TEST_ON_DEVICE(cuda_largest, .end = ARRAY_LEN(variants))
{
    struct work w;

    largest_init(&w, largest_samples[1]);
    int64_t *sums = copy_of_sums(&w);
    run_cuda(d, variants[_i], &w, sums);
    check_largest(&w, sums, w.sums);
    free(sums);
    work_fini(&w);
}

TEST(variant)
{
    ck_assert_ptr_eq(gnss_correlate_variant(1), &gnss_correlate_kernel);
    ck_assert_ptr_eq(gnss_correlate_variant(7), &gnss_correlate_kernel);
    ck_assert_ptr_eq(gnss_correlate_variant(8), &gnss_correlate_mma_kernel);
    ck_assert_ptr_eq(gnss_correlate_variant(64), &gnss_correlate_mma_kernel);
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

static double square_wave(double periods)
{
    return periods - floor(periods) < 0.5 ? 1 : -1;
}

/* The true signal of a code at a phase in chips: E1B where 'is_cboc'. */
static double true_signal(const int8_t *chips, uint32_t n_chips, bool is_cboc, double phase)
{
    double within = phase - floor(phase / n_chips) * n_chips;
    int chip = chips[(size_t)within % n_chips];

    return is_cboc ? chip * (sqrt(10.0 / 11) * square_wave(within) + sqrt(1.0 / 11) * square_wave(6 * within)) : chip;
}

static const struct {
    bool is_cboc;
    double rate_hz, frequency_hz, doppler_hz; /* the carrier in the baseband, without Doppler */
} signals[] = {{false, 26.75e6, 0, 0},      {false, 26.75e6, -3.1e6, -4321.5}, {false, 4e6, 1e6, 123456.7},
               {true, 26.75e6, 0, 3999.25}, {true, 26.75e6, 5.5e6, -4800},     {true, 53.5e6, -20e6, 0.125}};

/* A signal at a random phase, and the samples of it; one code period of 1 ms, or a quarter of one of 4 ms. */
struct received {
    int8_t chips[4092], table[GNSS_MAX_SUBCHIPS];
    uint32_t n_chips, n_samples;
    double chip, chips_a_sample, turn, turns_a_sample;
    double *replica; /* [sample][re, im] of the true signal */
    int8_t *samples; /* [pol][sample][re, im] */
};

static void receive(struct received *r, size_t which)
{
    bool is_cboc = signals[which].is_cboc;

    r->n_chips = is_cboc ? 4092 : 1023;
    r->n_samples = (uint32_t)(signals[which].rate_hz * 1e-3);
    r->chip = random_between(0, r->n_chips);
    r->chips_a_sample = 1.023e6 * (1 + signals[which].doppler_hz / 1575.42e6) / signals[which].rate_hz;
    r->turn = random_between(0, 1);
    r->turns_a_sample = (signals[which].frequency_hz + signals[which].doppler_hz) / signals[which].rate_hz;
    r->replica = malloc(2 * r->n_samples * sizeof(*r->replica));
    r->samples = calloc(2 * N_POLS, r->n_samples);
    for (size_t i = 0; i < r->n_chips; i++)
        r->chips[i] = random_below(2) ? 1 : -1;
    gnss_code_table(r->chips, r->n_chips, is_cboc ? GNSS_CBOC_PLUS : GNSS_PLAIN, r->table);
    for (uint32_t i = 0; i < r->n_samples; i++) {
        double angle = 2 * M_PI * (r->turn + i * r->turns_a_sample);
        double level = true_signal(r->chips, r->n_chips, is_cboc, r->chip + i * r->chips_a_sample);
        r->replica[2 * i] = level * cos(angle);
        r->replica[2 * i + 1] = level * sin(angle);
        for (size_t part = 0; part < 2; part++)
            r->samples[2 * i + part] = (int8_t)lrint(90 * r->replica[2 * i + part]);
    }
}

/* The ratio of power to noise that a replica gives, relative to 'ideal', in dB: |sum|^2 / (power of the replica). */
static double loss_of(double complex sum, double power, double complex ideal, double ideal_power)
{
    return 10 * log10(creal(ideal * conj(ideal)) / ideal_power / (creal(sum * conj(sum)) / power));
}

TEST(plain_c_loss, .end = ARRAY_LEN(signals))
{
    static struct received r;
    int32_t offset = 0;
    int64_t sums[N_POLS][2] = {{0}};
    int8_t carrier[2 * GNSS_CARRIER_ENTRIES];
    double complex ideal = 0;
    double power = 0, ideal_power = 0;

    receive(&r, (size_t)_i);
    uint32_t n_subchips = r.n_chips * (signals[_i].is_cboc ? 12 : 1);
    double subchips = n_subchips / r.n_chips;
    struct gnss_satellite satellite = {.n_subchips = n_subchips};
    struct gnss_piece piece = {.code_phase = gnss_code_phase(r.chip * subchips, n_subchips),
                               .code_step = gnss_code_step(r.chips_a_sample * subchips),
                               .carrier_phase = gnss_carrier_turns(r.turn),
                               .carrier_step = gnss_carrier_turns(r.turns_a_sample),
                               .n_samples = r.n_samples};
    gnss_carrier_table(carrier);
    run_plain_c(&(struct gnss_correlate_args){r.samples, r.n_samples, carrier, r.table, &satellite, &offset, &piece,
                                              sums[0], 1, r.n_samples, 1, 1});
    for (uint32_t i = 0; i < r.n_samples; i++) {
        double complex x = r.samples[2 * i] + I * (double)r.samples[2 * i + 1];
        double complex wanted = r.replica[2 * i] + I * r.replica[2 * i + 1];
        int64_t replica[2];
        model_replica(&piece, r.table, 0, n_subchips, i, replica);
        power += (double)(replica[0] * replica[0] + replica[1] * replica[1]);
        ideal += x * conj(wanted);
        ideal_power += creal(wanted * conj(wanted));
    }
    double complex sum = (double)sums[0][0] + I * (double)sums[0][1];
    double loss_db = loss_of(sum, power, ideal, ideal_power);
    ck_assert_msg(loss_db < 0.01, "signal %d: loss of %g dB", _i, loss_db);
    ck_assert_msg(fabs(carg(sum / ideal)) < GNSS_CARRIER_ERROR / GNSS_AMPLITUDE, "phase of %g", carg(sum / ideal));
    free(r.replica);
    free(r.samples);
}

SUITE(.timeout_s = 60, .start = random_start);
