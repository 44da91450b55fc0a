/* gnss_correlate.c - plain C version of gnss_correlate.
 *
 * A block of samples is first multiplied with the conjugate carrier, once for each input, in 16-bit integers.  The
 * result is multiplied with the levels of each tap.  So one complex product serves all taps.  The results equal the
 * products with the replica, because the replica is the level multiplied by the carrier.  Carrier and levels of a block
 * are computed once for all inputs.  Sums of a slice are 32 bits.  The threads add these sums to the integration's
 * 64-bit sums.  One slice of all pieces is correlated before the next slice, so that the slice's samples stay in the L2
 * cache. */
#include "kernels/gnss/gnss_correlate.h"

#include "common/base/units.h"
#include "kernels/gnss/gnss_codes.h"
#include "kernels/gnss/gnss_mma.h"
#include "kernels/util/clones.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SLICE_SAMPLES (4 * GNSS_BLOCK_SAMPLES)

void gnss_carrier_table(int8_t *carrier)
{
    for (size_t i = 0; i < GNSS_CARRIER_ENTRIES; i++) {
        double angle = 2 * M_PI * ((double)i + 0.5) / GNSS_CARRIER_ENTRIES;
        carrier[2 * i] = (int8_t)lrint(GNSS_AMPLITUDE * cos(angle));
        carrier[2 * i + 1] = (int8_t)lrint(GNSS_AMPLITUDE * sin(angle));
    }
}

struct block {
    int16_t carrier_re[GNSS_BLOCK_SAMPLES], carrier_im[GNSS_BLOCK_SAMPLES];
    int16_t levels[GNSS_MAX_TAPS][GNSS_BLOCK_SAMPLES];
    int16_t re[GNSS_BLOCK_SAMPLES], im[GNSS_BLOCK_SAMPLES]; /* products of an input with the carrier */
};

/* Sums of a slice: [tap][input][re, im]. */
struct slice_sums {
    int32_t of[GNSS_MAX_TAPS][GNSS_MAX_ANTS * N_POLS][2];
};

static void make_carrier(const int8_t *carrier, uint64_t phase, uint64_t step, size_t n, struct block *b)
{
    for (size_t i = 0; i < n; i++) {
        size_t entry = (phase + i * step) >> (64 - GNSS_CARRIER_BITS);
        b->carrier_re[i] = carrier[2 * entry];
        b->carrier_im[i] = carrier[2 * entry + 1];
    }
}

/* Looks up the code's levels for the samples of a block.  The phase advances by at most 'length' in a block, so the
 * phase wraps at most once.  The phase plus the advance is below 2^64. */
static void make_levels(const int8_t *table, uint64_t phase, uint64_t step, uint64_t length, size_t n, int16_t *levels)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t at = phase + i * step;
        levels[i] = table[(at - (at >= length ? length : 0)) >> GNSS_CODE_BITS];
    }
}

/* Multiplies samples with the conjugate carrier.  Each product is below 2^14. */
KERNEL_CLONES static void wipe_carrier(const int8_t *restrict x, size_t n, struct block *restrict b)
{
    for (size_t i = 0; i < n; i++) {
        int16_t re = x[2 * i], im = x[2 * i + 1];
        b->re[i] = (int16_t)(re * b->carrier_re[i] + im * b->carrier_im[i]);
        b->im[i] = (int16_t)(im * b->carrier_re[i] - re * b->carrier_im[i]);
    }
}

KERNEL_CLONES static void add_products(const struct block *b, size_t tap, size_t n, int32_t *sums)
{
    int32_t re = 0, im = 0;

    for (size_t i = 0; i < n; i++) {
        re += b->levels[tap][i] * b->re[i];
        im += b->levels[tap][i] * b->im[i];
    }
    sums[0] += re;
    sums[1] += im;
}

/* Adds 'n' samples of all inputs, beginning with sample 'at' of the piece.  'phase' is the code phase of sample
 * 'at'. */
