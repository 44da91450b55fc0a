/* bulk_copy.h - copies of many bytes to shared memory, each asked for by one lane, for the CUDA kernels (PTX's
 * cp.async.bulk, from compute capability 9.0 on).  They bypass the L1 cache, and arrive at a barrier when they are
 * done. */
#ifndef KERNELS_UTIL_BULK_COPY_H
#define KERNELS_UTIL_BULK_COPY_H

#include "kernels/util/barrier.h"

/* Which warp of the block, so that the compiler sees that all lanes have the same. */
static __device__ __forceinline__ uint32_t uniform_warp(void)
{
    return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

/* One lane of the warp. */
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

/* Copies on their way.  The emulator copies the data when a thread waits for them.  Until then the destination is
 * poisoned. */
static struct {
    void *to;
    const void *from;
    uint32_t n_bytes;
    uint64_t *barrier;   /* NULL: none */
} emulated_copies[1024]; /* more than lines of a tile in shared memory */

static uint32_t emulated_expected; /* bytes whose copies have not been asked for yet */

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

    assert((uintptr_t)to % 16 == 0 && (uintptr_t)from % 16 == 0 && n_bytes % 16 == 0); /* an illegal instruction else */
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

/* By the lane that has made barriers, before copies arrive at them. */
static __device__ __forceinline__ void bulk_fence_barriers(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_proxy_async();
}

/* Arrives, and makes the barrier wait for n_bytes bytes. */
static __device__ __forceinline__ void bulk_expect(uint64_t *barrier, uint32_t n_bytes)
{
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address_of(barrier)),
        "r"(n_bytes)
        : "memory");
}

/* Multiples of 16 bytes, to a multiple of 16 bytes from one. */
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
