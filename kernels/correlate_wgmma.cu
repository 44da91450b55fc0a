/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a, whose matrix unit works for 128 threads at a time.
 *
 * A block has the products of ROW_ANTS antennas (the first of a baseline) with COL_ANTS (the second) in one channel,
 * and takes the spectra of a stage at a time: STAGE_SPECTRA of them, 128 bytes of each input.  The last warps fetch the
 * voltages of the columns and lay them out in shared memory as the matrix unit wants its second operand: for each input
 * two columns, 'plain' (re, im) and 'turned' (-im, re), so that a row's dot products with them are the real and the
 * imaginary part of e1 conj(e2).  Two groups of four warps have 32 row antennas each.  They load those voltages
 * straight into registers, which is where the matrix unit takes its first operand from: of 2 spectra of an antenna two
 * registers come by swapping bytes, one for each polarisation, which are rows i and i + 8 of what a warp multiplies.
 * So nothing but the columns goes through shared memory.
 *
 * Integers: 'turned' has ~im = -im - 1 in place of -im, for which -128 has no room; what that lacks, the sum of re of
 *           the row, is summed beside and added at the end.  4 bits are widened to 16 times their value: sums are 256
 *           times too large, and shifted back at the end.  Partial sums in int32 hold 65 535 spectra of full scale.
 * Floats:   partial sums in float32.
 *
 * Blocks: x: channel, and in it blocks of the triangle; y: part of the launch's time, of which partial sums hold all.
 * Sums are added to memory as in correlate.cu.
 * Constants: of correlate_constants() BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS. */
#include "kernels/correlate.h"
#include "kernels/transpose_lanes.h"

#define correlate_wgmma_args correlate_args

#define ROW_ANTS      64
#define COL_ANTS      64
#define GROUP_ANTS    32 /* rows of a group of warps: 64 inputs */
#define N_GROUPS      (ROW_ANTS / GROUP_ANTS)
#define GROUP_THREADS 128
#define N_THREADS     ((N_GROUPS + 1) * GROUP_THREADS)

#define HALVES         (BITS == 16)
#define NIBBLES        (BITS == 4)
#define SPECTRUM_BYTES (HALVES ? 8 : NIBBLES ? 2 : 4) /* of an antenna, in memory */
#define STAGE_SPECTRA  (HALVES ? 32 : 64)
#define STEP_SPECTRA   (STAGE_SPECTRA / 4) /* of one operation: 32 bytes of an input */
#define CHUNK_SPECTRA  (STAGE_SPECTRA / 8) /* 16 bytes of an input */
#define UNIT_SPECTRA   (N_SPECTRA % 64 == 0 && !HALVES ? 64 : N_SPECTRA % 32 == 0 ? 32 : 16) /* within one heap */
#define HEAP_UNITS     (N_SPECTRA / UNIT_SPECTRA)
#define STAGE_UNITS    (STAGE_SPECTRA / UNIT_SPECTRA)

#define COLUMN_BYTES 128
#define STAGE_BYTES  (4 * COL_ANTS * COLUMN_BYTES)
#define N_STAGES     4
#define N_TASKS      (COL_ANTS * 8 / GROUP_THREADS) /* of a producing thread and stage: chunks of an antenna */

#if HALVES
typedef float partial;
#else
typedef int partial;
#endif
typedef partial total;

/* ---- What threads do together ------------------------------------------------------------------------------------ */

/* Barriers of the producer with one of the groups: a stage is full, or empty again. */
#define BARRIER_FULL(stage, group)  ((stage) % N_STAGES * N_GROUPS + (group))
#define BARRIER_EMPTY(stage, group) (N_STAGES * N_GROUPS + BARRIER_FULL(stage, group))

#ifdef EMULATE_CUDA
#define barrier_arrive(barrier) emulate_barrier_arrive(barrier, 2 * GROUP_THREADS)
#define barrier_wait(barrier)   emulate_barrier_wait(barrier, 2 * GROUP_THREADS)
#else
static __device__ __forceinline__ void barrier_arrive(unsigned barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(2 * GROUP_THREADS) : "memory");
}

static __device__ __forceinline__ void barrier_wait(unsigned barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(2 * GROUP_THREADS) : "memory");
}
#endif