static void add_block(const struct gnss_correlate_args *a, const struct gnss_piece *piece, uint32_t at, size_t n,
                      uint64_t phase, struct block *b, struct slice_sums *sums)
{
    const struct gnss_satellite *satellite = &a->satellites[piece->satellite];
    const int32_t *offsets = &a->offsets[(size_t)piece->satellite * a->n_ants];
    uint64_t length = gnss_code_length(satellite->n_subchips);

    make_carrier(a->carrier, piece->carrier_phase + at * piece->carrier_step, piece->carrier_step, n, b);
    for (size_t tap = 0; tap < a->n_taps; tap++)
        make_levels(a->codes + satellite->table, gnss_code_add(phase, satellite->taps[tap], length), piece->code_step,
                    length, n, b->levels[tap]);
    for (size_t input = 0; input < (size_t)a->n_ants * N_POLS; input++) {
        int64_t first = piece->first + offsets[input / N_POLS] + at;
        wipe_carrier(a->samples + 2 * (input * a->pitch_samples + (uint64_t)first), n, b);
        for (size_t tap = 0; tap < a->n_taps; tap++)
            add_products(b, tap, n, sums->of[tap][input]);
    }
}

/* Adds the samples [from, from + SLICE_SAMPLES) of a piece, or fewer at the piece's end. */
static void add_slice(const struct gnss_correlate_args *a, const struct gnss_piece *piece, uint32_t from)
{
    uint32_t n_subchips = a->satellites[piece->satellite].n_subchips, n_inputs = a->n_ants * N_POLS;
    uint32_t end = (uint32_t)least(piece->n_samples, (uint64_t)from + SLICE_SAMPLES);
    uint64_t phase = gnss_code_at(piece->code_phase, piece->code_step, from, n_subchips);
    uint64_t block_step = gnss_code_at(0, piece->code_step, GNSS_BLOCK_SAMPLES, n_subchips);
    int64_t *to = a->sums + (size_t)piece->integration * a->n_taps * n_inputs * 2;
    struct slice_sums sums;
    struct block b;

    memset(&sums, 0, sizeof(sums));
    for (uint32_t at = from; at < end; at += GNSS_BLOCK_SAMPLES) {
        add_block(a, piece, at, least(end - at, GNSS_BLOCK_SAMPLES), phase, &b, &sums);
        phase = gnss_code_add(phase, block_step, gnss_code_length(n_subchips));
    }
    for (size_t tap = 0; tap < a->n_taps; tap++)
        for (size_t i = 0; i < n_inputs * 2; i++, to++) {
#pragma omp atomic
            *to += sums.of[tap][i / 2][i % 2];
        }
}

static void check_piece(const struct gnss_correlate_args *a, const struct gnss_piece *piece)
{
    const struct gnss_satellite *satellite = &a->satellites[piece->satellite];
    uint64_t length = gnss_code_length(satellite->n_subchips);

    assert(piece->n_samples <= a->max_samples && a->max_samples < GNSS_MAX_RUN);
    assert(piece->code_phase < length && piece->code_step <= length / GNSS_BLOCK_SAMPLES);
    assert(piece->code_step >> GNSS_STEP_BITS == 0 && satellite->n_subchips <= GNSS_MAX_SUBCHIPS);
    for (size_t tap = 0; tap < a->n_taps; tap++)
        assert(satellite->taps[tap] < length);
    for (size_t ant = 0; ant < a->n_ants; ant++) {
        int64_t first = piece->first + a->offsets[(size_t)piece->satellite * a->n_ants + ant];
        assert(first >= 0 && (uint64_t)first + piece->n_samples <= a->pitch_samples);
    }
}

static void gnss_correlate_cpu(const void *args, int n_threads)
{
    const struct gnss_correlate_args *a = args;

    assert(a->n_pieces >= 1 && a->n_pieces <= GNSS_MAX_PIECES);
    assert(a->n_ants >= 1 && a->n_ants <= GNSS_MAX_ANTS && a->n_taps >= 1 && a->n_taps <= GNSS_MAX_TAPS);
    for (size_t i = 0; i < a->n_pieces; i++)
        check_piece(a, &a->pieces[i]);
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(n_threads)
    for (uint32_t from = 0; from < a->max_samples; from += SLICE_SAMPLES)
        for (size_t i = 0; i < a->n_pieces; i++)
            if (from < a->pieces[i].n_samples)
                add_slice(a, &a->pieces[i], from);
}

