/* gnss_correlate - correlates complex samples of many inputs with replicas of navigation satellites' signals.
 *   samples     int8 [ant][pol][sample][re, im]   rows 'pitch_samples' apart; the samples' band contains the signals
 *   carrier     int8 [GNSS_CARRIER_ENTRIES][re, im], made by gnss_carrier_table()
 *   codes       int8: tables of sub-chips (gnss_codes.h), one after the other
 *   satellites  [satellite]        tables and taps
 *   offsets     int32 [satellite][ant]
 *   pieces      [piece]            each piece is a run of consecutive samples of one integration
 *   sums        int64 [integration][tap][ant][pol][re, im]; the kernel adds to these sums
 *
 * A piece of satellite s adds to the sums of its integration, for each tap t, antenna a and polarisation p,
 *     sum over n < n_samples of x[a][p][first + offsets[s][a] + n] conj(r[n]), where r is the replica, complex int8:
 *     r[n] = level(n) carrier[top GNSS_CARRIER_BITS bits of (carrier_phase + n carrier_step) mod 2^64]
 *     level(n) = table[floor(((code_phase + taps[t] + n code_step) mod length) / 2^48)], length = n_subchips 2^48
 * gnss_phase.h defines the phases.  A code step has an error of at most 2^-49 sub-chips.  So a code phase has an error
 * of 2e-7 sub-chips after 1e8 samples.  The error is smaller if each integration begins with new phases.
 * The frequency of a piece is constant; a change of frequency begins another piece.  An offset is the delay of the
 * satellite's wavefront at an antenna, rounded to whole samples.
 *
 * State:     the phases of a piece are the whole state.  gnss_piece_skip() makes the piece that begins n samples later.
 *            Any division of an integration into pieces gives the same bits, in one launch or in several.
 * Taps:      code phases ahead of the prompt phase, at any spacing.  The caller passes taps behind the prompt phase
 *            modulo the length (gnss_code_phase()), so no phase is negative.
 * Exactness: all sums are exact, so CUDA and the C version agree in every bit.  A part of a product is below 2^15, so
 *            65 000 products fit int32; larger sums are 64 bits.
 *            An entry of the carrier is within GNSS_CARRIER_ERROR of GNSS_AMPLITUDE e^{2 pi i phase}.  Over all phases
 *            the replica loses less than 0.001 dB.  All antennas have the same replica, so they share its error.
 * Requires:  1 to GNSS_MAX_PIECES pieces; 1 to GNSS_MAX_ANTS antennas; 1 to GNSS_MAX_TAPS taps, the same number for all
 *            satellites; n_samples < GNSS_MAX_RUN; tables of at most GNSS_MAX_SUBCHIPS; code phases and taps below the
 *            length; code steps below 2^50; GNSS_BLOCK_SAMPLES code steps of at most the length; all samples of pieces
 *            within their rows.  gnss_correlate_mma: 'samples' aligned to 16 bytes, a pitch that is a multiple of 8,
 *            'codes' aligned to 4 bytes.
 * Order:     sums are the same in any order of pieces.  gnss_correlate_mma is fast if pieces of the same time follow
 *            each other.  A block has up to 16 consecutive pieces, and a slice of the time that these pieces span.  The
 *            number of slices depends on 'max_samples' and on the number of multiprocessors.  The launch is fastest if
 *            'max_samples' equals the number of samples that the pieces of a block span.  A block reads samples once
 *            for pieces whose offsets differ by at most 'max_spread' samples at each antenna.
 * Bound by:  the C version: two multiply-adds of 16 bits for each sample, tap and input, and four for each sample and
 *            input.  With few antennas the C version is bound by the look-up of levels.  CUDA: about 30 instructions a
 *            sample and satellite.  The variant for arrays: reads of shared memory.
 * Users:     fgpu/gnss/gnss.c, bench_gnss. */
#ifndef KERNELS_GNSS_GNSS_CORRELATE_H
#define KERNELS_GNSS_GNSS_CORRELATE_H

#include "common/device/device.h"
#include "kernels/gnss/gnss_phase.h"

#define GNSS_MAX_ANTS   64
#define GNSS_MAX_TAPS   15
#define GNSS_MAX_PIECES 65535 /* maximum number of pieces of a launch; CUDA's grid has this limit */

