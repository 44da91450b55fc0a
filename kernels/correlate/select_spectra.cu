/* select_spectra.cu - see select_spectra.h.
 *
 * A block copies a range of output spectra for its group of antennas, one antenna after the other.  The grid's third
 * axis is channels.  A thread looks up the wanted spectrum for one output spectrum, and then copies both polarisations
 * of each antenna.  So a warp's stores are contiguous within a heap.  A warp's loads are contiguous if consecutive
 * spectra are wanted.
 *
 * Constants: SAMPLE_BYTES (1, 2 or 4), ZERO (the byte that encodes zeros), N_SPECTRA, N_OUT_SPECTRA. */
#include "kernels/correlate/select_spectra.h"

#if SAMPLE_BYTES == 1
typedef uint8_t sample;
typedef uchar2 pair;
#define make_pair make_uchar2
#elif SAMPLE_BYTES == 2
typedef uint16_t sample;
typedef ushort2 pair;
#define make_pair make_ushort2
#else
typedef uint32_t sample;
typedef uint2 pair;
#define make_pair make_uint2
#endif

#define N_POLS 2

/* Finds spectrum 'from' of one antenna and channel.  Returns the spectrum's index in 'in'.  The index counts spectra,
 * each with both polarisations. */
static __device__ __forceinline__ size_t place(const struct select_spectra_args &a, uint32_t from, uint32_t ant,
                                               uint32_t chan)
{
    return (((size_t)(from / N_SPECTRA) * a.n_ants + ant) * a.n_chan + chan) * N_SPECTRA + from % N_SPECTRA;
}

/* Returns both polarisations of a spectrum of an antenna whose heap is present.  'from' is the spectrum before the
 * delay is subtracted. */
static __device__ __forceinline__ pair load(const struct select_spectra_args &a, uint32_t from, uint32_t ant,
                                            uint32_t chan)
{
    const sample *samples = (const sample *)a.in;

    if (!a.delays)
        return __ldg((const pair *)a.in + place(a, from, ant, chan));
    return make_pair(__ldg(samples + N_POLS * place(a, from - __ldg(a.delays + N_POLS * ant), ant, chan)),
                     __ldg(samples + N_POLS * place(a, from - __ldg(a.delays + N_POLS * ant + 1), ant, chan) + 1));
}

/* Writes output spectrum 'j' of the block's antennas. */
static __device__ __forceinline__ void move_spectrum(const struct select_spectra_args &a, uint32_t j, uint32_t chan)
{
    const sample zero = (sample)(ZERO * 0x01010101u);
    const uint32_t n_group = (a.n_ants + gridDim.y - 1) / gridDim.y, first_ant = blockIdx.y * n_group;
    const uint32_t end_ant = min(first_ant + n_group, a.n_ants), row = a.n_rows == 1 ? 0 : chan;
    uint32_t t = a.first_batch * N_SPECTRA + j, n = a.n_batches * N_SPECTRA;

    if (a.spectra) {
        const uint32_t *ends = a.ends + (size_t)row * a.ends_pitch + a.first_batch;
        uint32_t first = __ldg(ends);
        n = __ldg(ends + a.n_batches) - first;
        t = j < n ? __ldg(a.spectra + (size_t)row * a.row_pitch + first + j) : 0;
    }
    for (uint32_t ant = first_ant; ant < end_ant; ant++) {
        pair value = make_pair(zero, zero);
        if (j < n && (!a.present || __ldg(a.present + (size_t)(t / N_SPECTRA) * a.n_ants + ant)))
            value = load(a, a.n_history * N_SPECTRA + t, ant, chan);
        size_t heap = ((size_t)(j / N_OUT_SPECTRA) * a.n_ants + ant) * a.n_chan + chan;
        ((pair *)a.out)[heap * N_OUT_SPECTRA + j % N_OUT_SPECTRA] = value;
    }
}

extern "C" __global__ void select_spectra(const struct select_spectra_args args)
{
    uint32_t j = blockIdx.x * blockDim.x + threadIdx.x;

    if (j < args.n_out_batches * N_OUT_SPECTRA)
        for (uint32_t chan = blockIdx.z; chan < args.n_chan; chan += gridDim.z)
            move_spectrum(args, j, chan);
}
