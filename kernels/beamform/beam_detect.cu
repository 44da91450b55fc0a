/* beam_detect.cu - see beam_detect.h.  beamform_tile.h computes the sums for few beams.  beamform_held.h or
 * beamform_whole.h computes the sums for many beams.
 *
 * A pair consists of two groups of slots, for polarisations 0 and 1 of the same 8 beams.  A warp has 32 spectra of each
 * beam.  Four lanes detect these spectra.  Each lane detects 8 consecutive spectra.  A lane rounds a sample to a word
 * of two 16-bit parts.
 *
 * The product of two parts is computed as two products.  The first part is multiplied by the low byte and by the high
 * byte of the second part.  So a sum of products is stored as two 32-bit sums (struct power).  Four lanes add their
 * sums.  No sum overflows.  A power adds up at most four products of parts for each of 32 spectra, and 128 * 32767 *
 * 255 < 2^31.  Only the powers of a window are 64-bit integers.
 *
 * A lane finds the windows of its spectra once for all beams.  If all 32 spectra of the warp are in one window, four
 * lanes add up their sums, and then one lane adds the result to the powers.
 *
 * Constants: the constants of beamform.cu, and PRODUCTS. */
/* number of groups in shared memory: the groups of one pair; with HOLDS, this turn's pair and the next turn's pair */
#define FRAGMENT_GROUPS (BLOCK_GROUPS > 2 ? 4 : 2)
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beamform_tile.h"
#if WHOLE
#include "kernels/beamform/beamform_whole.h"
#elif HOLDS
#include "kernels/beamform/beamform_held.h"
#endif

#define N_PRODUCTS    (PRODUCTS == BEAM_STOKES ? BEAM_MAX_PRODUCTS : 1)
#define N_SUMS        N_PRODUCTS /* the sums for Stokes parameters are |X|^2, |Y|^2, Re X Y*, Im X Y* */
#define BLOCKS_PER_SM (WHOLE ? 1 : 3)
#define SAMPLE_POLS   (WHOLE ? 1 : 2) /* polarisations that a lane detects together */
#define EVERY_LANE    0xffffffffu
#define TO_INTEGER    12582912.0f /* 1.5 * 2^23: adding this number rounds to an integer */

/* A lane has 8 spectra of a piece.  [begin, end) is the range of these spectra that are in windows. */
struct __align__(16) span {
    int16_t begin, end;
    uint32_t window; /* index of the window that contains 'begin' */
    int window_end;  /* end of 'window'; may be beyond the 8 spectra */
    int is_whole;    /* 1: all spectra of the warp are in this window */
};

/* Samples of the lane's 8 spectra: [pol][spectrum].  The real part is in the lower half of a word. */
struct samples {
    uint32_t words[SAMPLE_POLS][LANE_SPECTRA];
};

/* Index of the block's group of channels, and number of groups.  The block adds to the powers of its group. */
struct cell {
    uint32_t group, n_groups;
};

/* A sum in two parts.  The value of the sum is 256 * high + low. */
struct power {
    int low, high;
};

/* Finds the block's group of channels.  opaque() keeps the divisions out of the loops. */
static __device__ __forceinline__ struct cell find_cell(const struct beam_detect_args &args, const struct place &place)
{
    struct cell cell;

    cell.group = opaque(place.chan / args.group_channels);
    cell.n_groups = opaque(args.form.n_chan / args.group_channels);
    return cell;
}

/* Finds the windows of the lane's spectra.  The lane's first spectrum is spectrum 's' of the batch. */
static __device__ __forceinline__ struct span find_span(const struct beam_detect_args &args, uint32_t batch, uint32_t s)
{
    const int64_t from = (int64_t)(args.form.first_spectrum + (uint64_t)batch * args.form.n_spectra + s - args.first);
    const int64_t left = (int64_t)args.n_windows * args.window_spectra - from;
    struct span span;

    span.begin = (int16_t)max((int64_t)0, min((int64_t)LANE_SPECTRA, -from));
    span.end = s < args.form.n_spectra ? (int16_t)max((int64_t)0, min((int64_t)LANE_SPECTRA, left)) : 0;
    const uint64_t offset = from > 0 ? (uint64_t)from : 0;
    span.window = (uint32_t)(offset / args.window_spectra);
    span.window_end = span.begin + (int)(args.window_spectra - offset % args.window_spectra);
    const uint32_t window = __shfl_sync(EVERY_LANE, span.window, 0);
    const bool is_whole = span.begin == 0 && span.end == LANE_SPECTRA && span.window_end >= LANE_SPECTRA;
    span.is_whole = !__any_sync(EVERY_LANE, !is_whole || span.window != window);
    return span;
}

