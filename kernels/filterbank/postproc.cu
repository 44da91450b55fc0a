/* postproc.cu - see postproc.h.
 *
 * Let n_fft = n_chan / unzip.  A slot s (0 < s < n_fft / 2) has the channels k = p n_fft + s for p < unzip, and the
 * channels n_chan - k.  These channels come from the values at s and at n_fft - s of the unzipped transforms.  Slot 0
 * has the channels p n_fft and p n_fft + n_fft / 2, from the values at 0 and at n_fft / 2.  So every slot has 2 unzip
 * channels, and each channel belongs to one slot.
 *
 * A block has a tile of TILE_SLOTS neighbouring slots of TILE_SPECTRA spectra, and transposes the tile in shared
 * memory.  First the block finishes the transform, with neighbouring threads in neighbouring slots.  Then the block
 * does steps 2 and 3, with neighbouring threads in neighbouring pairs of spectra.  The two spectra of a pair use the
 * same words of dither bits.  The block stores runs of TILE_SPECTRA spectra: whole sectors of 32 bytes.
 *
 * With a narrow band (N_BINS) the slots have the same channels, but each channel comes from one bin.
 *
 * Constants: N_CHAN, N_BINS, UNZIP, OUT_BITS, SPECTRA_PER_HEAP, DITHER, TILE_SLOTS, TILE_SPECTRA (16 or 32), N_THREADS
 * (a multiple of both). */
#include "kernels/filterbank/postproc.h"
#include "kernels/filterbank/fft_registers.h"
#include "kernels/filterbank/quantise.h"

#define N_FFT      (N_CHAN / UNZIP)
/* number of channels of a slot: first the channels i N_FFT + s, then the channels i N_FFT + mirrored_of(s) */
#define N_MINE     (2 * UNZIP)
/* number of channels of a block: N_MINE runs of consecutive channels */
#define TILE_CHANS (N_MINE * TILE_SLOTS)
#define PITCH      (TILE_SPECTRA + 1)    /* odd number, so that consecutive channels are in different banks */
/* number of blocks per multiprocessor; with more blocks, registers would be spilled */
#define MIN_BLOCKS (UNZIP == 1 ? 4 : UNZIP == 2 ? 3 : 2)
#define PI         3.14159265358979f

extern __shared__ float4 shared_memory[]; /* tile: float2 [pol][TILE_CHANS][PITCH] */

static __device__ __forceinline__ float2 conjugate(float2 a)
{
    return make_float2(a.x, -a.y);
}

static __device__ __forceinline__ uint32_t mirrored_of(uint32_t s)
{
    return s == 0 ? N_FFT / 2 : N_FFT - s;
}

/* Returns channel i of slot s, i < N_MINE. */
static __device__ __forceinline__ uint32_t channel_of(uint32_t s, uint32_t i)
{
    return i < UNZIP ? i * N_FFT + s : (N_MINE - 1 - i) * N_FFT + mirrored_of(s);
}

/* ---- Step 1: the transform --------------------------------------------------------------------------------------- */

/* Returns cos(pi i / 8), 0 <= i <= 8. */
static __device__ __forceinline__ constexpr float eighth_cosine(int i)
{
    return i > 4    ? -eighth_cosine(8 - i)
           : i == 0 ? 1.0f
           : i == 1 ? 0.92387953251128676f
           : i == 2 ? 0.70710678118654752f
           : i == 3 ? 0.38268343236508977f
                    : 0.0f;
}

/* Returns e^{-j pi i / 8}, 0 <= i <= 8. */
static __device__ __forceinline__ float2 eighth(int i)
{
    return make_float2(eighth_cosine(i), -eighth_cosine(i > 4 ? i - 4 : 4 - i));
}

/* Returns t / 2j. */
static __device__ __forceinline__ float2 real_turn(float2 t)
{
    return make_float2(0.5f * t.y, -0.5f * t.x);
}

struct slot {
    uint32_t s, mirrored; /* positions of the slot's values in the unzipped transforms */
    float2 unzip[UNZIP];  /* [r]: e^{-2 pi j r s / n_chan} */
    float2 real[UNZIP];   /* [p]: e^{-j pi k / n_chan} / 2j */
};

static __device__ __forceinline__ struct slot make_slot(uint32_t s)
{
    struct slot slot;
    float2 turn; /* e^{-j pi s / n_chan} */

    sincospif((float)s / N_CHAN, &turn.y, &turn.x);
    turn.y = -turn.y;
    slot.s = s;
    slot.mirrored = mirrored_of(s);
    slot.unzip[0] = make_float2(1, 0);
#pragma unroll
    for (int r = 1; r < UNZIP; r++)
        slot.unzip[r] =
            r == 1 ? complex_multiply(turn, turn) : complex_multiply(slot.unzip[r - 1], slot.unzip[1 % UNZIP]);
#pragma unroll
    for (int p = 0; p < UNZIP; p++)
        slot.real[p] = real_turn(complex_multiply(turn, eighth(p * (8 / UNZIP))));
    return slot;
}