const struct kernel gnss_correlate_kernel = {
    .name = "gnss_correlate",
    .args_bytes = sizeof(struct gnss_correlate_args),
    .cpu = gnss_correlate_cpu,
};

const struct kernel gnss_correlate_mma_kernel = {
    .name = "gnss_correlate_mma",
    .args_bytes = sizeof(struct gnss_correlate_args),
    .cpu = gnss_correlate_cpu,
};

/* ---- The CUDA variants ------------------------------------------------------------------------------------------- */

#define N_THREADS          128
#define CUDA_SLICE_SAMPLES 4096 /* samples of a block */

/* minimum number of antennas for gnss_correlate_mma; the rows of a tile are 16 inputs */
#define MMA_MIN_ANTS  8
#define MMA_MAX_TILES 4 /* maximum number of tiles of a block, for MMA_ANTS antennas */
/* upper limit of: pieces that a block correlates at a time, times column tiles of a piece */
#define MMA_WARPS      8
#define MMA_GROUPS     2   /* a block has this number of groups of pieces that the block correlates at a time */
#define MMA_MIN_SPREAD 128 /* smallest difference of offsets for which windows have room */
#define MMA_IDLE       2   /* time in which a block does not multiply, in chunks */

const struct kernel *gnss_correlate_variant(uint32_t n_ants)
{
    return n_ants < MMA_MIN_ANTS ? &gnss_correlate_kernel : &gnss_correlate_mma_kernel;
}

/* Tile sizes of gnss_correlate_mma. */
struct shape {
    /* number of tiles of a block, number of tiles of a warp, number of blocks for all inputs */
    uint32_t row_tiles, warp_tiles, row_blocks;
    /* number of pieces of a block, and number of pieces that the block correlates at a time */
    uint32_t n_pieces, satellites;
    uint32_t ring_samples;
};

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Returns the number of bytes of shared memory that a block needs besides the windows. */
static uint32_t columns_bytes(const struct shape *shape, uint32_t n_taps)
{
    return 2 * shape->satellites * 2 * n_taps * MMA_CHUNK_SAMPLES * 2 + (uint32_t)sizeof(struct mma_head);
}

static uint32_t threads_of(const struct shape *shape)
{
    return 32 * (shape->row_tiles / shape->warp_tiles + MMA_REPLICA_WARPS) * shape->satellites;
}

/* Returns the tile sizes for a launch.  Blocks with fewer tiles have longer rings, and allow offsets that differ more.
 * A ring is a multiple of 8 words of 4 bytes. */
static struct shape shape_of(const struct gnss_correlate_args *args, size_t shared_bytes)
{
    uint32_t n_tiles = divide_up(args->n_ants * N_POLS, 16), column_tiles = divide_up(2 * args->n_taps, 8);
    uint64_t spread = args->max_spread > MMA_MIN_SPREAD ? args->max_spread : MMA_MIN_SPREAD;
    struct shape shape = {.satellites = column_tiles < MMA_WARPS ? MMA_WARPS / column_tiles : 1};

    shape.n_pieces = MMA_GROUPS * shape.satellites;
    assert(shape.n_pieces <= MMA_PIECES);
    assert(shared_bytes >= columns_bytes(&shape, args->n_taps) + 16 * MMA_MAX_TILES * MMA_RUN_BYTES);
    for (uint32_t tiles = MMA_MAX_TILES; tiles > 0; tiles--) {
        shape.row_blocks = divide_up(n_tiles, tiles);
        shape.row_tiles = divide_up(n_tiles, shape.row_blocks);
        size_t row_bytes = (shared_bytes - columns_bytes(&shape, args->n_taps)) / (16 * shape.row_tiles);
        shape.ring_samples = (uint32_t)(row_bytes - MMA_RUN_BYTES) / 2 / 16 * 16;
        if (shape.ring_samples >= spread + 2 * MMA_CHUNK_SAMPLES + MMA_SLACK)
            break;
    }
    assert(shape.ring_samples >= MMA_MIN_SPREAD + 2 * MMA_CHUNK_SAMPLES + MMA_SLACK);
    shape.warp_tiles = shape.row_tiles;
    return shape;
}

