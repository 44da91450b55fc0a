/* cuda_on_cpu.h - keywords, vector types and intrinsics of CUDA C for g++, which compiles .cu files for the emulator.
 *
 * emulate.cpp, which runs the launch, includes this file before the kernel.  The file has only the functions that our
 * kernels use.  Add functions as kernels need them.  EMULATE_CUDA is defined, so that a kernel can give a plain
 * alternative to inline assembly.
 *
 * Names:     functions here must not be in the C library's <math.h>.  glibc 2.41 declares sinpif and cospif; glibc
 *            2.42 also declares rsqrtf.  For a kernel that needs one of these functions, add a macro here.
 * Exactness: a function that is exact on the device is exact here.  __sinf and __cosf are as inaccurate as on the
 *            device, so a kernel that needs more accuracy also fails here.  g++ fuses no multiplication and addition
 *            to an FMA; the device's compiler does. */
#ifndef TESTS_FAKES_EMULATOR_CUDA_ON_CPU_H
#define TESTS_FAKES_EMULATOR_CUDA_ON_CPU_H

#include <cassert>
#include <cstdint>
#include <cstring>
#include <type_traits>

/* Leaves out C++17's special functions: their compilation would take a sixth of a kernel's compilation time. */
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>

#define EMULATE_CUDA 1

#define __global__
#define __device__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    alignas(n)
#define __launch_bounds__(...)

/* ---- Vectors, aligned as on the device: emulate.cpp is compiled so that a misaligned access ends the program ------- */

#define VECTOR2(name, type, alignment)                                                                                 \
    struct alignas(alignment) name {                                                                                   \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    static inline name make_##name(type x, type y)                                                                     \
    {                                                                                                                  \
        return name{x, y};                                                                                             \
    }
#define VECTOR4(name, type, alignment)                                                                                 \
    struct alignas(alignment) name {                                                                                   \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    static inline name make_##name(type x, type y, type z, type w)                                                     \
    {                                                                                                                  \
        return name{x, y, z, w};                                                                                       \
    }

VECTOR2(char2, signed char, 2)
VECTOR4(char4, signed char, 4)
VECTOR2(uchar2, unsigned char, 2)
VECTOR4(uchar4, unsigned char, 4)
VECTOR2(short2, short, 4)
VECTOR4(short4, short, 8)
VECTOR2(ushort2, unsigned short, 4)
VECTOR4(ushort4, unsigned short, 8)
VECTOR2(int2, int, 8)
VECTOR4(int4, int, 16)
VECTOR2(uint2, unsigned int, 8)
VECTOR4(uint4, unsigned int, 16)
VECTOR2(float2, float, 8)
VECTOR4(float4, float, 16)
VECTOR2(double2, double, 16)
VECTOR2(longlong2, long long, 16)
VECTOR2(ulonglong2, unsigned long long, 16)

struct uint3 {
    unsigned int x, y, z;
};
typedef uint3 dim3;

/* ---- Indices of a thread, and functions of several threads; emulate.cpp provides both ----------------------------- */

extern uint3 threadIdx, blockIdx, blockDim, gridDim;

enum emulate_warp_kind { WARP_SYNC, WARP_SHUFFLE, WARP_BALLOT };
void emulate_block_barrier();
/* Waits for the lanes of 'mask'.  Returns the 'value' of lane 'source'.  For WARP_BALLOT, returns a mask of the lanes
 * whose 'value' is not 0. */
uint64_t emulate_warp(enum emulate_warp_kind kind, unsigned mask, unsigned source, uint64_t value);

static inline void __syncthreads()
{
    emulate_block_barrier();
}

/* PTX's bar.sync with a number of threads.  The barrier opens when 'n_threads' threads have arrived. */
void emulate_barrier_wait(unsigned barrier, unsigned n_threads);

/* The functions of kernels/util/barrier.h, for barriers in shared memory. */
void emulate_memory_barrier_init(uint64_t *barrier, uint32_t n_threads);
void emulate_memory_barrier_arrive(uint64_t *barrier);
void emulate_memory_barrier_wait(uint64_t *barrier, uint32_t opening);

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulate_warp(WARP_SYNC, mask, 0, 0);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)emulate_warp(WARP_BALLOT, mask, 0, predicate != 0);
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

template <typename T> static inline T emulate_shuffle(unsigned mask, T value, unsigned source)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = emulate_warp(WARP_SHUFFLE, mask, source, bits);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    unsigned lane = threadIdx.x % 32;
    return emulate_shuffle(mask, value, (lane & ~(width - 1u)) | ((unsigned)source & (width - 1u)));
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    unsigned lane = threadIdx.x % 32, source = lane ^ (unsigned)lanes;
    return emulate_shuffle(mask, value, (source & ~(width - 1u)) <= (lane & ~(width - 1u)) ? source : lane);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    unsigned lane = threadIdx.x % 32;
    return emulate_shuffle(mask, value, (lane & (width - 1u)) + delta < (unsigned)width ? lane + delta : lane);
}

