/* beam_detect.cu - see beam_detect.h; the sums are those of beamform_tile.h.
 *
 * The two groups of a block are polarisations 0 and 1 of the same 8 beams.  So a lane has both polarisations of 8
 * consecutive spectra of a beam.  It adds their products in registers, and adds those to the powers whenever a window
 * ends.  Where one window has all 32 spectra of the warp, four lanes add up first.
 *
 * Constants: those of beamform.cu; PRODUCTS. */
#include "kernels/beamform/beam_detect.h"
#include "kernels/beamform/beamform_tile.h"

#define N_PRODUCTS (PRODUCTS == BEAM_STOKES ? BEAM_MAX_PRODUCTS : 1)
#define EVERY_LANE 0xffffffffu
#define NO_WINDOW  0xffffffffu

/* The window of a spectrum of the batch, or NO_WINDOW. */
static __device__ __forceinline__ uint32_t window_of(const struct beam_detect_args &args, uint32_t batch, uint32_t s)
{
    const uint64_t spectrum = args.form.first_spectrum + (uint64_t)batch * args.form.n_spectra + s;

    if (s >= args.form.n_spectra || spectrum < args.first)
        return NO_WINDOW;
    const uint64_t window = (spectrum - args.first) / args.window_spectra;
    return window < args.n_windows ? (uint32_t)window : NO_WINDOW;
}

static __device__ __forceinline__ void add_window(const struct beam_detect_args &args, uint32_t chan, uint32_t window,
                                                  uint32_t beam, const int64_t (&powers)[N_PRODUCTS])
{
    const uint32_t n_groups = args.form.n_chan / args.group_channels, group = chan / args.group_channels;
    const uint64_t row = ((uint64_t)window * (args.form.n_beams / 2) + beam) * N_PRODUCTS;

#pragma unroll
    for (int p = 0; p < N_PRODUCTS; p++)
        atomicAdd((unsigned long long *)args.powers + (row + p) * n_groups + group, (unsigned long long)powers[p]);
}

/* One part of 8 spectra of both polarisations: half 0 or 1, j of 4, re or im (0 or 2). */
static __device__ __forceinline__ int32_t part_of(const int (&sums)[2][4][4], int half, int j, int part, float factor,
                                                  uint32_t &clipped)
{
    const float sum = total_of(sums[0][j][part + half], sums[1][j][part + half]);

    return beam_detect_round(BEAM_TIMES(sum, factor), &clipped);
}

/* Detects the lane's 8 spectra of a beam, from 's' of the batch on.  Adds each window that ends among them, leaves the
 * last one in 'powers', and returns how many samples were clipped. */
static __device__ __forceinline__ uint32_t detect(const struct beam_detect_args &args, const struct place &place,
                                                  uint32_t beam, uint32_t s, const int (&sums)[TILE_GROUPS][2][4][4],
                                                  uint32_t &window, int64_t (&powers)[N_PRODUCTS])
{
    const struct slot *slots = shared_of_block()->slots + threadIdx.x % 32 / 4;
    const float factors[2] = {slots[0].factor, slots[GROUP_BEAMS].factor};
    uint32_t n_clipped = 0;

#pragma unroll
    for (int i = 0; i < LANE_SPECTRA; i++) {
        const uint32_t now = window_of(args, place.batch, s + i);
        uint32_t clipped[2] = {0, 0};
        int32_t parts[2][2];
        if (now != window) {
            if (window != NO_WINDOW)
                add_window(args, place.chan, window, beam, powers);
#pragma unroll
            for (int p = 0; p < N_PRODUCTS; p++)
                powers[p] = 0;
            window = now;
        }
        if (now == NO_WINDOW)
            continue;
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
#pragma unroll
            for (int part = 0; part < 2; part++)
                parts[pol][part] = part_of(sums[pol], i / 4, i % 4, 2 * part, factors[pol], clipped[pol]);
        beam_detect_add((enum beam_products)PRODUCTS, parts[0], parts[1], powers);
        n_clipped += clipped[0] + clipped[1];
    }
    return n_clipped;
}

/* The sum of the four lanes of a beam. */
template <typename T> static __device__ __forceinline__ T add_lanes(T value)
{
    value += __shfl_xor_sync(EVERY_LANE, value, 1);
    return value + __shfl_xor_sync(EVERY_LANE, value, 2);
}

/* Detects 32 spectra of a piece. */
static __device__ __forceinline__ void finish(const struct beam_detect_args &args, const struct place &place,
                                              uint32_t piece, const int (&sums)[TILE_GROUPS][2][4][4])
{
    const uint32_t begin = begin_of(piece), lane = threadIdx.x % 32, s = begin + lane % 4 * LANE_SPECTRA;
    const uint32_t row = shared_of_block()->slots[lane / 4].beam;
    const uint32_t first_window = window_of(args, place.batch, begin);
    const bool whole =
        first_window != NO_WINDOW && first_window == window_of(args, place.batch, begin + WARP_SPECTRA - 1);
    const bool has_beam = row != BEAMFORM_NO_BEAM;
    int64_t powers[N_PRODUCTS] = {};
    uint32_t n_clipped = 0, window = window_of(args, place.batch, s);

    if (has_beam)
        n_clipped = detect(args, place, row / 2, s, sums, window, powers);
    if (whole)
#pragma unroll
        for (int p = 0; p < N_PRODUCTS; p++)
            powers[p] = add_lanes(powers[p]);
    if (has_beam && window != NO_WINDOW && (!whole || lane % 4 == 0))
        add_window(args, place.chan, window, row / 2, powers);
    n_clipped = add_lanes(n_clipped);
    if (lane % 4 == 0 && n_clipped > 0)
        atomicAdd(args.form.saturated + row / 2, n_clipped);
}

extern "C" __global__ void __launch_bounds__(N_THREADS) beam_detect(const struct beam_detect_args args)
{
    const struct place place = find_place(args.form);
    struct voltages v;
    struct cursor cursor;

    begin_piece(args.form, place, 0, cursor);
    load_next(args.form, place, cursor, v);
    load_slots(args.form, place);
    for (uint32_t piece = 0; piece < place.n_pieces; piece++) {
        int sums[TILE_GROUPS][2][4][4] = {};
        sum_antennas(args.form, place, piece, cursor, v, sums);
        finish(args, place, piece, sums);
    }
}
