/* channelise_back_channels.h - converts the points of a tile to quantised channels.
 *
 * channelise_back.cu includes this file after its sizes (kernels/README.md lists them). */
#ifndef KERNELS_FILTERBANK_CHANNELISE_BACK_CHANNELS_H
#define KERNELS_FILTERBANK_CHANNELISE_BACK_CHANNELS_H

/* Computes Philox4x32-7 (philox.h).  The caller passes the keys of the rounds. */
static __device__ __forceinline__ uint4 philox(uint4 c, const uint32_t (&keys)[7][2])
{
#pragma unroll
    for (int round = 0; round < 7; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.x, p1 = (uint64_t)0xCD9E8D57u * c.z;
        c = make_uint4((uint32_t)(p1 >> 32) ^ c.y ^ keys[round][0], (uint32_t)p1,
                       (uint32_t)(p0 >> 32) ^ c.w ^ keys[round][1], (uint32_t)p0);
    }
    return c;
}

/* add_dither() makes a float from dither bits.  DITHER_BEFORE is the difference between this float and the dither.  The
 * last 16 bits of the float are the dither bits, with an inverted sign bit.  The float's exponent gives one unit of
 * these bits the value 1/65536.  The last multiplication subtracts DITHER_BEFORE. */
#define DITHER_BEFORE (DITHER ? 128.5f : 0.0f)

static __device__ __forceinline__ float2 add_dither(float2 v, uint32_t re, uint32_t im, int half, uint32_t exponent)
{
    const uint32_t select = half ? 0x5432 : 0x5410;

    return make_float2(v.x + __uint_as_float(__byte_perm(re, exponent, select)),
                       v.y + __uint_as_float(__byte_perm(im, exponent, select)));
}

/* Returns the complex product a b, with DITHER_BEFORE subtracted from both parts. */
static __device__ __forceinline__ float2 multiply_before(float2 a, float2 b)
{
    return make_float2(fmaf(a.x, b.x, fmaf(-a.y, b.y, -DITHER_BEFORE)), fmaf(a.x, b.y, fmaf(a.y, b.x, -DITHER_BEFORE)));
}

/* Returns v, rounded half to even, as two's complement in the lower bits.  |v| <= QUANTISE_LIMIT. */
static __device__ __forceinline__ uint32_t round_float(float v)
{
    return __float_as_uint(v + 12582912.0f); /* 1.5 * 2^23: adding this number rounds to an integer */
}

/* Returns (re, im) of both polarisations, packed into 32 bits, or into 16 bits if OUT_BITS is 4. */
static __device__ __forceinline__ uint32_t round_and_pack(float2 x0, float2 x1)
{
    return pack(round_float(x0.x), round_float(x0.y), round_float(x1.x), round_float(x1.y));
}

static __device__ __forceinline__ bool is_clipped(float2 v)
{
    return !(fabsf(v.x) <= QUANTISE_LIMIT) | !(fabsf(v.y) <= QUANTISE_LIMIT); /* no branches */
}

/* Clips v.  NaN becomes 0. */
static __device__ __forceinline__ float2 clip(float2 v)
{
    const float limit = QUANTISE_LIMIT;

    return make_float2(v.x == v.x ? fminf(fmaxf(v.x, -limit), limit) : 0.0f,
                       v.y == v.y ? fminf(fmaxf(v.y, -limit), limit) : 0.0f);
}

/* Quantised values of a channel in N_TOGETHER spectra. */
struct __align__(OUT_BITS * 2) chunk
{
    uint32_t words[OUT_BITS / 2];
};

static __device__ __forceinline__ struct chunk pack_chunk(const uint32_t (&words)[N_TOGETHER])
{
    struct chunk chunk;

#pragma unroll
    for (int i = 0; i < OUT_BITS / 2; i++)
        chunk.words[i] = OUT_BITS == 8 ? words[i] : words[2 * i % N_TOGETHER] | words[(2 * i + 1) % N_TOGETHER] << 16;
    return chunk;
}

#define CHANNEL_BYTES (SPECTRA_PER_HEAP * (OUT_BITS / 2)) /* size of one channel in a heap, in bytes */

/* Returns the offset in the output of spectrum 'first' of channel k, in bytes. */
static __device__ __forceinline__ uint64_t byte_of(unsigned k, uint32_t first)
{
    uint32_t batch = first / SPECTRA_PER_HEAP;

    return (uint64_t)(batch * N_CHAN + k) * CHANNEL_BYTES + first % SPECTRA_PER_HEAP * (OUT_BITS / 2);
}