/* The emulator runs one thread at a time, so these functions need no atomic instructions. */
template <typename T> static inline T atomicAdd(T *sum, typename std::common_type<T>::type value)
{
    T old = *sum;
    *sum = old + value;
    return old;
}

template <typename T> static inline T atomicMin(T *least, typename std::common_type<T>::type value)
{
    T old = *least;
    *least = old < value ? old : value;
    return old;
}

template <typename T> static inline T atomicMax(T *greatest, typename std::common_type<T>::type value)
{
    T old = *greatest;
    *greatest = old > value ? old : value;
    return old;
}

/* ---- Matrices: mma.sync.  Every lane writes its registers to an array that all lanes read. --------------------------- */

extern uint32_t emulate_registers[32][32][6]; /* [warp][lane][a0 to a3, b0, b1] */

/* Row and column of a lane's c[i] in the 16 x 8 matrix (PTX ISA, matrix fragments of mma). */
#define EMULATE_ROW(lane, i)    ((lane) / 4 + (i) / 2 * 8)
#define EMULATE_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2)

/* Multiplies two matrices.  Adds to each c[i] the products of its row of 'a' with its column of 'b'. */
template <typename T, typename M>
static inline void emulate_mma(T (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, M multiply)
{
    unsigned lane = threadIdx.x % 32;
    uint32_t(*registers)[6] = emulate_registers[threadIdx.x / 32];

    for (int i = 0; i < 4; i++)
        registers[lane][i] = a[i];
    registers[lane][4] = b0;
    registers[lane][5] = b1;
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = EMULATE_ROW(lane, i), column = EMULATE_COLUMN(lane, i);
        for (unsigned k = 0; k < 8; k++) /* a row has 8 registers: two in each of four lanes */
            c[i] = multiply(registers[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2],
                            registers[column * 4 + k % 4][4 + k / 4], c[i]);
    }
    __syncwarp();
}

static inline int emulate_dp4a(uint32_t a, uint32_t b, int sum)
{
    for (int i = 0; i < 4; i++)
        sum = (int)((unsigned)sum + (unsigned)((int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i))));
    return sum;
}

/* A register holds two half floats. */
static inline float emulate_half(uint32_t halves, int which)
{
    _Float16 half;
    uint16_t bits = (uint16_t)(halves >> (16 * which));
    memcpy(&half, &bits, sizeof(half));
    return (float)half;
}

static inline float emulate_dot2(uint32_t a, uint32_t b, float sum)
{
    return sum + (emulate_half(a, 0) * emulate_half(b, 0) + emulate_half(a, 1) * emulate_half(b, 1));
}

/* The instructions mma m16n8k32.row.col.s32.s8.s8.s32 and m16n8k16.row.col.f32.f16.f16.f32, which add to 'c'. */
static inline void emulate_mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulate_mma(c, a, b0, b1, emulate_dp4a);
}