/* Rounds the lane's 8 spectra of a group.  Returns the number of clipped samples in the span. */
static __device__ __forceinline__ uint32_t round_parts(const struct span &span, const struct slot &slot,
                                                       float (&parts)[LANE_SPECTRA][2], uint32_t (&words)[LANE_SPECTRA])
{
    const float limit = BEAM_DETECT_LIMIT / BEAM_DETECT_STEPS * slot.inverse, factor = BEAM_DETECT_STEPS * slot.scale;
    uint32_t n_clipped = 0;

    if (!all_within(parts, limit))
        n_clipped = clip(parts, -limit, limit, 0.0f, ((1u << span.end) - 1) & ~0u << span.begin);
#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
        words[i] = __byte_perm(__float_as_uint(fmaf(parts[i][0], factor, TO_INTEGER)),
                               __float_as_uint(fmaf(parts[i][1], factor, TO_INTEGER)), 0x5410);
    return n_clipped;
}

/* Adds a.re b.re + a.im b.im to 'power'.  Words 'a' and 'b' have two 16-bit parts each. */
static __device__ __forceinline__ void add_products(uint32_t a, uint32_t b, struct power &power)
{
    const uint32_t bytes = __byte_perm(b, 0, 0x3120);

    power.low = dot_low(a, bytes, power.low);
    power.high = dot_high(a, bytes, power.high);
}

/* Adds the products of sample 'i'.  Adds 0 if 'is_in' is false. */
static __device__ __forceinline__ void add_sample(const struct samples &samples, int i, bool is_in,
                                                  struct power (&powers)[N_SUMS])
{
    const uint32_t x = is_in ? samples.words[0][i] : 0, y = is_in ? samples.words[SAMPLE_POLS - 1][i] : 0;

    if (WHOLE) {
        add_products(x, x, powers[0]);
        return;
    }
    if (PRODUCTS != BEAM_POWER_1)
        add_products(x, x, powers[0]);
    if (PRODUCTS != BEAM_POWER_0)
        add_products(y, y, powers[N_SUMS > 1]);
    if (N_SUMS > 1) {
        add_products(x, y, powers[2 % N_SUMS]);
        add_products(__byte_perm(x, 0u - x, 0x5432), y, powers[3 % N_SUMS]); /* (Im X, -Re X) */
    }
}

/* Returns the sum over the four lanes of a beam. */
static __device__ __forceinline__ int add_lanes(int value)
{
    value += __shfl_xor_sync(EVERY_LANE, value, 1);
    return value + __shfl_xor_sync(EVERY_LANE, value, 2);
}

static __device__ __forceinline__ int64_t value_of(const struct power &power)
{
    return (int64_t)power.high * 256 + power.low;
}

/* Adds a beam's sums to the powers of a window in memory. */
static __device__ __forceinline__ void add_window(const struct beam_detect_args &args, const struct cell &cell,
                                                  uint32_t window, uint32_t beam, const struct power (&powers)[N_SUMS])
{
    const uint64_t row = ((uint64_t)window * (args.form.n_beams / 2) + beam) * N_PRODUCTS;
    int64_t values[N_PRODUCTS];

#pragma unroll
    for (int p = 0; p < N_PRODUCTS; p++)
        values[p] = value_of(powers[p]);
    if (N_PRODUCTS > 1) {
        const int64_t xx = values[0], yy = values[1 % N_PRODUCTS];
        values[0] = xx + yy;
        values[1 % N_PRODUCTS] = xx - yy;
        values[2 % N_PRODUCTS] *= 2;
        values[3 % N_PRODUCTS] *= 2;
    }
#pragma unroll
    for (int p = 0; p < N_PRODUCTS; p++)
        atomicAdd((unsigned long long *)args.powers + (row + p) * cell.n_groups + cell.group,
                  (unsigned long long)values[p]);
}

/* Detects the lane's spectra of a beam.  The spectra may be in different windows or in none. */
static __device__ __forceinline__ void detect_windows(const struct beam_detect_args &args, const struct cell &cell,
                                                      const struct span &span, uint32_t beam,
                                                      const struct samples &samples)
{
    int begin = span.begin, end = span.window_end;

#pragma unroll 1
    for (uint32_t window = span.window; begin < span.end; window++) {
        struct power powers[N_SUMS] = {};
#pragma unroll
        for (int i = 0; i < LANE_SPECTRA; i++)
            add_sample(samples, i, i >= begin && i < min(end, (int)span.end), powers);
        add_window(args, cell, window, beam, powers);
        begin = end;
        end += (int)args.window_spectra;
    }
}