/* Computes v_p = sum over r of v_r e^{-2 pi j r p / UNZIP}. */
static __device__ __forceinline__ void transform(float2 (&v)[UNZIP])
{
    const int one = 1 % UNZIP, two = 2 % UNZIP, three = 3 % UNZIP;
    float2 a = v[0], b = v[one], c = v[two], d = v[three];

    if (UNZIP == 2) {
        v[0] = make_float2(a.x + b.x, a.y + b.y);
        v[one] = make_float2(a.x - b.x, a.y - b.y);
    } else if (UNZIP == 4) {
        v[0] = make_float2((a.x + c.x) + (b.x + d.x), (a.y + c.y) + (b.y + d.y));
        v[two] = make_float2((a.x + c.x) - (b.x + d.x), (a.y + c.y) - (b.y + d.y));
        v[one] = make_float2((a.x - c.x) + (b.y - d.y), (a.y - c.y) - (b.x - d.x));
        v[three] = make_float2((a.x - c.x) - (b.y - d.y), (a.y - c.y) + (b.x - d.x));
    }
}

/* Returns X_k = U + V from Z_k, conj Z_-k and e^{-j pi k / n_chan} / 2j.  If 'other' is not NULL, also writes conj(U -
 * V) = X_{n_chan - k}. */
static __device__ __forceinline__ float2 real_transform(float2 z, float2 mirrored, float2 turn, float2 *other)
{
    float2 u = make_float2(z.x + mirrored.x, z.y + mirrored.y);
    float2 v = complex_multiply(make_float2(z.x - mirrored.x, z.y - mirrored.y), turn);

    if (other)
        *other = make_float2(fmaf(0.5f, u.x, -v.x), fmaf(-0.5f, u.y, v.y));
    return make_float2(fmaf(0.5f, u.x, v.x), fmaf(0.5f, u.y, v.y));
}

/* Computes the channels of a slot.  'fft' belongs to one spectrum and one polarisation. */
static __device__ __forceinline__ void finish_transform(const struct slot &slot, const float2 *fft, float2 (&x)[N_MINE])
{
    /* After the transforms, 'a' contains Z_k of the slot's first UNZIP channels.  'b' contains conj Z_-k of the same
     * channels. */
    float2 a[UNZIP], b[UNZIP];

#pragma unroll
    for (int r = 0; r < UNZIP; r++) {
        a[r] = __ldcs(fft + r * N_FFT + slot.s);
        b[r] = conjugate(__ldcs(fft + r * N_FFT + slot.mirrored));
    }
#pragma unroll
    for (int r = 1; r < UNZIP; r++) {
        a[r] = complex_multiply(a[r], slot.unzip[r]);
        b[r] = complex_multiply(b[r], slot.s == 0 ? eighth(r * (8 / UNZIP)) : slot.unzip[r]);
    }
    transform(a);
    transform(b);
    if (slot.s != 0) {
#pragma unroll
        for (int p = 0; p < UNZIP; p++)
            x[p] = real_transform(a[p], b[p], slot.real[p], &x[UNZIP + p]);
    } else { /* in slot 0, the values at 0 mirror each other, and the values at n_fft / 2 mirror each other */
#pragma unroll
        for (int p = 0; p < UNZIP; p++) {
            float2 turn = real_turn(eighth((UNZIP - 1 - p) * (8 / UNZIP) + 4 / UNZIP));
            x[p] = real_transform(a[p], conjugate(a[(UNZIP - p) % UNZIP]), slot.real[p], nullptr);
            x[UNZIP + p] = real_transform(conjugate(b[p]), b[UNZIP - 1 - p], turn, nullptr);
        }
    }
}

/* Copies the slot's channels of one spectrum from the bins of a narrow band. */
static __device__ __forceinline__ void take_bins(uint32_t s, const float2 *fft, float2 (&x)[N_MINE])
{
#pragma unroll
    for (int i = 0; i < N_MINE; i++)
        x[i] = __ldcs(fft + ((channel_of(s, i) - N_CHAN / 2) & (N_BINS - 1)));
}

/* Returns the position of spectrum s in the tile.  The even spectra of all pairs come first, then the odd spectra. */
static __device__ __forceinline__ uint32_t position_of(uint32_t s)
{
    return s / 2 + s % 2 * (TILE_SPECTRA / 2);
}

/* Fills tile[pol][channel][position]. */
static __device__ __forceinline__ void fill_tile(const float2 *fft, uint32_t n_spectra, float2 *tile)
{
    const int n_rows = N_THREADS / TILE_SLOTS;
    uint32_t column = threadIdx.x % TILE_SLOTS;
    const struct slot slot = make_slot(blockIdx.x * TILE_SLOTS + column);

#pragma unroll(4 / UNZIP)
    for (uint32_t row = threadIdx.x / TILE_SLOTS; row < 2 * TILE_SPECTRA; row += n_rows) {
        uint32_t pol = row / TILE_SPECTRA, s = row % TILE_SPECTRA;
        int64_t spectrum = (int64_t)pol * n_spectra + blockIdx.y * TILE_SPECTRA + s;
        float2 x[N_MINE], *to = tile + (pol * TILE_CHANS + column) * PITCH + position_of(s);
        if (N_BINS)
            take_bins(slot.s, fft + spectrum * N_BINS, x);
        else
            finish_transform(slot, fft + spectrum * N_CHAN, x);
#pragma unroll
        for (int i = 0; i < N_MINE; i++)
            to[i * TILE_SLOTS * PITCH] = x[i];
    }
}