void gnss_correlate_constants(const struct kernel *variant, const struct gnss_correlate_args *args, size_t shared_bytes,
                              struct kernel_constant *constants)
{
    bool is_mma = variant == &gnss_correlate_mma_kernel;
    struct shape shape = is_mma ? shape_of(args, shared_bytes) : (struct shape){0};

    constants[0] = (struct kernel_constant){"N_TAPS", args->n_taps};
    constants[1] = (struct kernel_constant){"N_THREADS", is_mma ? threads_of(&shape) : N_THREADS};
    constants[2] = (struct kernel_constant){"SLICE_SAMPLES", CUDA_SLICE_SAMPLES};
    constants[3] = (struct kernel_constant){"ROW_TILES", shape.row_tiles};
    constants[4] = (struct kernel_constant){"WARP_TILES", shape.warp_tiles};
    constants[5] = (struct kernel_constant){"SATELLITES", shape.satellites};
    constants[6] = (struct kernel_constant){"N_PIECES", shape.n_pieces};
    constants[7] = (struct kernel_constant){"RING_SAMPLES", shape.ring_samples};
}

/* Returns the number of slices for which a launch of 'n_chunks' chunks is shortest.  Each slice has 'n_blocks'
 * blocks. */
static uint32_t n_slices(uint32_t n_chunks, uint32_t n_blocks, uint32_t n_multiprocessors)
{
    uint32_t best = 1;
    uint64_t shortest = UINT64_MAX;

    for (uint32_t n = 1; n <= n_chunks && (n == 1 || (n - 1) * n_blocks < 4 * n_multiprocessors); n++) {
        uint64_t rounds = divide_up(n * n_blocks, n_multiprocessors);
        uint64_t time = rounds * (divide_up(n_chunks, n) + MMA_IDLE);
        if (time < shortest) {
            shortest = time;
            best = n;
        }
    }
    return best;
}

static struct kernel_grid mma_grid(const struct gnss_correlate_args *args, size_t shared_bytes,
                                   uint32_t n_multiprocessors)
{
    struct shape shape = shape_of(args, shared_bytes);
    uint32_t n_chunks = divide_up(args->max_samples, MMA_CHUNK_SAMPLES);
    uint32_t piece_blocks = divide_up(args->n_pieces, shape.n_pieces);
    uint32_t row_bytes = shape.ring_samples * 2 + MMA_RUN_BYTES;

    assert(args->pitch_samples % 8 == 0 && (uintptr_t)args->samples % 16 == 0 && (uintptr_t)args->codes % 4 == 0);
    return (struct kernel_grid){.blocks = {n_slices(n_chunks, piece_blocks * shape.row_blocks, n_multiprocessors),
                                           piece_blocks, shape.row_blocks},
                                .threads = threads_of(&shape),
                                .shared_bytes = 16 * shape.row_tiles * row_bytes + columns_bytes(&shape, args->n_taps)};
}

struct kernel_grid gnss_correlate_grid(const struct kernel *variant, const struct gnss_correlate_args *args,
                                       size_t shared_bytes, uint32_t n_multiprocessors)
{
    uint32_t sums_bytes = N_THREADS / 32 * args->n_taps * N_POLS * 2 * sizeof(int32_t);

    if (variant == &gnss_correlate_mma_kernel)
        return mma_grid(args, shared_bytes, n_multiprocessors);
    return (struct kernel_grid){
        .blocks = {divide_up(args->max_samples, CUDA_SLICE_SAMPLES), args->n_pieces, args->n_ants},
        .threads = N_THREADS,
        .shared_bytes = GNSS_CARRIER_ENTRIES * 2 + sums_bytes};
}