/* Number of samples of a block.  A code phase wraps at most once in a block. */
#define GNSS_BLOCK_SAMPLES 1024

#define GNSS_CARRIER_BITS    8
#define GNSS_CARRIER_ENTRIES (1 << GNSS_CARRIER_BITS)
#define GNSS_AMPLITUDE       63 /* amplitude of the carrier; a replica with levels of +-2 then fits int8 */
/* maximum error of an entry: 63 pi / 256 from half of a range of phases, and sqrt(1/2) from rounding */
#define GNSS_CARRIER_ERROR 1.5

struct gnss_satellite {
    uint32_t table;               /* index of the table's first level in 'codes' */
    uint32_t n_subchips;          /* number of sub-chips in the table */
    uint64_t taps[GNSS_MAX_TAPS]; /* [tap]: 2^-48 sub-chips */
};

struct gnss_piece {
    uint64_t code_phase;    /* code phase of sample 0, 2^-48 sub-chips */
    uint64_t code_step;     /* advance of the code phase per sample, 2^-48 sub-chips */
    uint64_t carrier_phase; /* carrier phase of sample 0, 2^-64 turns */
    uint64_t carrier_step;  /* advance of the carrier phase per sample, 2^-64 turns, modulo 2^64 */
    int64_t first;          /* index of the piece's sample 0 in the row of an antenna with offset 0 */
    uint32_t n_samples;
    uint32_t satellite;
    uint32_t integration; /* index in 'sums' */
    uint32_t unused;
};

struct gnss_correlate_args {
    const int8_t *samples;                   /* [ant][pol][sample][re, im] */
    uint64_t pitch_samples;                  /* distance between the rows of an antenna's polarisations, in samples */
    const int8_t *carrier;                   /* [GNSS_CARRIER_ENTRIES][re, im] */
    const int8_t *codes;                     /* tables of sub-chips */
    const struct gnss_satellite *satellites; /* [satellite] */
    const int32_t *offsets;                  /* [satellite][ant] */
    const struct gnss_piece *pieces;         /* [n_pieces] */
    int64_t *sums;                           /* [integration][tap][ant][pol][re, im] */
    uint32_t n_pieces;
    uint32_t max_samples; /* largest n_samples of all pieces */
    uint32_t n_ants;
    uint32_t n_taps;
    uint32_t max_spread; /* gnss_correlate_mma is fast if an antenna's offsets differ by at most this number */
    uint32_t unused;
};

/* Removes the first 'n' samples of a piece.  The remaining samples keep their phases. */
static inline void gnss_piece_skip(struct gnss_piece *piece, uint32_t n_subchips, uint32_t n)
{
    piece->code_phase = gnss_code_at(piece->code_phase, piece->code_step, n, n_subchips);
    piece->carrier_phase += n * piece->carrier_step;
    piece->first += n;
    piece->n_samples -= n;
}

/* Writes the carrier's table, [GNSS_CARRIER_ENTRIES][re, im]: GNSS_AMPLITUDE e^{2 pi i phase} for the middle phase of
 * each entry. */
void gnss_carrier_table(int8_t *carrier);

/* Two CUDA variants of one plain C version: gnss_correlate for few antennas, gnss_correlate_mma for arrays.  Both take
 * the same arguments. */
extern const struct kernel gnss_correlate_kernel, gnss_correlate_mma_kernel;

/* Returns the CUDA variant for n_ants antennas. */
const struct kernel *gnss_correlate_variant(uint32_t n_ants);

/* gnss_correlate_constants() writes the constants with which a variant is compiled for the numbers of antennas and taps
 * and for 'max_spread'.  gnss_correlate_grid() returns the grid of a launch.  The device has 'n_multiprocessors'
 * multiprocessors, and a block has 'shared_bytes' of shared memory. */
#define GNSS_CORRELATE_N_CONSTANTS 8
void gnss_correlate_constants(const struct kernel *variant, const struct gnss_correlate_args *args, size_t shared_bytes,
                              struct kernel_constant *constants);
struct kernel_grid gnss_correlate_grid(const struct kernel *variant, const struct gnss_correlate_args *args,
                                       size_t shared_bytes, uint32_t n_multiprocessors);

#endif
