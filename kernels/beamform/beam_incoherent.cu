/* beam_incoherent.cu - see beam_incoherent.h.
 *
 * A lane processes 4 consecutive spectra of a channel of one batch, both polarisations.  These spectra are 16 bytes
 * for each antenna, or 8 bytes if voltages have 4 bits.  The lanes of a block read consecutive memory, even where the
 * block continues in the next channel.  A lane first sums each spectrum over the antennas in registers.  Then, for
 * each window, the lane adds up its spectra that are in the window.  The lanes of a warp with the same window and
 * channel add their sums, and the first of these lanes gets the total. 4-bit voltages are widened to 16 times their
 * value (beamform_load.h), so the sums of products are divided by 256.
 *
 * Constants: SAMPLE_BYTES, bytes of a complex sample; FLIP, the byte that encodes zeros; PRODUCTS; N_THREADS. */
#include "kernels/beamform/beam_incoherent.h"
#include "kernels/beamform/beamform_load.h"

#define N_PRODUCTS   (PRODUCTS == BEAM_STOKES ? BEAM_MAX_PRODUCTS : 1)
#define LANE_SPECTRA 4
#define UNROLL       4
#define POWER_SHIFT  (2 * VOLTAGE_SHIFT)
#define EVERY_LANE   0xffffffffu

/* Adds the weighted products of one spectrum of an antenna to the sums. */
static __device__ __forceinline__ void add(uint32_t v, const int4 weights, struct beam_incoherent_sums &sums)
{
    if (PRODUCTS != BEAM_POWER_1)
        sums.x += (int64_t)weights.x * __dp4a((int)v, (int)(v & 0xffffu), 0);
    if (PRODUCTS != BEAM_POWER_0)
        sums.y += (int64_t)weights.y * __dp4a((int)v, (int)(v & 0xffff0000u), 0);
    if (PRODUCTS != BEAM_STOKES)
        return;
    sums.re += (int64_t)weights.z * __dp4a((int)v, (int)(v >> 16), 0);
    sums.im += (int64_t)weights.z * (__dp4a((int)v, (int)(v >> 8 & 0xff00u), 0) - __dp4a((int)v, (int)(v >> 24), 0));
}

/* Sums each of the lane's spectra over the antennas.  'in' points to the lane's first spectrum of antenna 0. */
static __device__ __forceinline__ void sum_antennas(const struct beam_incoherent_args &args, const uint8_t *in,
                                                    struct beam_incoherent_sums (&sums)[LANE_SPECTRA])
{
    const uint64_t ant_bytes = (uint64_t)args.n_chan * args.n_spectra * 2 * SAMPLE_BYTES;
    const int4 *weights = (const int4 *)args.weights;

    for (uint32_t first = 0; first < args.n_ants; first += UNROLL) {
        uint32_t words[UNROLL][LANE_SPECTRA];
#pragma unroll
        for (uint32_t i = 0; i < UNROLL; i++) /* all loads begin before the first value is used */
            load_spectra(in + min(first + i, args.n_ants - 1) * ant_bytes, words[i]);
#pragma unroll
        for (uint32_t i = 0; i < UNROLL; i++) {
            const int4 w = first + i < args.n_ants ? weights[first + i] : make_int4(0, 0, 0, 0);
#pragma unroll
            for (int s = 0; s < LANE_SPECTRA; s++)
                add(words[i][s], w, sums[s]);
        }
    }
}

static __device__ __forceinline__ void add_window(const struct beam_incoherent_args &args, uint32_t window,
                                                  uint32_t chan, const int64_t (&powers)[N_PRODUCTS])
{
    const uint32_t n_groups = args.n_chan / args.group_channels, group = chan / args.group_channels;

#pragma unroll
    for (int p = 0; p < N_PRODUCTS; p++)
        atomicAdd((unsigned long long *)args.powers + ((uint64_t)window * N_PRODUCTS + p) * n_groups + group,
                  (unsigned long long)powers[p]);
}

/* Sums the lane's spectra, which begin with spectrum 'first' of the batch, in windows.  Adds the powers of each window
 * that ends among these spectra to memory.  Leaves the powers of the last window in 'powers'.  Returns the last
 * window. */
static __device__ __forceinline__ uint32_t add_spectra(const struct beam_incoherent_args &args, uint32_t batch,
                                                       uint32_t chan, uint32_t first,
                                                       const struct beam_incoherent_sums (&sums)[LANE_SPECTRA],
                                                       int64_t (&powers)[N_PRODUCTS])
{
    uint32_t window = BEAM_INCOHERENT_NO_WINDOW;

#pragma unroll
    for (int s = 0; s < LANE_SPECTRA; s++) {
        const uint32_t now = beam_incoherent_window(&args, batch, first + s);
        int64_t one[N_PRODUCTS];
        if (now != window && window != BEAM_INCOHERENT_NO_WINDOW)
            add_window(args, window, chan, powers);
        beam_incoherent_products((enum beam_products)PRODUCTS, &sums[s], one);
#pragma unroll
        for (int p = 0; p < N_PRODUCTS; p++)
            powers[p] = (now == window ? powers[p] : 0) + (one[p] >> POWER_SHIFT);
        window = now;
    }
    return window;
}

/* Adds up the powers of neighbouring lanes of a warp that have the same window and channel.  The first of these lanes
 * gets the sum.  The function returns true in this first lane. */
static __device__ __forceinline__ bool add_lanes(uint32_t window, uint32_t chan, int64_t (&powers)[N_PRODUCTS])
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t key = (uint64_t)chan << 32 | window, before = __shfl_sync(EVERY_LANE, key, (lane + 31) % 32);

#pragma unroll
    for (uint32_t n = 1; n < 32; n *= 2) {
        const bool same = __shfl_down_sync(EVERY_LANE, key, n) == key && lane + n < 32;
#pragma unroll
        for (int p = 0; p < N_PRODUCTS; p++) {
            const int64_t others = __shfl_down_sync(EVERY_LANE, powers[p], n);
            powers[p] += same ? others : 0;
        }
    }
    return lane == 0 || before != key;
}

extern "C" __global__ void __launch_bounds__(N_THREADS) beam_incoherent(const struct beam_incoherent_args args)
{
    const uint32_t n_all = args.n_chan * args.n_spectra; /* spectra of one antenna and batch, in all channels */
    const uint32_t n_blocks = (n_all + N_THREADS * LANE_SPECTRA - 1) / (N_THREADS * LANE_SPECTRA);
    const uint32_t batch = args.first_batch + blockIdx.x / n_blocks;
    const uint32_t at = (blockIdx.x % n_blocks * N_THREADS + threadIdx.x) * LANE_SPECTRA;
    const uint32_t chan = at / args.n_spectra, first = at % args.n_spectra;
    const uint64_t sample = (uint64_t)batch * args.n_ants * n_all + at;
    const uint8_t *in = (const uint8_t *)args.voltages + sample * 2 * SAMPLE_BYTES;
    struct beam_incoherent_sums sums[LANE_SPECTRA] = {};
    int64_t powers[N_PRODUCTS] = {};
    uint32_t window = BEAM_INCOHERENT_NO_WINDOW;

    if (at < n_all) {
        sum_antennas(args, in, sums);
        window = add_spectra(args, batch, chan, first, sums, powers);
    }
    if (add_lanes(window, chan, powers) && window != BEAM_INCOHERENT_NO_WINDOW)
        add_window(args, window, chan, powers);
}
