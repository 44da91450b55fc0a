/* gather.cu - see gather.h.
 *
 * A block copies piece blockIdx.x, and then every gridDim.x-th piece after it.  The block's threads copy the vectors of
 * the piece in turn.  The alignments of both addresses set the width of a vector.  The bytes before the first whole
 * vector and after the last whole vector are copied one by one.  Packets are read once, and chunks are not read again
 * soon, so loads and stores of vectors are marked as streaming.
 *
 * Constants: N_THREADS. */
#include "kernels/util/gather.h"

#define MAX_LOADS 4 /* maximum number of loads that a thread has in flight */

template <typename Vector>
static __device__ __forceinline__ void copy(const uint8_t *from, uint8_t *to, uint64_t n_bytes)
{
    uint64_t n_before = (sizeof(Vector) - (uintptr_t)to % sizeof(Vector)) % sizeof(Vector);

    n_before = n_before < n_bytes ? n_before : n_bytes;
    uint64_t n_vectors = (n_bytes - n_before) / sizeof(Vector);
    uint64_t end = n_before + n_vectors * sizeof(Vector);
    const Vector *in = (const Vector *)(from + n_before);
    Vector *out = (Vector *)(to + n_before);

    for (uint64_t i = threadIdx.x; i < n_vectors; i += MAX_LOADS * N_THREADS) {
        Vector loaded[MAX_LOADS];
#pragma unroll
        for (int k = 0; k < MAX_LOADS; k++)
            if (i + k * N_THREADS < n_vectors)
                loaded[k] = __ldcs(in + i + k * N_THREADS);
#pragma unroll
        for (int k = 0; k < MAX_LOADS; k++)
            if (i + k * N_THREADS < n_vectors)
                __stcs(out + i + k * N_THREADS, loaded[k]);
    }
    for (uint64_t i = threadIdx.x; i < n_before; i += N_THREADS)
        to[i] = from[i];
    for (uint64_t i = end + threadIdx.x; i < n_bytes; i += N_THREADS)
        to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(N_THREADS) gather(const struct gather_args args)
{
    for (uint64_t piece = blockIdx.x; piece < args.n_pieces; piece += gridDim.x) {
        const struct gather_piece p = args.pieces[piece];
        const uint8_t *from = (const uint8_t *)(uintptr_t)p.from;
        uint8_t *to = (uint8_t *)(uintptr_t)p.to;
        unsigned differ = (unsigned)((uintptr_t)from ^ (uintptr_t)to);

        if (differ % 16 == 0)
            copy<uint4>(from, to, p.n_bytes);
        else if (differ % 8 == 0)
            copy<uint2>(from, to, p.n_bytes);
        else if (differ % 4 == 0)
            copy<uint32_t>(from, to, p.n_bytes);
        else
            copy<uint8_t>(from, to, p.n_bytes);
    }
}
