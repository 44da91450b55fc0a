/* correlate_wgmma_slots.h - shared memory of correlate_wgmma.cu and correlate_whole.cu, and the barriers of its slots.
 * With these barriers, producer and consumer warpgroups hand over the slots.
 *
 * Include this file after correlate_wgmma_formats.h. */
#ifndef KERNELS_CORRELATE_CORRELATE_WGMMA_SLOTS_H
#define KERNELS_CORRELATE_CORRELATE_WGMMA_SLOTS_H

#include "kernels/util/barrier.h"
#include "kernels/util/ptx.h"

#ifdef EMULATE_CUDA
static void store_word(shared_address to, uint32_t word)
{
    *(uint32_t *)to = word;
}

static void store_words(shared_address to, const uint32_t (&words)[4])
{
    for (int i = 0; i < 4; i++)
        store_word(to + 4 * i, words[i]);
}

static int load_int(shared_address from)
{
    return *(const int *)from;
}

static int2 load_ints(shared_address from)
{
    return {load_int(from), load_int(from + 4)};
}

static shared_address find_shared(const void *shared)
{
    return (uint8_t *)shared;
}

static uint64_t *find_barrier(shared_address at)
{
    return (uint64_t *)at;
}
#else
static __device__ __forceinline__ void store_word(shared_address to, uint32_t word)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

static __device__ __forceinline__ void store_words(shared_address to, const uint32_t (&words)[4])
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

static __device__ __forceinline__ int load_int(shared_address from)
{
    int value;

    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
    return value;
}

static __device__ __forceinline__ int2 load_ints(shared_address from)
{
    int2 two;

    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(two.x), "=r"(two.y) : "r"(from) : "memory");
    return two;
}

static __device__ __forceinline__ shared_address find_shared(const void *shared)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);

    asm volatile("" : "+r"(address)); /* with this form, the compiler computes the address only once */
    return address;
}

static __device__ __forceinline__ uint64_t *find_barrier(shared_address at)
{
    return (uint64_t *)__cvta_shared_to_generic(at);
}
#endif

/* Returns the address of a slot's sums of columns: int32 [ant][pol] (correlate_wgmma.cu) or [pol][ant]
 * (correlate_whole.cu). */
static __device__ __forceinline__ shared_address sum_slot(shared_address shared, uint32_t slot)
{
    return shared + SUMS_AT + slot % N_SUM_SLOTS * SUM_SLOT_BYTES;
}

/* ---- Barriers ---------------------------------------------------------------------------------------------------- */

/* Returns barrier 'which' of a slot.  A slot of shared memory has the voltages of one stage.  The threads of one
 * producer fill the slot, and the threads of all consumers empty it.  Each of the N_STAGES slots has two barriers,
 * which lie after the column sums.  Barrier 0 means full and opens after GROUP_THREADS arrivals.  Barrier 1 means empty
 * and opens after N_GROUPS * GROUP_THREADS arrivals. */
static __device__ __forceinline__ uint64_t *slot_barrier(shared_address shared, uint32_t slot, uint32_t which)
{
    return find_barrier(shared + BARRIERS_AT + slot % N_STAGES * 16 + which * 8);
}

static __device__ __forceinline__ void begin_slots(shared_address shared)
{
    if (threadIdx.x == 0)
        for (uint32_t slot = 0; slot < N_STAGES; slot++) {
            barrier_init(slot_barrier(shared, slot, 0), GROUP_THREADS);
            barrier_init(slot_barrier(shared, slot, 1), N_GROUPS * GROUP_THREADS);
        }
    __syncthreads();
}

static __device__ __forceinline__ void hand_over_slot(shared_address shared, uint32_t slot)
{
    barrier_arrive(slot_barrier(shared, slot, 0));
}

static __device__ __forceinline__ void wait_for_stage(shared_address shared, uint32_t slot)
{
    barrier_wait(slot_barrier(shared, slot, 0), slot / N_STAGES);
}

/* Releases a slot for the producers.  Every consumer thread calls this function after reading the stage and the column
 * sums of earlier slots. */
static __device__ __forceinline__ void release_slot(shared_address shared, uint32_t slot, uint32_t n_slots)
{
    if (slot + N_STAGES < n_slots) /* if this stage does not exist, no thread waits for the slot */
        barrier_arrive(slot_barrier(shared, slot, 1));
}

static __device__ __forceinline__ void wait_for_slot(shared_address shared, uint32_t slot)
{
    if (slot >= N_STAGES)
        barrier_wait(slot_barrier(shared, slot, 1), slot / N_STAGES - 1);
}

#endif