/* ---- The matrix unit --------------------------------------------------------------------------------------------- */

/* Sums of a thread: [column / 8][row i, row i + 8][plain, turned]. */
#define TILE_COLUMNS 64
#define N_PARTIAL    (4 * COL_ANTS / 2)

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
#define publish_shared()
#define give_registers()
#define take_registers()
#else
static __device__ __forceinline__ void matrix_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends what has been begun, and waits for it. */
static __device__ __forceinline__ void matrix_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* What this thread wrote to shared memory is for the matrix unit to read. */
static __device__ __forceinline__ void publish_shared(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Registers go from the producing warps, which need few, to those that hold sums. */
static __device__ __forceinline__ void give_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
}

static __device__ __forceinline__ void take_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
}

/* Where the columns lie (PTX ISA, "matrix descriptor"): K-major, rows of 128 bytes whose 16-byte chunks are swizzled by
 * the row's number modulo 8, 1024 bytes from 8 rows to the next. */
static __device__ __forceinline__ uint64_t describe(const uint8_t *stage, unsigned column, unsigned step)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(stage) + column * COLUMN_BYTES + step * 32;

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

#define SUMS_4(s, i)  SUM(s[i]), SUM(s[i + 1]), SUM(s[i + 2]), SUM(s[i + 3])
#define SUMS_16(s, i) SUMS_4(s, i), SUMS_4(s, i + 4), SUMS_4(s, i + 8), SUMS_4(s, i + 12)
#define SUMS_32(s, i) SUMS_16(s, i), SUMS_16(s, i + 16)
#define NAMES_32_0                                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_32_1                                                                                                     \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_32_2                                                                                                     \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_32_3                                                                                                     \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OPERANDS(a, b) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#endif

/* The unit works for a group on 64 rows and N columns, beginning with 'column' of the stage. */
template <unsigned N>
static __device__ __forceinline__ void multiply(partial (&sums)[N_PARTIAL], const uint32_t (&a)[4],
                                                const uint8_t *stage, unsigned column, unsigned step)
{
#ifdef EMULATE_CUDA
    emulate_multiply(sums, a, stage, column, step, N);
#else
    uint64_t b = describe(stage, column, step);

    if constexpr (N == 64)
        asm volatile(OPERATION(64) "{" NAMES_32_0 "}, {%32, %33, %34, %35}, %36" SCALES
                     : SUMS_32(sums, 0)
                     : OPERANDS(a, b));
    else if constexpr (N == 128)
        asm volatile(OPERATION(128) "{" NAMES_32_0 ", " NAMES_32_1 "}, {%64, %65, %66, %67}, %68" SCALES
                     : SUMS_32(sums, 0), SUMS_32(sums, 32)
                     : OPERANDS(a, b));
    else if constexpr (N == 192)
        asm volatile(OPERATION(192) "{" NAMES_32_0 ", " NAMES_32_1 ", " NAMES_32_2
                                    "}, {%96, %97, %98, %99}, %100" SCALES
                     : SUMS_32(sums, 0), SUMS_32(sums, 32), SUMS_32(sums, 64)
                     : OPERANDS(a, b));
    else
        asm volatile(OPERATION(256) "{" NAMES_32_0 ", " NAMES_32_1 ", " NAMES_32_2 ", " NAMES_32_3
                                    "}, {%128, %129, %130, %131}, %132" SCALES
                     : SUMS_32(sums, 0), SUMS_32(sums, 32), SUMS_32(sums, 64), SUMS_32(sums, 96)
                     : OPERANDS(a, b));
#endif
}

/* ---- Voltages in registers --------------------------------------------------------------------------------------- */

/* Where the voltages of a block's slice of time are: spectra in units that lie together. */
struct source {
    const uint8_t *voltages; /* of the channel, antenna 0 in the first batch of the launch */
    uint64_t heap_bytes;     /* of an antenna */
    uint32_t first_unit, n_units;
};

/* The first spectrum of a unit of the slice, or of its last one where there is none; likewise for antennas, because
 * what an antenna that is not there adds is not kept. */