/* Detects the lane's spectra of a beam.  All spectra of the warp are in one window. */
static __device__ __forceinline__ void detect_whole(const struct beam_detect_args &args, const struct cell &cell,
                                                    const struct span &span, uint32_t row,
                                                    const struct samples &samples)
{
    struct power powers[N_SUMS] = {};

#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++)
        add_sample(samples, i, true, powers);
#pragma unroll
    for (int p = 0; p < N_SUMS; p++) {
        powers[p].low = add_lanes(powers[p].low);
        powers[p].high = add_lanes(powers[p].high);
    }
    if (row != BEAMFORM_NO_BEAM && threadIdx.x % 4 == 0)
        add_window(args, cell, span.window, row / 2, powers);
}

/* Adds up the numbers of clipped samples in the four lanes of a beam, and adds the sum to the beam's count.  'row' is
 * the index of the beam's polarisation in 'beams', or BEAMFORM_NO_BEAM. */
static __device__ __forceinline__ void count_clipped(const struct beam_detect_args &args, uint32_t row,
                                                     uint32_t n_clipped)
{
    if (!__any_sync(EVERY_LANE, n_clipped > 0))
        return;
    n_clipped = (uint32_t)add_lanes((int)n_clipped);
    if (row != BEAMFORM_NO_BEAM && threadIdx.x % 4 == 0 && n_clipped > 0)
        atomicAdd(args.form.saturated + row / 2, n_clipped);
}

/* Detects 32 spectra.  'row' is as in count_clipped(). */
static __device__ __forceinline__ void detect(const struct beam_detect_args &args, const struct cell &cell,
                                              const struct span &span, uint32_t row, const struct samples &samples)
{
    if (span.is_whole)
        detect_whole(args, cell, span, row, samples);
    else if (row != BEAMFORM_NO_BEAM)
        detect_windows(args, cell, span, row / 2, samples);
}

#if WHOLE
/* Returns the spans of a buffer's pieces in shared memory: [piece][lane % 4]. */
static __device__ __forceinline__ struct span (*spans_of(uint32_t buffer))[4]
{
    return (struct span(*)[4])(shared_of_block() + 1) + buffer * WHOLE_PIECES;
}

/* Finds the spans of the warp's pieces. */
static __device__ __forceinline__ void find_spans(const struct beam_detect_args &args, const struct place &place,
                                                  uint32_t buffer)
{
    const uint32_t lane_first = threadIdx.x % 4 * LANE_SPECTRA;

#pragma unroll 1
    for (uint32_t piece = threadIdx.x / 32 % WARPGROUP_WARPS; piece < place.n_pieces; piece += WARPGROUP_WARPS) {
        const struct span span = find_span(args, place.batch, place.first + piece * WARP_SPECTRA + lane_first);
        if (threadIdx.x % 32 < 4)
            spans_of(buffer)[piece][threadIdx.x % 4] = span;
    }
}

/* Detects the beams of a unit.  All warps of a warpgroup must take part in wgmma.  So if the warp has no group, it
 * multiplies but adds nothing to powers.  The polarisations of a beam are in different groups, and both groups
 * add to the beam's powers. */
static __device__ __forceinline__ void detect_unit(const struct beam_detect_args &args, const struct place &place,
                                                   uint32_t buffer, const struct unit &unit, const struct rows &rows)
{
    const struct slot slot = make_slot(args.form, place, unit);
    const struct cell cell = find_cell(args, place);
    const uint32_t row = unit.is_there ? slot.beam : BEAMFORM_NO_BEAM;
    uint32_t n_clipped = 0;

    int sums[4][4];
    begin_slice(rows, columns_of(unit, unit.begin), 0, sums);
    begin_low(rows, columns_of(unit, unit.begin), sums);
    wait_products(sums);
#pragma unroll 1
    for (uint32_t piece = unit.begin; piece < unit.end; piece++) {
        /* the products of the last piece are computed twice, because ptxas serialises products in branches */
        const shared_address next = columns_of(unit, min(piece + 1, unit.end - 1));
        const struct span span = spans_of(buffer)[piece][threadIdx.x % 4];
        struct samples samples;
        float parts[LANE_SPECTRA][2];
        convert_sums(slot, sums, parts);
        begin_slice(rows, next, 0, sums);
        n_clipped += round_parts(span, slot, parts, samples.words[0]);
#pragma unroll
        for (int i = 0; i < LANE_SPECTRA; i++)
            samples.words[0][i] = opaque(samples.words[0][i]); /* rounded during the products of the high slice */
        begin_low(rows, next, sums);
        if (PRODUCTS == BEAM_TOTAL || PRODUCTS == (unit.pol ? BEAM_POWER_1 : BEAM_POWER_0))
            detect(args, cell, span, row, samples);
        wait_products(sums);
    }
    count_clipped(args, row, n_clipped);
}