/* Returns the thread's group of N_TOGETHER spectra.  Writes the thread's index among the threads of this group to
 * 'place'.  The indices of a half warp are consecutive, so that their loads access different banks.  If possible, the
 * two halves of a warp store adjacent bytes. */
static __device__ __forceinline__ unsigned group_of_thread(unsigned *place)
{
    if (N_GROUPS == 1 || N_THREADS < 16 * N_GROUPS) {
        *place = threadIdx.x % (N_THREADS / N_GROUPS);
        return threadIdx.x / (N_THREADS / N_GROUPS);
    }
    const unsigned n_halves = N_GROUPS > 1 ? N_GROUPS / 2 : 1;
    unsigned warp = threadIdx.x / 32;
    *place = threadIdx.x % 16 + 16 * (warp / n_halves);
    return threadIdx.x / 16 % 2 + 2 * (warp % n_halves);
}

/* Separates the polarisations.  Computes channel k of both polarisations from points k and POINTS - k of the
 * transform.  The results are multiplied by 2. */
static __device__ __forceinline__ void separate(float2 z, float2 mirror, float2 *x0, float2 *x1)
{
    *x0 = make_float2(z.x + mirror.x, z.y - mirror.y);
    *x1 = make_float2(z.y + mirror.y, mirror.x - z.x);
}

static __device__ __forceinline__ float slope_of(unsigned k)
{
    return (float)((int)k - N_CHAN / 2) * (-3.14159265358979f / (float)N_CHAN);
}

/* Returns the random bits for the dither of channel k in two spectra.  'pair' is half of the even spectrum's absolute
 * index.  In each half of a word the lowest bit is set and the sign bit is inverted. */
static __device__ __forceinline__ uint4 draw_bits(const struct channelise_back_args &args, unsigned k, uint64_t pair)
{
    uint4 bits = philox(make_uint4(k, (uint32_t)pair, (uint32_t)(pair >> 32), args.stream_id), args.keys);

    return make_uint4((bits.x | 0x10001) ^ 0x80008000, (bits.y | 0x10001) ^ 0x80008000, (bits.z | 0x10001) ^ 0x80008000,
                      (bits.w | 0x10001) ^ 0x80008000);
}

/* Adds the block's numbers of clipped values to 'saturated'.  All spectra of the block are in one heap, the heap of
 * 'spectrum'. */
static __device__ __forceinline__ void add_clipped(const struct channelise_back_args &args, uint32_t spectrum,
                                                   const uint32_t (&n_clipped)[2])
{
    uint32_t *saturated = args.saturated + spectrum / SPECTRA_PER_HEAP * 2;

#pragma unroll
    for (int pol = 0; pol < 2; pol++)
        if (n_clipped[pol])
            atomicAdd(saturated + pol, n_clipped[pol]);
}

/* A thread's offsets for a row of the tile.  The row's channels are row + M1 k2.  The offsets are computed once for all
 * channels of the row. */
struct row {
    uint32_t line, mirrors; /* indices at which the row and its mirror row start, in the thread's first spectrum */
    uint32_t row;
    uint32_t mirror_of_0; /* the mirror of point k2 is point mirror_of_0 - k2 */
    uint32_t gains;       /* index of the row's first gains */
};

/* Finds row 'i' of the tile for the thread's spectra, which begin with 's'.  Rows are numbered as [pair][which].  All
 * lanes of the warp call this function. */
static __device__ __forceinline__ struct row find_row(struct tile tile, unsigned i, unsigned s)
{
    unsigned pair = tile.pair + i / 2, which = i % 2;
    bool alone = pair == 0; /* row 0 and row M1 / 2 are their own mirror rows */

    return {keep((i * TILE_SPECTRA + s) * LINE_PITCH), keep(((alone ? i : i ^ 1) * TILE_SPECTRA + s) * LINE_PITCH),
            keep(row_of(pair, which)), keep(M2 - (alone && which == 0 ? 0u : 1u)),
            keep(row_of(pair, which) * (M2 / 2))};
}