static inline void emulate_mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulate_mma(c, a, b0, b1, emulate_dot2);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

/* cp.async.  The destination gets the bytes when the thread waits for the copy, not before. */
void emulate_copy_async(void *to, const void *from, unsigned bytes);
void emulate_copies_commit();
/* Waits for all committed groups of copies except the last 'n'. */
void emulate_copies_wait(unsigned n);

template <typename T> static inline T __ldg(const T *from)
{
    return *from;
}
#define __ldcg __ldg
#define __ldcs __ldg

template <typename T> static inline void __stcs(T *to, T value)
{
    *to = value;
}
#define __stcg __stcs

/* ---- Bits --------------------------------------------------------------------------------------------------------- */

template <typename To, typename From> static inline To emulate_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

#define __float_as_uint(x) emulate_bits<unsigned, float>(x)
#define __float_as_int(x)  emulate_bits<int, float>(x)
#define __uint_as_float(x) emulate_bits<float, unsigned>(x)
#define __int_as_float(x)  emulate_bits<float, int>(x)

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* Selects four of the eight bytes of 'a' and 'b'.  The function uses the three low bits of each selector.  PTX's prmt
 * uses a fourth bit. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;

    for (int i = 0; i < 4; i++)
        out |= ((unsigned)(bytes >> (8 * (selector >> (4 * i) & 7))) & 255) << (8 * i);
    return out;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* Returns 'sum' plus the four products of corresponding signed bytes. */
static inline int __dp4a(int a, int b, int sum)
{
    for (int i = 0; i < 4; i++)
        sum += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
    return sum;
}

/* Returns 'sum' plus two products: the two signed 16-bit numbers of 'a' times the two low (or high) signed bytes of
 * 'b'. */
static inline int __dp2a_lo(int a, int b, int sum)
{
    return sum + (int16_t)a * (int8_t)b + (int16_t)(a >> 16) * (int8_t)(b >> 8);
}

static inline int __dp2a_hi(int a, int b, int sum)
{
    return __dp2a_lo(a, b >> 16, sum);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------ */

template <typename A, typename B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    if constexpr (std::is_floating_point<T>::value) /* if one number is NaN, the result is the other number */
        return a < b || b != b ? (T)a : (T)b;
    else
        return (T)a < (T)b ? (T)a : (T)b;
}

template <typename A, typename B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    if constexpr (std::is_floating_point<T>::value)
        return a > b || b != b ? (T)a : (T)b;
    else
        return (T)a > (T)b ? (T)a : (T)b;
}

/* Converts as the device does: saturates, and NaN becomes 0. */
static inline int emulate_to_int(float x)
{
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)x;
}

#define __float2int_rn(x) emulate_to_int(rintf(x))

/* a + b rounded down; exact only if double precision holds the sum. */
static inline float __fadd_rd(float a, float b)
{
    double sum = (double)a + (double)b;
    float rounded = (float)sum;

    return (double)rounded > sum ? nextafterf(rounded, -INFINITY) : rounded;
}

static inline void sincospif(float x, float *sine, float *cosine)
{
    double turn = remainder((double)x, 2);
    *sine = (float)sin(M_PI * turn);
    *cosine = (float)cos(M_PI * turn);
}

/* A function of the special function unit.  Rounds the angle (in turns) to float.  Rounds the result to a multiple of
 * 2^-21.  (In the CUDA C++ guide the largest errors within +-pi are 2^-21.41 and 2^-21.19.) */
static inline float emulate_coarse(double (*function)(double), float x)
{
    float turns = x * 0.15915494f;
    return (float)(rint(function(2 * M_PI * (double)turns) * 0x1p21) * 0x1p-21);
}

#define __sinf(x)                  emulate_coarse(sin, x)
#define __cosf(x)                  emulate_coarse(cos, x)
#define __sincosf(x, sine, cosine) (*(sine) = __sinf(x), *(cosine) = __cosf(x), (void)0)

#endif