static __device__ __forceinline__ const uint8_t *find_unit(const struct source *source, uint32_t ant, uint32_t unit)
{
    uint32_t at = source->first_unit + (unit < source->n_units ? unit : source->n_units - 1);
    uint64_t heap = (uint64_t)(at / HEAP_UNITS) * N_ANTS + (ant < N_ANTS ? ant : N_ANTS - 1);

    return source->voltages + heap * source->heap_bytes + at % HEAP_UNITS * (UNIT_SPECTRA * SPECTRUM_BYTES);
}

/* Two spectra's (of half floats: one's) voltages as they lie, to the registers of both polarisations. */
struct voltages {
#if NIBBLES
    uint32_t bits;
#else
    uint2 bits;
#endif
};

static __device__ __forceinline__ struct voltages load_voltages(const uint8_t *from)
{
    struct voltages v;

#if NIBBLES
    v.bits = __ldg((const uint32_t *)from);
#else
    v.bits = __ldg((const uint2 *)from);
#endif
    return v;
}

static __device__ __forceinline__ void separate(struct voltages v, uint32_t *pol0, uint32_t *pol1)
{
#if HALVES
    *pol0 = v.bits.x;
    *pol1 = v.bits.y;
#elif NIBBLES
#if OFFSET
    v.bits ^= 0x88888888;
#endif
    uint32_t re = v.bits & 0xf0f0f0f0, im = v.bits << 4 & 0xf0f0f0f0;
    *pol0 = __byte_perm(re, im, 0x6240);
    *pol1 = __byte_perm(re, im, 0x7351);
#else
    *pol0 = __byte_perm(v.bits.x, v.bits.y, 0x5410);
    *pol1 = __byte_perm(v.bits.x, v.bits.y, 0x7632);
#endif
}

static __device__ __forceinline__ uint32_t turn(uint32_t plain)
{
#if HALVES
    return __byte_perm(plain, 0, 0x1032) ^ 0x8000;
#else
    return __byte_perm(plain ^ 0xff00ff00, 0, 0x2301);
#endif
}

/* ---- Columns: memory to shared memory --------------------------------------------------------------------------- */

/* A chunk of an antenna: 16 bytes of each of its inputs. */
struct task {
    struct voltages v[4];
};

#define PIECE_SPECTRA (HALVES ? 1 : 2) /* of struct voltages */

static __device__ __forceinline__ void fetch_stage(const struct source *source, uint32_t first_ant, uint32_t stage,
                                                   struct task (&tasks)[N_TASKS])
{
    uint32_t thread = threadIdx.x % GROUP_THREADS, spectrum = thread % 8 * CHUNK_SPECTRA;

#pragma unroll
    for (int i = 0; i < N_TASKS; i++) {
        uint32_t ant = first_ant + (i * GROUP_THREADS + thread) / 8;
        const uint8_t *from = find_unit(source, ant, stage * STAGE_UNITS + spectrum / UNIT_SPECTRA) +
                              spectrum % UNIT_SPECTRA * SPECTRUM_BYTES;
#pragma unroll
        for (int j = 0; j < 4; j++)
            tasks[i].v[j] = load_voltages(from + j * PIECE_SPECTRA * SPECTRUM_BYTES);
    }
}

static __device__ __forceinline__ void put_chunk(uint8_t *stage, uint32_t column, uint32_t chunk,
                                                 const uint32_t (&w)[4])
{
    *(uint4 *)(stage + column * COLUMN_BYTES + (chunk ^ column % 8) * 16) = make_uint4(w[0], w[1], w[2], w[3]);
}

/* Antenna's columns: pol 0 plain, turned, pol 1 plain, turned. */
static __device__ __forceinline__ void put_stage(uint8_t *stage, const struct task (&tasks)[N_TASKS])
{
    uint32_t thread = threadIdx.x % GROUP_THREADS;

#pragma unroll
    for (int i = 0; i < N_TASKS; i++) {
        uint32_t column = (i * GROUP_THREADS + thread) / 8 * 4, plain[2][4], turned[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            separate(tasks[i].v[j], &plain[0][j], &plain[1][j]);
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            put_chunk(stage, column + 2 * pol, thread % 8, plain[pol]);
#pragma unroll
            for (int j = 0; j < 4; j++)
                turned[j] = turn(plain[pol][j]);
            put_chunk(stage, column + 2 * pol + 1, thread % 8, turned);
        }
    }
}

