/* correlate_wgmma_unit.h - the warpgroup instructions of the tensor cores (PTX's wgmma, compute capability 9.0), and
 * their emulation.
 *
 * Include this file after correlate_wgmma_formats.h and correlate_wgmma_slots.h. */
#ifndef KERNELS_CORRELATE_CORRELATE_WGMMA_UNIT_H
#define KERNELS_CORRELATE_CORRELATE_WGMMA_UNIT_H

/* Operand B is in shared memory, [column][K].  A column has 128 bytes of an input, and a step uses 32 of these bytes.
 * The 16-byte chunks of a column are swizzled by the column's number modulo 8.  The PTX manual calls such a column
 * "a row of K". */
#define SWIZZLE_ATOM_BYTES (8 * COLUMN_BYTES)
#define STEP_BYTES         32

#ifdef EMULATE_CUDA
static uint32_t emulated_word(const uint8_t *operand, unsigned row, unsigned step, unsigned word)
{
    unsigned chunk = (2 * step + word / 4) ^ row % 8;

    return *(const uint32_t *)(operand + row * COLUMN_BYTES + 16 * chunk + word % 4 * 4);
}

/* Adds products: sums[column / 8][row i, row i + 8][column % 2] += rows[row i, row i + 8][word of K] times columns of
 * 'b'. */
static void emulate_multiply(partial *sums, const uint32_t (*rows)[8], const uint8_t *b, unsigned step,
                             unsigned n_columns)
{
    unsigned lane = threadIdx.x % 32;

    for (unsigned tile = 0; tile < n_columns / 8; tile++)
        for (unsigned c = 0; c < 2; c++) {
            for (unsigned word = 0; word < 8; word++) {
                uint32_t b_word = emulated_word(b, 8 * tile + lane % 4 * 2 + c, step, word);
                for (unsigned r = 0; r < 2; r++)
#if HALVES
                    sums[4 * tile + 2 * r + c] = emulate_dot2(rows[r][word], b_word, sums[4 * tile + 2 * r + c]);
#else
                    sums[4 * tile + 2 * r + c] = emulate_dp4a(rows[r][word], b_word, sums[4 * tile + 2 * r + c]);
#endif
            }
        }
}

#define matrix_begin()
#define matrix_end()

template <int N = 0> static void matrix_wait(void)
{
}

#else
static __device__ __forceinline__ void matrix_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of operations (PTX: commit_group). */
static __device__ __forceinline__ void matrix_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until the tensor cores have finished all groups of operations except the last N groups. */
template <int N = 0> static __device__ __forceinline__ void matrix_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Returns the matrix descriptor (PTX ISA) of operand B: K-major, rows of 128 bytes, swizzled.  The descriptor points
 * to byte 'at' of 'operand'.  'at' is added last, so that the compiler computes the other terms only once for all
 * constant values of 'at'. */
static __device__ __forceinline__ uint64_t describe(shared_address operand, unsigned at)
{
    uint32_t low = (operand >> 4 & 0x3fff) | 1 << 16, high = SWIZZLE_ATOM_BYTES >> 4 | 1 << 30;

    return low + (at >> 4) | (uint64_t)high << 32;
}

#if HALVES
#define OPERATION(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "
#define SCALES       ", 1, 1, 1, 0;" /* these operands select addition to the sums, no negation and K-major columns */
#define SUM_OPERAND  "+f"
#else
#define OPERATION(n) "wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8.s8 "
#define SCALES       ", 1;"
#define SUM_OPERAND  "+r"
#endif

#define SUMS_4(s, i)   SUM_OPERAND(s[i]), SUM_OPERAND(s[i + 1]), SUM_OPERAND(s[i + 2]), SUM_OPERAND(s[i + 3])
#define SUMS_16(s, i)  SUMS_4(s, i), SUMS_4(s, i + 4), SUMS_4(s, i + 8), SUMS_4(s, i + 12)
#define SUMS_32(s)     SUMS_16(s, 0), SUMS_16(s, 16)
#define SUMS_48(s)     SUMS_32(s), SUMS_16(s, 32)
#define SUMS_64(s)     SUMS_48(s), SUMS_16(s, 48)
#define SUMS_80(s)     SUMS_64(s), SUMS_16(s, 64)
#define NAMES_16       "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32       NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48       NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64       NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_80       NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define OPERANDS(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#endif

/* Multiplies 64 rows of a warpgroup by N columns for one step.  Each thread has its fragment of the rows in registers:
 * a[2 h + r] belongs to half h of K and to row i + 8 r.  The columns begin at byte 'at' of 'columns', in shared memory.
 * A thread's sums are [column / 8][row i, row i + 8][column % 2]. */
template <unsigned N>
static __device__ __forceinline__ void multiply(partial *sums, const uint32_t (&a)[4], shared_address columns,
                                                unsigned at, unsigned step)
{
#ifdef EMULATE_CUDA
    unsigned lane = threadIdx.x % 32;
    uint32_t rows[2][8]; /* the 32 bytes of row i, and the 32 bytes of row i + 8 */

    for (unsigned r = 0; r < 4; r++)
        for (unsigned t = 0; t < 4; t++)
            rows[r % 2][r / 2 * 4 + t] = __shfl_sync(~0u, a[r], (lane & ~3u) + t);
    emulate_multiply(sums, rows, columns + at, step, N);
#else
    uint64_t b = describe(columns, at + step * STEP_BYTES);

    if constexpr (N == 32)
        asm volatile(OPERATION(32) "{" NAMES_16 "}, {%16, %17, %18, %19}, %20" SCALES
                     : SUMS_16(sums, 0)
                     : OPERANDS(a, b));
    else if constexpr (N == 64)
        asm volatile(OPERATION(64) "{" NAMES_32 "}, {%32, %33, %34, %35}, %36" SCALES : SUMS_32(sums) : OPERANDS(a, b));
    else if constexpr (N == 96)
        asm volatile(OPERATION(96) "{" NAMES_48 "}, {%48, %49, %50, %51}, %52" SCALES : SUMS_48(sums) : OPERANDS(a, b));
    else if constexpr (N == 128)
        asm volatile(OPERATION(128) "{" NAMES_64 "}, {%64, %65, %66, %67}, %68" SCALES
                     : SUMS_64(sums)
                     : OPERANDS(a, b));
    else
        asm volatile(OPERATION(160) "{" NAMES_80 "}, {%80, %81, %82, %83}, %84" SCALES
                     : SUMS_80(sums)
                     : OPERANDS(a, b));
#endif
}

#endif