/* Quantises channel k2 of the row in N_TOGETHER spectra.  'spectrum' is the absolute index of the first spectrum. */
static __device__ __forceinline__ struct chunk quantise_channel(const struct channelise_back_args &args,
                                                                const float2 *lines, const struct row &row, unsigned k2,
                                                                uint64_t spectrum, float4 gain,
                                                                const float2 (&rotations)[2][N_TOGETHER],
                                                                uint32_t exponent, uint32_t (&n_clipped)[2])
{
    unsigned k = row.row + M1 * k2, mirror = (row.mirror_of_0 - k2) % M2;
    const float2 *z = lines + row.line + k2, *z_mirror = lines + row.mirrors + mirror;
    float slope = slope_of(k);
    float2 x[2][N_TOGETHER];
    uint32_t words[N_TOGETHER];
    bool any_clipped = false;
    uint4 bits = make_uint4(0, 0, 0, 0);

#pragma unroll
    for (int i = 0; i < N_TOGETHER; i++) {
        float2 x0, x1;
        separate(z[i * LINE_PITCH], z_mirror[i * LINE_PITCH], &x0, &x1);
        x0 = multiply_before(x0, complex_multiply(make_float2(gain.x, gain.y), turn_of(rotations[0][i], slope)));
        x1 = multiply_before(x1, complex_multiply(make_float2(gain.z, gain.w), turn_of(rotations[1][i], slope)));
        if (DITHER) {
            if (i % 2 == 0)
                bits = draw_bits(args, k, (spectrum + i) >> 1);
            x0 = add_dither(x0, bits.x, bits.y, i % 2, exponent);
            x1 = add_dither(x1, bits.z, bits.w, i % 2, exponent);
        }
        any_clipped |= is_clipped(x0) | is_clipped(x1);
        x[0][i] = x0;
        x[1][i] = x1;
    }
    if (any_clipped) /* clipping is rare, so the kernel counts and clips values only in this branch */
#pragma unroll
        for (int pol = 0; pol < 2; pol++)
#pragma unroll
            for (int i = 0; i < N_TOGETHER; i++) {
                n_clipped[pol] += is_clipped(x[pol][i]);
                x[pol][i] = clip(x[pol][i]);
            }
#pragma unroll
    for (int i = 0; i < N_TOGETHER; i++)
        words[i] = round_and_pack(x[0][i], x[1][i]);
    return pack_chunk(words);
}

/* Adjacent threads have neighbouring channels of a row, or of ROW_STEP rows.  A thread handles N_ROWS rows, one after
 * the other, and ROW_CHANNELS channels of each row. */
#define N_SIDE_BY_SIDE (N_THREADS / N_GROUPS)
#define ROW_STEP       (N_SIDE_BY_SIDE > M2 / 2 ? N_SIDE_BY_SIDE / (M2 / 2) : 1)
#define N_ROWS         ((PAIRS * 2 + ROW_STEP - 1) / ROW_STEP)
#define ROW_CHANNELS   (N_SIDE_BY_SIDE > M2 / 2 ? 1 : M2 / 2 / N_SIDE_BY_SIDE)

/* A thread's rows, channels and spectra of the tile, and the rotations of these spectra. */
struct task {
    unsigned first_row, first_k2, s;
    float2 rotations[2][N_TOGETHER]; /* [pol][spectrum]: (fine delay, phase) */
};

static __device__ __forceinline__ struct task begin_task()
{
    struct task task;
    unsigned place;

    task.s = group_of_thread(&place) * N_TOGETHER;
    task.first_row = ROW_STEP > 1 ? place / (M2 / 2) : 0;
    task.first_k2 = place % (M2 / 2);
    return task;
}

/* Loads the rotations of the thread's spectra.  'rotations' begins with the tile's first spectrum in polarisation 0.
 * The rotations of polarisation 1 follow n_spectra entries later. */
static __device__ __forceinline__ void load_rotations(struct task &task, const float2 *rotations, uint32_t n_spectra)
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++)
#pragma unroll
        for (int j = 0; j < N_TOGETHER; j++)
            task.rotations[pol][j] = rotations[pol * n_spectra + task.s + j];
}

/* Returns true if the thread has an n-th row.  If there are few rows, some threads have one row less than other
 * threads. */
static __device__ __forceinline__ bool has_row(const struct task &task, unsigned n)
{
    return N_ROWS * ROW_STEP <= PAIRS * 2 || n * ROW_STEP + task.first_row < PAIRS * 2;
}

static __device__ __forceinline__ unsigned nth_row(const struct task &task, unsigned n)
{
    return has_row(task, n) ? n * ROW_STEP + task.first_row : 0;
}

/* number of chunks that the block keeps in shared memory */
#define N_KEPT (TILES > 1 ? TILES * N_ROWS * ROW_CHANNELS * N_THREADS : 0)

