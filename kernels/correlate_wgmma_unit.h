/* correlate_wgmma_unit.h - see correlate_wgmma.cu, which includes it behind its sizes: the matrix unit of compute
 * capability 9.0, what PTX calls wgmma, and what stands for it where kernels are emulated. */
#ifndef KERNELS_CORRELATE_WGMMA_UNIT_H
#define KERNELS_CORRELATE_WGMMA_UNIT_H

/* Sums of a thread, of plain rows and of turned ones: [column / 8][row i, row i + 8][column % 2]. */
#define N_PARTIAL COL_ANTS

#ifdef EMULATE_CUDA
/* sums += rows of 'a' times columns of 'b', which begin with column 0 of the operation; 32 bytes of each. */
static void emulate_multiply(partial *sums, const uint32_t *a, const uint8_t *stage, unsigned column, unsigned step,
                             unsigned n_columns)
{
    unsigned lane = threadIdx.x % 32;
    uint32_t rows[2][8]; /* 32 bytes of rows i and i + 8 */

    for (unsigned r = 0; r < 4; r++)
        for (unsigned t = 0; t < 4; t++)
            rows[r % 2][r / 2 * 4 + t] = __shfl_sync(~0u, a[r], (lane & ~3u) + t);
    for (unsigned tile = 0; tile < n_columns / 8; tile++)
        for (unsigned c = 0; c < 2; c++) {
            unsigned n = column + 8 * tile + lane % 4 * 2 + c;
            for (unsigned word = 0; word < 8; word++) {
                unsigned chunk = (2 * step + word / 4) ^ n % 8;
                uint32_t b = *(const uint32_t *)(stage + n * COLUMN_BYTES + 16 * chunk + word % 4 * 4);
                for (unsigned r = 0; r < 2; r++)
#if HALVES
                    sums[4 * tile + 2 * r + c] = emulate_dot2(rows[r][word], b, sums[4 * tile + 2 * r + c]);
#else
                    sums[4 * tile + 2 * r + c] = emulate_dp4a(rows[r][word], b, sums[4 * tile + 2 * r + c]);
#endif
            }
        }
}

#define matrix_begin()
#define matrix_end()
#define matrix_wait()
#define publish_shared()
#define prefetch(from) (void)(from)
#define give_registers()
#define take_registers()
#else
static __device__ __forceinline__ void matrix_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends what has been begun. */
static __device__ __forceinline__ void matrix_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void matrix_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* What this thread wrote to shared memory is for the matrix unit to read. */
static __device__ __forceinline__ void publish_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void prefetch(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

/* Registers go from the producing warps, which need few, to those that hold sums.  There are no more than those that a
 * block begins with: who asked for more would wait for ever. */
#define PRODUCER_REGISTERS 64
#define GROUP_REGISTERS    192
static_assert((N_GROUPS * GROUP_REGISTERS + N_PRODUCERS * PRODUCER_REGISTERS) * GROUP_THREADS <= 65536,
              "more registers than a block has");

static __device__ __forceinline__ void give_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
}

static __device__ __forceinline__ void take_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(GROUP_REGISTERS));
}

/* Where the columns lie (PTX ISA, "matrix descriptor"): K-major, rows of 128 bytes whose 16-byte chunks are swizzled by
 * the row's number modulo 8, 1024 bytes from 8 rows to the next. */
static __device__ __forceinline__ uint64_t describe(shared_address stage, unsigned column, unsigned step)
{
    uint32_t address = stage + column * COLUMN_BYTES + step * 32;

    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#if HALVES
#define OPERATION(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "
#define SCALES       ", 1, 1, 1, 0;" /* add to the sums, negate nothing, columns K-major */
#define SUM          "+f"
#else
#define OPERATION(n) "wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 "
#define SCALES       ", 1;"
#define SUM          "+r"
#endif

#define SUMS_4(s, i)   SUM(s[i]), SUM(s[i + 1]), SUM(s[i + 2]), SUM(s[i + 3])
#define SUMS_16(s, i)  SUMS_4(s, i), SUMS_4(s, i + 4), SUMS_4(s, i + 8), SUMS_4(s, i + 12)
#define NAMES_16_0     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_16_1     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_16_2     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_16_3     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPERANDS(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#endif

/* The unit works for a group on 64 rows and N columns, beginning with 'column' of the stage. */
template <unsigned N>
static __device__ __forceinline__ void multiply(partial (&sums)[N_PARTIAL], const uint32_t (&a)[4],
                                                shared_address stage, unsigned column, unsigned step)
{
#ifdef EMULATE_CUDA
    emulate_multiply(sums, a, stage, column, step, N);
#else
    uint64_t b = describe(stage, column, step);

    if constexpr (N == 32)
        asm volatile(OPERATION(32) "{" NAMES_16_0 "}, {%16, %17, %18, %19}, %20" SCALES
                     : SUMS_16(sums, 0)
                     : OPERANDS(a, b));
    else if constexpr (N == 64)
        asm volatile(OPERATION(64) "{" NAMES_16_0 ", " NAMES_16_1 "}, {%32, %33, %34, %35}, %36" SCALES
                     : SUMS_16(sums, 0), SUMS_16(sums, 16)
                     : OPERANDS(a, b));
    else if constexpr (N == 96)
        asm volatile(OPERATION(96) "{" NAMES_16_0 ", " NAMES_16_1 ", " NAMES_16_2 "}, {%48, %49, %50, %51}, %52" SCALES
                     : SUMS_16(sums, 0), SUMS_16(sums, 16), SUMS_16(sums, 32)
                     : OPERANDS(a, b));
    else
        asm volatile(OPERATION(128) "{" NAMES_16_0 ", " NAMES_16_1 ", " NAMES_16_2 ", " NAMES_16_3
                                    "}, {%64, %65, %66, %67}, %68" SCALES
                     : SUMS_16(sums, 0), SUMS_16(sums, 16), SUMS_16(sums, 32), SUMS_16(sums, 48)
                     : OPERANDS(a, b));
#endif
}

#endif