/* ---- Steps 2 and 3 ----------------------------------------------------------------------------------------------- */

/* A thread's pair of spectra: the pair's positions and rotations, the same for all channels. */
struct pair {
    uint64_t index;        /* half of the absolute index of the pair's first spectrum */
    int64_t heap_spectrum; /* index of channel 0 in the heaps, [batch][chan][spectrum] */
    float2 rotation[2][2]; /* [pol][spectrum] */
    uint32_t position;     /* position of the even spectrum in the tile */
};

static __device__ __forceinline__ struct pair make_pair(const struct postproc_args &args)
{
    struct pair pair;
    uint32_t s, batch;

    pair.position = threadIdx.x % (TILE_SPECTRA / 2);
    s = blockIdx.y * TILE_SPECTRA + 2 * pair.position;
    batch = s / SPECTRA_PER_HEAP;
    pair.index = (args.first_spectrum + s) / 2;
    pair.heap_spectrum = (int64_t)batch * N_CHAN * SPECTRA_PER_HEAP + s % SPECTRA_PER_HEAP;
#pragma unroll
    for (int at = 0; at < 4; at++)
        pair.rotation[at / 2][at % 2] =
            ((const float2 *)args.rotation)[(int64_t)(at / 2) * args.n_spectra + s + at % 2];
    return pair;
}

/* Quantises one channel of the thread's pair.  Counts clipped values in n_clipped: polarisation 0 in the lower half,
 * polarisation 1 in the upper half. */
static __device__ __forceinline__ void quantise_pair(const struct postproc_args &args, const struct pair &pair,
                                                     uint32_t k, const float2 *tile, uint32_t &n_clipped)
{
    float4 gain = __ldg((const float4 *)args.gain + k);
    float slope = -PI / N_CHAN * (float)((int)k - N_CHAN / 2);
    uint32_t bits[4], words[2];
    int64_t heap_spectrum = pair.heap_spectrum + (int64_t)k * SPECTRA_PER_HEAP;

    if (DITHER)
        draw_dither(args.seed, args.stream_id, k, pair.index, bits);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float2 turn0 = turn_of(pair.rotation[0][j], slope), turn1 = turn_of(pair.rotation[1][j], slope);
        float2 v0 =
            complex_multiply(tile[j * (TILE_SPECTRA / 2)], complex_multiply(turn0, make_float2(gain.x, gain.y)));
        float2 v1 = complex_multiply(tile[j * (TILE_SPECTRA / 2) + TILE_CHANS * PITCH],
                                     complex_multiply(turn1, make_float2(gain.z, gain.w)));
        bool clipped0 = false, clipped1 = false;
        if (DITHER) {
            v0 = make_float2(v0.x + dither(bits[0], j), v0.y + dither(bits[1], j));
            v1 = make_float2(v1.x + dither(bits[2], j), v1.y + dither(bits[3], j));
        }
        uint32_t re0 = quantise(v0.x, clipped0), im0 = quantise(v0.y, clipped0);
        uint32_t re1 = quantise(v1.x, clipped1), im1 = quantise(v1.y, clipped1);
        words[j] = pack(re0, im0, re1, im1);
        n_clipped += (clipped0 ? 1 : 0) + (clipped1 ? 1 << 16 : 0);
    }
    if (OUT_BITS == 8)
        *(uint2 *)(args.out + heap_spectrum * 4) = make_uint2(words[0], words[1]);
    else
        *(uint32_t *)(args.out + heap_spectrum * 2) = words[0] | words[1] << 16;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS) postproc(const struct postproc_args args)
{
    float2 *tile = (float2 *)shared_memory;
    uint32_t n_clipped = 0;

    fill_tile((const float2 *)args.fft, args.n_spectra, tile);
    __syncthreads();
    const struct pair pair = make_pair(args);
    for (uint32_t chan = threadIdx.x / (TILE_SPECTRA / 2); chan < TILE_CHANS; chan += N_THREADS / (TILE_SPECTRA / 2)) {
        uint32_t k = channel_of(blockIdx.x * TILE_SLOTS + chan % TILE_SLOTS, chan / TILE_SLOTS);
        quantise_pair(args, pair, k, tile + chan * PITCH + pair.position, n_clipped);
    }
    count_clipped(n_clipped, args.saturated + blockIdx.y * TILE_SPECTRA / SPECTRA_PER_HEAP * 2);
}