static __device__ void produce(const struct source *source, uint32_t first_ant, uint32_t n_groups, uint8_t *shared)
{
    uint32_t n_stages = (source->n_units + STAGE_UNITS - 1) / STAGE_UNITS;
    struct task tasks[N_TASKS];

    fetch_stage(source, first_ant, 0, tasks);
    for (uint32_t stage = 0; stage < n_stages; stage++) {
        if (stage >= N_STAGES)
            for (uint32_t group = 0; group < n_groups; group++)
                barrier_wait(BARRIER_EMPTY(stage, group));
        put_stage(shared + stage % N_STAGES * STAGE_BYTES, tasks);
        publish_shared();
        for (uint32_t group = 0; group < n_groups; group++)
            barrier_arrive(BARRIER_FULL(stage, group));
        fetch_stage(source, first_ant, stage + 1, tasks);
    }
}

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* A thread's voltages of a stage: of its antenna, for each operation the first and the second 16 bytes. */
struct rows {
    struct voltages v[4][2];
};

static __device__ __forceinline__ void fetch_rows(const struct source *source, uint32_t ant, uint32_t stage,
                                                  struct rows *rows)
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t spectrum = step * STEP_SPECTRA, unit = stage * STAGE_UNITS + spectrum / UNIT_SPECTRA;
        const uint8_t *from =
            find_unit(source, ant, unit) + (spectrum % UNIT_SPECTRA + threadIdx.x % 4 * PIECE_SPECTRA) * SPECTRUM_BYTES;
#pragma unroll
        for (int half = 0; half < 2; half++)
            rows->v[step][half] = load_voltages(from + half * CHUNK_SPECTRA * SPECTRUM_BYTES);
    }
}

/* Sums of re of the rows: 4 bytes of a register, of which the even ones are real parts. */
static __device__ __forceinline__ void add_row_sums(const uint32_t (&a)[4], int (&row_sums)[2])
{
#if !HALVES
#pragma unroll
    for (int r = 0; r < 4; r++)
        row_sums[r % 2] = __dp4a((int)a[r], 0x00010001, row_sums[r % 2]);
#endif
}

/* Adds the products of a row antenna with two column antennas, 'ant2' and the next, to memory.  A lane has those of one
 * polarisation of one of them with both of the row: 4 of the 8 numbers of a baseline, 32 bytes, which four lanes then
 * add at a time. */
static __device__ __forceinline__ void add_products(total *sums, const partial *products, const int (&row_sums)[2],
                                                    uint32_t row_ant, uint32_t ant2)
{
    partial parts[4]; /* [pol of the row antenna][re, im] */

#pragma unroll
    for (int i = 0; i < 4; i++)
#if HALVES
        parts[i] = products[i];
#else
        parts[i] = (int)((unsigned)products[i] + (i % 2 ? (unsigned)row_sums[i / 2] : 0)) >> (NIBBLES ? 8 : 0);
#endif
    transpose_lanes(parts);
#pragma unroll
    for (uint32_t lane = 0; lane < 4; lane++) {
        uint32_t ant = ant2 + lane / 2;
        total *to = sums + correlate_baseline(row_ant, ant) * 8 + lane % 2 * 4 + threadIdx.x % 4;
        if (row_ant <= ant && ant < N_ANTS)
            atomicAdd(to, parts[lane]);
    }
}

/* Adds a thread's sums to memory: of its row antenna with the n_columns / 4 antennas from 'column_ant' on. */
static __device__ __forceinline__ void add_sums(total *sums, uint32_t row_ant, uint32_t column_ant, uint32_t n_columns,
                                                partial (&partials)[N_PARTIAL], int (&row_sums)[2])
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        row_sums[pol] += __shfl_xor_sync(~0u, row_sums[pol], 1);
        row_sums[pol] += __shfl_xor_sync(~0u, row_sums[pol], 2);
    }
#pragma unroll
    for (uint32_t tile = 0; tile < n_columns / 8; tile++)
        add_products(sums, partials + 4 * tile, row_sums, row_ant, column_ant + 2 * tile);
}

