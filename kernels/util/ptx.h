/* ptx.h - PTX instructions that several kernels use and for which CUDA C has no function.  Each instruction has an
 * emulation.  NVIDIA's manual "PTX ISA" documents the instructions. */
#ifndef KERNELS_UTIL_PTX_H
#define KERNELS_UTIL_PTX_H

#include <stdint.h>

/* Type of a shared-memory address in PTX instructions. */
#ifdef EMULATE_CUDA
typedef uint8_t *shared_address;
#else
typedef uint32_t shared_address;
#endif

static __device__ __forceinline__ shared_address shared_address_of(const void *shared)
{
#ifdef EMULATE_CUDA
    return (uint8_t *)shared;
#else
    return (uint32_t)__cvta_generic_to_shared(shared);
#endif
}

/* Returns 'x', but hides the value of 'x' from the compiler.  Otherwise the compiler would compute values from 'x' too
 * early.  These values would occupy registers that the sums need. */
static __device__ __forceinline__ uint32_t opaque(uint32_t x)
{
#ifndef EMULATE_CUDA
    asm volatile("" : "+r"(x));
#endif
    return x;
}

static __device__ __forceinline__ shared_address opaque_address(shared_address address)
{
#ifdef EMULATE_CUDA
    return address;
#else
    return opaque(address);
#endif
}

/* ---- Copies to shared memory: cp.async --------------------------------------------------------------------------- */

/* Starts a copy of 16 bytes. */
static __device__ __forceinline__ void copy_async(void *to, const void *from)
{
#ifdef EMULATE_CUDA
    emulate_copy_async(to, from, 16);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address_of(to)), "l"(from) : "memory");
#endif
}

/* Starts a copy of 8 bytes. */
static __device__ __forceinline__ void copy_async_8(void *to, const void *from)
{
#ifdef EMULATE_CUDA
    emulate_copy_async(to, from, 8);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address_of(to)), "l"(from) : "memory");
#endif
}

/* Starts a copy of 4 bytes. */
static __device__ __forceinline__ void copy_async_4(shared_address to, const void *from)
{
#ifdef EMULATE_CUDA
    emulate_copy_async(to, from, 4);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
#endif
}

/* Ends a group of this thread's copies. */
static __device__ __forceinline__ void copies_commit(void)
{
#ifdef EMULATE_CUDA
    emulate_copies_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until all groups of this thread's copies have finished, except the last N groups. */
template <int N> static __device__ __forceinline__ void copies_wait(void)
{
#ifdef EMULATE_CUDA
    emulate_copies_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* Waits for all of this thread's copies, whether they are in a group or not. */
static __device__ __forceinline__ void copies_wait_all(void)
{
#ifdef EMULATE_CUDA
    emulate_copies_commit();
    emulate_copies_wait(0);
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* ---- Other memory ------------------------------------------------------------------------------------------------ */

/* Fetches 32 bytes into the L2 cache. */
static __device__ __forceinline__ void prefetch(const void *from)
{
#ifndef EMULATE_CUDA
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

/* Orders this thread's accesses to shared memory before the accesses of bulk copies and of wgmma (compute capability
 * 9.0). */
static __device__ __forceinline__ void fence_proxy_async(void)
{
#ifndef EMULATE_CUDA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- Registers (compute capability 9.0) -------------------------------------------------------------------------- */

/* Moves registers from the producers' warps, which need few registers, to the consumers' warps, which hold sums.  A
 * block has only the registers with which it begins.  A warp that requests more registers than are free never
 * continues. */
template <int N> static __device__ __forceinline__ void setmaxnreg_dec(void)
{
#ifndef EMULATE_CUDA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N> static __device__ __forceinline__ void setmaxnreg_inc(void)
{
#ifndef EMULATE_CUDA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Returns 'sum' plus two products: the signed 16-bit numbers of 'a' times the two low bytes of 'b', which are
 * unsigned. */
static __device__ __forceinline__ int dot_low(uint32_t a, uint32_t b, int sum)
{
#ifdef EMULATE_CUDA
    return sum + (int16_t)a * (uint8_t)b + (int16_t)(a >> 16) * (uint8_t)(b >> 8);
#else
    asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#endif
}

/* Multiplies the two signed 16-bit numbers of 'a' by the two high bytes of 'b'.  These bytes are signed.  Returns 'sum'
 * plus both products. */
static __device__ __forceinline__ int dot_high(uint32_t a, uint32_t b, int sum)
{
#ifdef EMULATE_CUDA
    return sum + (int16_t)a * (int8_t)(b >> 16) + (int16_t)(a >> 16) * (int8_t)(b >> 24);
#else
    asm("dp2a.hi.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
#endif
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* ldmatrix: loads four matrices.  A matrix has 8 rows, and a row has 16 bytes.  Lane i gives the address of row (i % 8)
 * of matrix (i / 8).  Lane i gets one word from each matrix: word (i % 4) of row (i / 4). */
static __device__ __forceinline__ void load_matrices(uint32_t (&words)[4], shared_address row)
{
#ifdef EMULATE_CUDA
    unsigned lane = threadIdx.x % 32;

    for (unsigned i = 0; i < 4; i++) {
        uint64_t from = __shfl_sync(~0u, (uint64_t)(uintptr_t)row, (int)(8 * i + lane / 4));
        words[i] = ((const uint32_t *)(uintptr_t)from)[lane % 4];
    }
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
#endif
}

/* mma: c += a b.  a is 16 rows of 16 half floats, b is 8 columns of 16 half floats.  Lane 4 g + t holds the elements
 * of c in rows g and g + 8 and in columns 2 t and 2 t + 1. */
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#ifdef EMULATE_CUDA
    emulate_mma_f16(c, a, b0, b1);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* mma: c += a b.  a is 16 rows of 32 bytes, b is 8 columns of 32 bytes. */
static __device__ __forceinline__ void multiply_add(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#ifdef EMULATE_CUDA
    emulate_mma_s8(c, a, b0, b1);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

#endif