static __device__ __forceinline__ void detect_all(const struct beam_detect_args &args)
{
    process_items(
        args.form, [&](const struct place &place, uint32_t buffer) { find_spans(args, place, buffer); },
        [&](const struct place &place, uint32_t buffer, const struct unit &unit, const struct rows &rows) {
            detect_unit(args, place, buffer, unit, rows);
        });
}
#else
/* Returns the lane's slot in a group of the block. */
static __device__ __forceinline__ const struct slot &slot_of(uint32_t group)
{
    return shared_of_block()->slots[group * GROUP_BEAMS + threadIdx.x % 32 / 4];
}

/* Rounds a group's sums.  Returns the number of clipped samples in the span. */
static __device__ __forceinline__ uint32_t round_group(const struct span &span, uint32_t group,
                                                       const int (&sums)[2][4][4], uint32_t (&words)[LANE_SPECTRA])
{
    float parts[LANE_SPECTRA][2];

    make_parts(slot_of(group), sums, parts);
    return round_parts(span, slot_of(group), parts, words);
}

#if HOLDS
/* Sums and rounds polarisation POL of a turn's pair.  'group' is the pair's first group.  Returns the number of clipped
 * samples in the span. */
template <int POL>
static __device__ __forceinline__ uint32_t form(const struct held &held, const struct span &span, uint32_t group,
                                                uint32_t turn, struct samples &samples)
{
    int sums[2][4][4];

    begin_sums(sums);
    sum_pol<POL>(held, turn % 2 * TILE_GROUPS + POL, sums);
    return round_group(span, group + POL, sums, samples.words[POL]);
}

/* Detects the block's pairs, one pair per turn. */
static __device__ __forceinline__ void detect_all(const struct beam_detect_args &args)
{
    const struct place place = find_place(args.form);
    const uint32_t n_groups = min(args.form.n_slots / GROUP_BEAMS - place.group, (uint32_t)BLOCK_GROUPS);
    const struct cell cell = find_cell(args, place);
    uint32_t turn = 0;

    load_slots(args.form, place);
    copy_groups<TILE_GROUPS>(args.form, place, 0, 0);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const struct span span = find_span(args, place.batch, begin_of(piece) + threadIdx.x % 4 * LANE_SPECTRA);
        struct held held;
        hold(args.form, place, piece, held);
#pragma unroll 1
        for (uint32_t group = 0; group < n_groups; group += TILE_GROUPS, turn++) {
            struct samples samples;
            copies_wait_all();
            __syncthreads(); /* The copies have arrived, and all warps have finished the previous turn. */
            copy_groups<TILE_GROUPS>(args.form, place, group + TILE_GROUPS < n_groups ? group + TILE_GROUPS : 0,
                                     (turn + 1) % 2 * TILE_GROUPS);
            uint32_t n_clipped = form<0>(held, span, group, turn, samples);
            n_clipped += form<1>(held, span, group, turn, samples);
            detect(args, cell, span, slot_of(group).beam, samples);
            count_clipped(args, slot_of(group).beam, n_clipped);
        }
    }
    copies_wait_all();
}
#else
static __device__ __forceinline__ void detect_all(const struct beam_detect_args &args)
{
    const struct place place = find_place(args.form);
    const struct cell cell = find_cell(args, place);
    struct voltages v;
    struct cursor cursor;

    begin_block(args.form, place, cursor, v);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        const struct span span = find_span(args, place.batch, begin_of(piece) + threadIdx.x % 4 * LANE_SPECTRA);
        int sums[TILE_GROUPS][2][4][4];
        struct samples samples;
        uint32_t n_clipped = 0;
#pragma unroll
        for (int pol = 0; pol < TILE_GROUPS; pol++)
            begin_sums(sums[pol]);
        sum_antennas(args.form, place, piece, cursor, v, sums);
#pragma unroll
        for (int pol = 0; pol < TILE_GROUPS; pol++)
            n_clipped += round_group(span, (uint32_t)pol, sums[pol], samples.words[pol]);
        detect(args, cell, span, slot_of(0).beam, samples);
        count_clipped(args, slot_of(0).beam, n_clipped);
    }
}
#endif
#endif

extern "C" __global__ void __launch_bounds__(N_THREADS, BLOCKS_PER_SM) beam_detect(const struct beam_detect_args args)
{
    detect_all(args);
}
