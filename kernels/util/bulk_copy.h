/* bulk_copy.h - bulk copies to shared memory for the CUDA kernels (PTX's cp.async.bulk, from compute capability 9.0
 * on).  One lane starts each copy.  The copies bypass the L1 cache.  When a copy has finished, it arrives at a
 * barrier. */
#ifndef KERNELS_UTIL_BULK_COPY_H
#define KERNELS_UTIL_BULK_COPY_H

#include "kernels/util/barrier.h"

/* Returns the warp's index in the block.  The shuffle tells the compiler that all lanes have the same value. */
static __device__ __forceinline__ uint32_t uniform_warp(void)
{
    return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

/* Returns true for one lane of the warp. */
static __device__ __forceinline__ bool elect_lane(void)
{
#ifdef EMULATE_CUDA
    return threadIdx.x % 32 == 0;
#else
    uint32_t elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    return elected;
#endif
}

#ifdef EMULATE_CUDA

/* Copies in flight.  The emulator copies the data when a thread waits for the copies.  Until then the destination is
 * poisoned. */
static struct {
    void *to;
    const void *from;
    uint32_t n_bytes;
    uint64_t *barrier;   /* NULL: no copy */
} emulated_copies[1024]; /* a tile has fewer copies */

/* number of bytes that the barrier expects, minus the number of bytes of started copies */
static uint32_t emulated_expected;

static void bulk_fence_barriers(void)
{
}

static void bulk_expect(uint64_t *barrier, uint32_t n_bytes)
{
    assert(emulated_expected == 0);
    emulated_expected = n_bytes;
    barrier_arrive(barrier);
}

static void bulk_copy(void *to, const void *from, uint32_t n_bytes, uint64_t *barrier)
{
    int i = 0;

    assert((uintptr_t)to % 16 == 0 && (uintptr_t)from % 16 == 0 && n_bytes % 16 == 0); /* required by a GPU */
    while (emulated_copies[i].barrier) {
        i++;
        assert(i < 1024);
    }
    assert(n_bytes <= emulated_expected);
    emulated_expected -= n_bytes;
    emulated_copies[i] = {to, from, n_bytes, barrier};
    memset(to, 0xA5, n_bytes);
}

static void bulk_wait(uint64_t *barrier, uint32_t opening)
{
    barrier_wait(barrier, opening);
    assert(emulated_expected == 0);
    for (auto &copy : emulated_copies)
        if (copy.barrier == barrier) {
            memcpy(copy.to, copy.from, copy.n_bytes);
            copy.barrier = NULL;
        }
}

#else

/* Makes initialised barriers visible to bulk copies.  The lane that has initialised the barriers calls this function
 * before any copy starts. */
static __device__ __forceinline__ void bulk_fence_barriers(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_proxy_async();
}

/* Arrives at the barrier, and makes the barrier wait until copies have written 'n_bytes' bytes. */
static __device__ __forceinline__ void bulk_expect(uint64_t *barrier, uint32_t n_bytes)
{
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address_of(barrier)),
        "r"(n_bytes)
        : "memory");
}

/* Starts a copy.  Both addresses and n_bytes are multiples of 16. */
static __device__ __forceinline__ void bulk_copy(void *to, const void *from, uint32_t n_bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address_of(to)),
                 "l"(from), "r"(n_bytes), "r"(shared_address_of(barrier))
                 : "memory");
}

static __device__ __forceinline__ void bulk_wait(uint64_t *barrier, uint32_t opening)
{
    barrier_wait(barrier, opening);
}

#endif
#endif
