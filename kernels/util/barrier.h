/* barrier.h - barriers in shared memory (PTX's mbarrier), for the CUDA kernels.
 *
 * A barrier opens when n_threads threads (barrier_init()) and the expected bytes have arrived.  Then the barrier
 * counts from 0 again for its next opening.  A thread may wait without arriving.  A waiting thread passes the
 * number of an opening to barrier_wait().  This opening must be the last opening or the next opening.  The first
 * opening is number 0.  Data written before an arrival are visible after the wait.
 *
 * Every lane that has read or written the guarded data must arrive.  The arrival of one lane of a warp after a
 * __syncwarp() would suffice, but is no faster.  CUDA's tool racecheck cannot check such an arrival. */
#ifndef KERNELS_UTIL_BARRIER_H
#define KERNELS_UTIL_BARRIER_H

#include "kernels/util/ptx.h"

#ifdef EMULATE_CUDA

#define barrier_init      emulate_memory_barrier_init
#define barrier_arrive    emulate_memory_barrier_arrive
#define barrier_wait      emulate_memory_barrier_wait
#define barrier_wait_long emulate_memory_barrier_wait

#else

/* Initialises a barrier.  One thread calls this function; a __syncthreads() follows before other threads use the
 * barrier. */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t n_threads)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address_of(barrier)), "r"(n_threads) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address_of(barrier))
                 : "memory");
}

/* Waits in a loop until the barrier has opened.  The compiler moves no instruction from before the loop to after the
 * loop. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t opening)
{
    uint32_t open;

    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(open)
                     : "r"(shared_address_of(barrier)), "r"(opening % 2)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(open)
                     : "r"(shared_address_of(barrier)), "r"(opening % 2)
                     : "memory");
#endif
    } while (!open);
}

#if __CUDA_ARCH__ >= 900
/* Does the same as barrier_wait(), for longer waits.  The warp may sleep for up to 10 ms, so the warp takes hardly any
 * issue slots from other warps (from compute capability 9.0 on). */
static __device__ __forceinline__ void barrier_wait_long(uint64_t *barrier, uint32_t opening)
{
    uint32_t open;

    do {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 10000000; selp.u32 %0, 1, 0, p; }"
            : "=r"(open)
            : "r"(shared_address_of(barrier)), "r"(opening % 2)
            : "memory");
    } while (!open);
}
#endif

#endif
#endif
