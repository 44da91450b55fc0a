/* correlate_wgmma_formats.h - the formats of voltages, for correlate_wgmma.cu and correlate_whole.cu: sizes in memory,
 * sizes of a stage in shared memory, and the conversion of bytes in memory to operands of wgmma.
 *
 * Include this file after N_TILES, N_STAGES and COL_ANTS.  Constants: BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA. */
#ifndef KERNELS_CORRELATE_CORRELATE_WGMMA_FORMATS_H
#define KERNELS_CORRELATE_CORRELATE_WGMMA_FORMATS_H

#define GROUP_THREADS 128
#define N_GROUPS      2 /* consumer warpgroups; consumers multiply */
#define N_PRODUCERS   2 /* producer warpgroups */
#define N_THREADS     ((N_GROUPS + N_PRODUCERS) * GROUP_THREADS)
#define TILE_ANTS     16  /* number of antennas of a tile: 64 rows (32 plain, 32 turned), or 32 columns */
#define COLUMN_BYTES  128 /* number of bytes of an input in a stage */
#define TILE_BYTES    (2 * TILE_ANTS * COLUMN_BYTES)
#define STAGE_BYTES   (N_TILES * TILE_BYTES)

/* Shared memory:
 *     stages       uint8 [N_STAGES][STAGE_BYTES]            columns of operand B, swizzled
 *     column sums  int32 [N_SUM_SLOTS][2 * COL_ANTS]        sum of im of each column
 *     barriers     uint64 [N_STAGES][full, empty]
 * Consumers read the sums of slot s before they release slot s + N_STAGES.  A producer waits for this release before it
 * fills slot s + 2 * N_STAGES. */
#define N_SUM_SLOTS    (2 * N_STAGES)
#define SUM_SLOT_BYTES (COL_ANTS * 8)
#define SUMS_AT        (N_STAGES * STAGE_BYTES)
#define BARRIERS_AT    (SUMS_AT + N_SUM_SLOTS * SUM_SLOT_BYTES)

#define HALVES         (BITS == 16)
#define NIBBLES        (BITS == 4)
#define SPECTRUM_BYTES (HALVES ? 8 : NIBBLES ? 2 : 4) /* bytes of one spectrum of an antenna */
#define STAGE_SPECTRA  (HALVES ? 32 : 64)             /* a stage has 128 bytes of an input, for four operations */
/* a unit lies in one heap */
#define UNIT_SPECTRA (N_SPECTRA % 64 == 0 && !HALVES ? 64 : N_SPECTRA % 32 == 0 ? 32 : 16)
#define HEAP_UNITS   (N_SPECTRA / UNIT_SPECTRA)
#define STAGE_UNITS  (STAGE_SPECTRA / UNIT_SPECTRA)
#define CHAN_BYTES   (N_SPECTRA * SPECTRUM_BYTES) /* bytes of one channel of a heap */
#define HEAP_BYTES   ((uint64_t)N_CHAN * CHAN_BYTES)
#define BATCH_BYTES  (N_ANTS * HEAP_BYTES)

/* number of spectra in a thread's load of 16 bytes; four loads are consecutive */
#define LOAD_SPECTRA (16 / SPECTRUM_BYTES)
/* number of pieces of a load; a piece is 4 bytes of each polarisation, and an operation needs two pieces */
#define LOAD_PIECES (NIBBLES ? 4 : 2)
#define N_LOADS     (STAGE_SPECTRA / (4 * LOAD_SPECTRA))
#define N_TASKS     (N_LOADS / 2) /* number of loads of a producer's thread for an antenna */

#define ZERO_VOLTAGES (NIBBLES && OFFSET ? 0x88888888 : 0) /* voltages of 0 */

/* Type of an offset in a batch: 32 bits if the batch is small enough, because registers are scarce. */
template <bool SMALL> struct offset_type {
    typedef uint64_t type;
};
template <> struct offset_type<true> {
    typedef uint32_t type;
};
typedef offset_type<(BATCH_BYTES >> 32) == 0>::type batch_offset;

#if HALVES
typedef float partial;
#else
typedef int partial;
#endif

/* Unpacks piece 'piece' of a load's 16 bytes into two registers, one for each polarisation.  A register has 2 spectra.
 * With half floats, a register has 1 spectrum. */
static __device__ __forceinline__ void separate(uint4 load, int piece, uint32_t *pol0, uint32_t *pol1)
{
    const uint32_t words[4] = {load.x, load.y, load.z, load.w};
#if HALVES
    *pol0 = words[2 * piece];
    *pol1 = words[2 * piece + 1];
#elif NIBBLES
    uint32_t bits = words[piece] ^ (OFFSET ? 0x88888888 : 0), re = bits & 0xf0f0f0f0, im = bits << 4 & 0xf0f0f0f0;
    *pol0 = __byte_perm(re, im, 0x6240);
    *pol1 = __byte_perm(re, im, 0x7351);
#else
    *pol0 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x5410);
    *pol1 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x7632);
#endif
}

/* Turns (re, im) into (im, -re), for integers into (im, ~re). */
static __device__ __forceinline__ uint32_t turn(uint32_t plain)
{
#if HALVES
    return __byte_perm(plain, 0, 0x1032) ^ 0x80000000;
#else
    return __byte_perm(plain ^ 0x00ff00ff, 0, 0x2301);
#endif
}

/* Returns the sum plus 'lacking'.  With 4-bit voltages, divides the result by 256.  Turned rows have ~re = -re - 1
 * instead of -re, so their sums lack the sum of im.  'lacking' is this sum of im, or 0 for plain rows. */
static __device__ __forceinline__ partial finish(partial sum, int lacking)
{
#if HALVES
    return sum;
#else
    return (int)((unsigned)sum + (unsigned)lacking) >> (NIBBLES ? 8 : 0);
#endif
}

#endif