/* TILE_CHUNKS and ALL_CHUNKS are the numbers of chunks of a channel that a warp has in one tile and in all tiles.
 * WARP_CHANNELS is the number of channels that a warp quantises at a time. */
#define TILE_CHUNKS   (N_GROUPS == 1 ? 1 : 2)
#define ALL_CHUNKS    (TILES * TILE_CHUNKS)
#define WARP_CHANNELS (32 / TILE_CHUNKS)

/* Addresses of the chunks that a lane copies from kept[] to the output.  The lane copies when its warp has quantised
 * the same channels in all tiles.  Neighbouring lanes store neighbouring chunks.  The addresses are computed once for a
 * tile. */
struct delivery {
    uint32_t from;  /* index in kept[] of the chunk, for the thread's first channels */
    uint32_t ahead; /* channel of the chunk minus the lane's own channel, modulo 2^32 */
    uint64_t to;    /* offset in the output for channel 0, in bytes */
};

/* Computes the addresses for the chunks that the lane copies.  'first' is the block's first spectrum.  All lanes of
 * the warp call this function. */
static __device__ __forceinline__ struct delivery enable_delivery(uint32_t first)
{
    unsigned lane = threadIdx.x % 32, part = lane % ALL_CHUNKS, channel = lane / ALL_CHUNKS;
    unsigned tile = part / TILE_CHUNKS * (N_KEPT / TILES), of_tile = part % TILE_CHUNKS * WARP_CHANNELS;
    uint64_t to = byte_of(0, first + part * N_TOGETHER);

    return {keep(tile + threadIdx.x - lane + of_tile + channel), keep(M1 * (channel - lane % WARP_CHANNELS)),
            keep((uint32_t)to) | (uint64_t)keep((uint32_t)(to >> 32)) << 32};
}

/* Each lane of the warp has an i-th channel.  Copies the chunks of these channels to the output.  k is the i-th channel
 * of this lane. */
static __device__ __forceinline__ void deliver(uint8_t *out, const struct chunk *kept, const struct delivery &delivery,
                                               unsigned k, unsigned i)
{
    const struct chunk *from = kept + delivery.from + i * N_THREADS;
    uint8_t *to = out + delivery.to + (uint64_t)(k + delivery.ahead) * CHANNEL_BYTES;

    __syncwarp();
#pragma unroll
    for (int round = 0; round < TILES; round++)
        *(struct chunk *)(to + round * (32 / ALL_CHUNKS) * M1 * CHANNEL_BYTES) = from[round * (32 / ALL_CHUNKS)];
}

/* Quantises tile t of the block. */
static __device__ __forceinline__ void quantise_tile(const struct channelise_back_args &args, struct tile tile, int t,
                                                     const float2 *lines, struct chunk *kept, const struct task &task,
                                                     uint32_t (&n_clipped)[2])
{
    const uint32_t exponent = keep_constant(0x4300); /* exponent for add_dither() */
    const uint32_t first = tile.spectrum + task.s;
    const uint64_t spectrum = args.first_spectrum + first;
    struct delivery delivery = {};
    struct chunk *mine = kept + keep(t * (N_KEPT / TILES) + threadIdx.x);

    if (TILES > 1)
        delivery = enable_delivery(tile.spectrum - t * TILE_SPECTRA);
#pragma unroll 1
    for (unsigned n = 0; n < N_ROWS; n++) {
        const struct row row = find_row(tile, nth_row(task, n), task.s);
        float4 gains[ROW_CHANNELS]; /* loads all rotations together, so that the thread waits once */

        if (!has_row(task, n))
            break;
#pragma unroll
        for (unsigned j = 0; j < ROW_CHANNELS; j++)
            gains[j] = ((const float4 *)args.gain)[row.gains + task.first_k2 + j * N_SIDE_BY_SIDE];
#pragma unroll
        for (unsigned j = 0; j < ROW_CHANNELS; j++) {
            const unsigned k2 = task.first_k2 + j * N_SIDE_BY_SIDE, k = row.row + M1 * k2;
            const struct chunk chunk =
                quantise_channel(args, lines, row, k2, spectrum, gains[j], task.rotations, exponent, n_clipped);
            if (TILES == 1)
                *(struct chunk *)(args.out + byte_of(k, first)) = chunk;
            else
                mine[(n * ROW_CHANNELS + j) * N_THREADS] = chunk;
            if (TILES > 1 && t == TILES - 1)
                deliver(args.out, kept, delivery, k, n * ROW_CHANNELS + j);
        }
    }
}

#endif
