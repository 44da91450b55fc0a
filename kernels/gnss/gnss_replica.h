/* gnss_replica.h - the replica of a thread, for the CUDA variants of gnss_correlate.  A thread processes every
 * N_THREADS-th sample of a piece.  Carrier and code advance by N_THREADS steps, at most GNSS_BLOCK_SAMPLES steps.
 *
 * This file uses the constants N_TAPS and N_THREADS. */
#ifndef KERNELS_GNSS_GNSS_REPLICA_H
#define KERNELS_GNSS_GNSS_REPLICA_H

#include "kernels/gnss/gnss_correlate.h"

struct replica {
    uint64_t length, taps[N_TAPS];
    /* phases of the current sample, and steps of the phases to the thread's next sample */
    uint64_t code, code_step, carrier, carrier_step;
    const int8_t *table;
};

/* Returns the thread's replica, beginning at sample 'first' of a piece. */
static __device__ __forceinline__ struct replica replica_begin(const struct gnss_correlate_args &args,
                                                               const struct gnss_piece &piece, uint32_t first)
{
    const struct gnss_satellite &satellite = args.satellites[piece.satellite];
    struct replica r;

    r.length = gnss_code_length(satellite.n_subchips);
    r.table = args.codes + satellite.table;
    r.code = gnss_code_at(piece.code_phase, piece.code_step, first, satellite.n_subchips);
    r.code_step = gnss_code_at(0, piece.code_step, N_THREADS, satellite.n_subchips);
    r.carrier = piece.carrier_phase + first * piece.carrier_step;
    r.carrier_step = N_THREADS * piece.carrier_step;
#pragma unroll
    for (int tap = 0; tap < N_TAPS; tap++)
        r.taps[tap] = satellite.taps[tap];
    return r;
}

/* Returns the carrier of a sample from the table in shared memory. */
static __device__ __forceinline__ char2 replica_carrier(const struct replica &r, const char2 *carrier)
{
    return carrier[r.carrier >> (64 - GNSS_CARRIER_BITS)];
}

static __device__ __forceinline__ int replica_level(const struct replica &r, int tap)
{
    return __ldg(r.table + (gnss_code_add(r.code, r.taps[tap], r.length) >> GNSS_CODE_BITS));
}

static __device__ __forceinline__ void replica_next(struct replica &r)
{
    r.code = gnss_code_add(r.code, r.code_step, r.length);
    r.carrier += r.carrier_step;
}

/* Copies the carrier's table to shared memory.  The caller must wait at a barrier of the block before a thread reads
 * the table. */
static __device__ __forceinline__ void copy_carrier(const struct gnss_correlate_args &args, char2 *carrier)
{
    for (uint32_t i = threadIdx.x; i < GNSS_CARRIER_ENTRIES; i += N_THREADS)
        carrier[i] = ((const char2 *)args.carrier)[i];
}

/* Returns the address of the sums for one tap and one input of an integration. */
static __device__ __forceinline__ int64_t *sums_of(const struct gnss_correlate_args &args, uint32_t integration,
                                                   uint32_t tap, uint32_t input)
{
    const uint64_t n_inputs = args.n_ants * 2;

    return args.sums + (((uint64_t)integration * N_TAPS + tap) * n_inputs + input) * 2;
}

static __device__ __forceinline__ void add_to(int64_t *sum, int value)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)(int64_t)value);
}

#endif