/* A group's work: its rows times N columns of every stage, the first of which is antenna 'skip' of the block's. */
template <unsigned N>
static __device__ void consume(const struct source *source, uint32_t group, uint32_t row_ant, uint32_t column_ant,
                               uint32_t skip, const uint8_t *shared, total *sums)
{
    uint32_t n_stages = (source->n_units + STAGE_UNITS - 1) / STAGE_UNITS;
    partial partials[N_PARTIAL] = {};
    int row_sums[2] = {};
    struct rows rows;

    fetch_rows(source, row_ant, 0, &rows);
#pragma unroll 1
    for (uint32_t stage = 0; stage < n_stages; stage++) {
        uint32_t a[4][4];
#pragma unroll
        for (int step = 0; step < 4; step++) {
            separate(rows.v[step][0], &a[step][0], &a[step][1]);
            separate(rows.v[step][1], &a[step][2], &a[step][3]);
            if (stage * STAGE_UNITS + step * STEP_SPECTRA / UNIT_SPECTRA >= source->n_units)
                a[step][0] = a[step][1] = a[step][2] = a[step][3] = 0; /* behind the last spectrum */
            add_row_sums(a[step], row_sums);
        }
        fetch_rows(source, row_ant, stage + 1, &rows);
        barrier_wait(BARRIER_FULL(stage, group));
        matrix_begin();
#pragma unroll
        for (int step = 0; step < 4; step++)
            multiply<N>(partials, a[step], shared + stage % N_STAGES * STAGE_BYTES, 4 * skip, step);
        matrix_end();
        if (stage + N_STAGES < n_stages)
            barrier_arrive(BARRIER_EMPTY(stage, group));
    }
    add_sums(sums, row_ant, column_ant + skip, N, partials, row_sums);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Which columns a group of a block on the diagonal need not multiply: those of antennas before its first. */
static __device__ __forceinline__ uint32_t count_columns(uint32_t column_ant, uint32_t skip)
{
    uint32_t n_ants = N_ANTS - column_ant < COL_ANTS ? N_ANTS - column_ant : COL_ANTS;

    return (n_ants - skip + 15) / 16 * TILE_COLUMNS;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[];
    uint8_t *shared =
        (uint8_t *)shared_memory; /* operations need 1024-byte alignment, which is what blocks begin with */
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); /* the compiler sees that warps agree */
    uint64_t n_units = (uint64_t)args.n_batches * HEAP_UNITS;
    uint32_t chan = blockIdx.x / N_BLOCKS, column_block = 0, row_block = blockIdx.x % N_BLOCKS;

    while (row_block > column_block)
        row_block -= ++column_block;
    uint32_t row_ant = row_block * ROW_ANTS, column_ant = column_block * COL_ANTS;
    struct source source;
    source.heap_bytes = (uint64_t)N_CHAN * N_SPECTRA * SPECTRUM_BYTES;
    source.voltages = (const uint8_t *)args.voltages + args.first_batch * N_ANTS * source.heap_bytes +
                      (uint64_t)chan * N_SPECTRA * SPECTRUM_BYTES;
    source.first_unit = (uint32_t)(n_units * blockIdx.y / gridDim.y);
    source.n_units = (uint32_t)(n_units * (blockIdx.y + 1) / gridDim.y) - source.first_unit;
    if (source.n_units == 0)
        return;

    if (role == N_GROUPS) {
        give_registers();
        uint32_t n_groups = row_ant + GROUP_ANTS < N_ANTS ? 2 : 1;
        produce(&source, column_ant, n_groups, shared);
        return;
    }
    take_registers();
    row_ant += role * GROUP_ANTS;
    if (row_ant >= N_ANTS)
        return;
    uint32_t skip = row_block == column_block ? role * GROUP_ANTS : 0;
    total *sums = (total *)args.sums.integer + chan * ((uint64_t)correlate_n_baselines(N_ANTS) * 8);
    row_ant += threadIdx.x % GROUP_THREADS / 32 * 8 + threadIdx.x % 32 / 4;
    switch (count_columns(column_ant, skip)) {
    case 64: consume<64>(&source, role, row_ant, column_ant, skip, shared, sums); break;
    case 128: consume<128>(&source, role, row_ant, column_ant, skip, shared, sums); break;
    case 192: consume<192>(&source, role, row_ant, column_ant, skip, shared, sums); break;
    default: consume<256>(&source, role, row_ant, column_ant, skip, shared, sums); break;
    }
}
