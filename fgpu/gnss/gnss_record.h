/* gnss_record.h - the record of one integration in a heap of satellite sums, as it is sent.
 *
 * Heap:      a heap has one record for each integration that ended in a chunk.  The records are consecutive.  The
 *            unused records after these records are filled with zeros, so their 'prn' is 0.
 * Measured:  the signal's carrier phase at 'timestamp' is the replica's phase plus the phase of the prompt sum.  The
 *            signal's code phase is the replica's code phase plus the offset that early and late sums show.
 * Time:      'timestamp' is the ADC timestamp of a complex sample.  The filter computes the complex sample from several
 *            ADC samples.  'timestamp' is the timestamp of the first of these ADC samples.  The signal in the complex
 *            sample is (taps - 1) / 2 ADC samples later than 'timestamp'.
 * Units:     sums are in units of the baseband's samples times the replica's amplitude, GNSS_AMPLITUDE.  All sums
 *            are exact.
 * Bytes:     little-endian, as in memory. */
#ifndef FGPU_GNSS_GNSS_RECORD_H
#define FGPU_GNSS_GNSS_RECORD_H

#include "common/base/units.h"
#include "fgpu/gnss/gnss_track.h"

enum fgpu_gnss_flag {
    FGPU_GNSS_CODE_LOCKED = 1,
    FGPU_GNSS_CARRIER_LOCKED = 2,
    FGPU_GNSS_HALF_TURN = 4, /* the carrier's phase may be off by half a turn */
};

struct fgpu_gnss_record {
    /* ADC timestamp of the integration's middle sample, modulo 2^48; the phases below apply to this sample */
    int64_t timestamp;
    int64_t code_period;    /* number of code periods since the acquisition */
    double code_phase;      /* replica's code phase, in chips from the period's start */
    int64_t carrier_cycles; /* replica's whole cycles in the baseband since the acquisition */
    double carrier_phase;   /* rest of the replica's phase, from 0 to below 1 cycle */
    double doppler;         /* doppler in Hz, doppler_rate in Hz/s: the loops' estimates after the integration */
    double doppler_rate;
    double sums[FGPU_GNSS_N_TAPS][N_POLS][2]; /* early, prompt, late */
    float cn0[N_POLS];                        /* dB-Hz */
    uint32_t n_samples;                       /* number of complex samples in the whole integration */
    uint32_t n_present;                       /* number of these samples that arrived */
    uint16_t prn, signal;                     /* enum gnss_signal */
    uint16_t stage, flags;                    /* enum fgpu_gnss_stage of the integration, enum fgpu_gnss_flag */
    int32_t symbol_period; /* index of the code period in its symbol or secondary code; -1: not known */
    uint32_t n_starts;     /* number of acquisitions of the satellite so far */
};

/* The numpy dtype of a record. */
#define FGPU_GNSS_RECORD_DTYPE                                                                                         \
    "[('timestamp', '<i8'), ('code_period', '<i8'), ('code_phase', '<f8'), ('carrier_cycles', '<i8'), "                \
    "('carrier_phase', '<f8'), ('doppler', '<f8'), ('doppler_rate', '<f8'), ('sums', '<f8', (3, 2, 2)), "              \
    "('cn0', '<f4', (2,)), ('n_samples', '<u4'), ('n_present', '<u4'), ('prn', '<u2'), ('signal', '<u2'), "            \
    "('stage', '<u2'), ('flags', '<u2'), ('symbol_period', '<i4'), ('n_starts', '<u4')]"

_Static_assert(sizeof(struct fgpu_gnss_record) == 184, "a record must have no padding");

#endif
