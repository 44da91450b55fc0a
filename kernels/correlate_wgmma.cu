/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a, whose matrix unit works for 128 threads at a time.
 *
 * An item of work is the products of ROW_ANTS antennas (the first of a baseline) with COL_ANTS (the second) in one
 * channel.  Blocks stay: all items' time, in stages of STAGE_SPECTRA spectra, is one row of stages, of which each block
 * has an equal share; an item that is not wholly one block's is added to memory by atomics.
 *
 * The last four warps of a block, the producer, fetch the voltages of the columns and lay them out in shared memory as
 * the matrix unit wants its second operand.  Two groups of four warps have 32 row antennas each.  They load those
 * voltages straight into registers, which is where the matrix unit takes its first operand from: of each pair of
 * registers for the two polarisations, rows i and i + 8 of what a warp multiplies, they make a second, 'turned' one,
 * (im, -re), whose dot products with the columns are the imaginary part of e1 conj(e2); those of (re, im) the real part.
 *
 * Which spectra stand side by side in an operation is free, as long as rows and columns agree: thread t of four has 16
 * bytes of an antenna as they lie in memory, which are its part of 'pieces', half operations, one after another.  The
 * order of the columns is free too: the antenna modulo 8 comes first, so that a thread ends up with whole baselines,
 * and what eight antennas write to shared memory does not collide.
 *
 * Integers: 'turned' has ~re = -re - 1 in place of -re, for which -128 has no room; what that lacks, the sum of im of
 *           the column, is summed by the producer and added at the end.  4 bits are widened to 16 times their value:
 *           sums are 256 times too large, and shifted back at the end.  Partial sums in int32 hold 65 535 spectra of
 *           full scale.
 * Floats:   partial sums in float32.
 *
 * Blocks: x: shares of the work; y: parts of the launch's time, of which partial sums hold all.
 * Constants: of correlate_constants() BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS. */
#include "kernels/correlate.h"

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
#define STAGE_SPECTRA  (HALVES ? 32 : 64)             /* 128 bytes of an input, four operations of 32 */
#define UNIT_SPECTRA   (N_SPECTRA % 64 == 0 && !HALVES ? 64 : N_SPECTRA % 32 == 0 ? 32 : 16) /* within one heap */
#define HEAP_UNITS     (N_SPECTRA / UNIT_SPECTRA)
#define STAGE_UNITS    (STAGE_SPECTRA / UNIT_SPECTRA)
#define CHAN_BYTES     (N_SPECTRA * SPECTRUM_BYTES) /* of an antenna */
#define HEAP_BYTES     ((uint64_t)N_CHAN * CHAN_BYTES)

#define LOAD_SPECTRA (16 / SPECTRUM_BYTES) /* of a thread; four lie side by side */
#define LOAD_PIECES  (NIBBLES ? 4 : 2)     /* 4 bytes of either polarisation: half of an operation's of a thread */
#define N_LOADS      (STAGE_SPECTRA / (4 * LOAD_SPECTRA))

#define COLUMN_BYTES 128
#define STAGE_BYTES  (2 * COL_ANTS * COLUMN_BYTES)
#define N_STAGES     4

#if HALVES
typedef float partial;
typedef double total;
#else
typedef int partial;
typedef long long total;
#endif

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

/* Sums of a thread: [column / 8][row i, row i + 8][column % 2]. */
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
                                                const uint8_t *stage, unsigned column, unsigned step)
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

/* ---- A block's share of the work --------------------------------------------------------------------------------- */

/* Where a block is in its share; every thread of a role has one, one stage ahead of what it works on. */
struct cursor {
    const uint8_t *voltages;                /* antenna 0, channel 0, in the first batch of the launch */
    uint32_t first_unit, n_units, n_stages; /* of the part of time that the block works on */
    uint64_t n_left;                        /* stages of the share, this one counted */
    uint32_t item, stage;
    uint32_t chan, row_ant, column_ant; /* of the item */
};

static __device__ __forceinline__ void find_item(struct cursor *c, uint32_t item)
{
    uint32_t column_block = 0, row_block = item % N_BLOCKS;

    while (row_block > column_block)
        row_block -= ++column_block;
    c->item = item;
    c->chan = item / N_BLOCKS;
    c->row_ant = row_block * ROW_ANTS;
    c->column_ant = column_block * COL_ANTS;
}

/* Returns how many slots of shared memory the share takes: one for each stage, and one for each item at its end. */
static __device__ __forceinline__ uint64_t begin_share(struct cursor *c, const struct correlate_args *args)
{
    uint64_t n_units = (uint64_t)args->n_batches * HEAP_UNITS;

    c->voltages = (const uint8_t *)args->voltages + args->first_batch * N_ANTS * HEAP_BYTES;
    c->first_unit = (uint32_t)(n_units * blockIdx.y / gridDim.y);
    c->n_units = (uint32_t)(n_units * (blockIdx.y + 1) / gridDim.y) - c->first_unit;
    c->n_stages = (c->n_units + STAGE_UNITS - 1) / STAGE_UNITS;
    uint64_t n_stages = (uint64_t)c->n_stages * N_CHAN * N_BLOCKS;
    uint64_t first = n_stages * blockIdx.x / gridDim.x, end = n_stages * (blockIdx.x + 1) / gridDim.x;
    c->n_left = end - first;
    if (c->n_left == 0)
        return 0;
    find_item(c, (uint32_t)(first / c->n_stages));
    c->stage = (uint32_t)(first % c->n_stages);
    return c->n_left + (end - 1) / c->n_stages - c->item + 1;
}

/* To the next stage, if there is one; says whether the share of the item ends before it. */
static __device__ __forceinline__ bool advance(struct cursor *c)
{
    if (--c->n_left == 0)
        return true;
    if (++c->stage < c->n_stages)
        return false;
    c->stage = 0;
    find_item(c, c->item + 1);
    return true;
}

/* Whether there is such a spectrum of the stage; the last stage of a part may not be full. */
static __device__ __forceinline__ bool is_there(const struct cursor *c, uint32_t spectrum)
{
    return c->stage * STAGE_UNITS + spectrum / UNIT_SPECTRA < c->n_units;
}

/* 16 bytes of an antenna from 'spectrum' of the stage on.  Of the part's last unit where there is none, and likewise of
 * antennas, because what one adds that is not there is not kept. */
static __device__ __forceinline__ uint4 load_voltages(const struct cursor *c, uint32_t ant, uint32_t spectrum)
{
    uint32_t unit = c->stage * STAGE_UNITS + spectrum / UNIT_SPECTRA;
    uint32_t at = c->first_unit + (unit < c->n_units ? unit : c->n_units - 1);
    uint64_t heap = (uint64_t)(at / HEAP_UNITS) * N_ANTS + (ant < N_ANTS ? ant : N_ANTS - 1);
    uint32_t within = at % HEAP_UNITS * UNIT_SPECTRA + spectrum % UNIT_SPECTRA;

    return __ldg(
        (const uint4 *)(c->voltages + heap * HEAP_BYTES + c->chan * (uint64_t)CHAN_BYTES + within * SPECTRUM_BYTES));
}

/* ---- Voltages in registers --------------------------------------------------------------------------------------- */

/* Of a load's 16 bytes the registers of a piece: 2 spectra (of half floats one) of either polarisation. */
static __device__ __forceinline__ void separate(uint4 load, int piece, uint32_t *pol0, uint32_t *pol1)
{
    const uint32_t words[4] = {load.x, load.y, load.z, load.w};
#if HALVES
    *pol0 = words[2 * piece];
    *pol1 = words[2 * piece + 1];
#elif NIBBLES
    uint32_t bits = words[piece] ^ (OFFSET ? 0x88888888 : 0), re = bits & 0xf0f0f0f0, im = bits << 4 & 0xf0f0f0f0;
    *pol0 = __byte_perm(re, im, 0x6240);
    *pol1 = __byte_perm(re, im, 0x7351);
#else
    *pol0 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x5410);
    *pol1 = __byte_perm(words[2 * piece], words[2 * piece + 1], 0x7632);
#endif
}

/* (re, im) to (im, -re), of integers (im, ~re). */
static __device__ __forceinline__ uint32_t turn(uint32_t plain)
{
#if HALVES
    return __byte_perm(plain, 0, 0x1032) ^ 0x80000000;
#else
    return __byte_perm(plain ^ 0x00ff00ff, 0, 0x2301);
#endif
}

/* ---- Columns: memory to shared memory ---------------------------------------------------------------------------- */

/* A warp has 16 antennas, four groups of 4, and loads 128 bytes of each antenna of a group at a time. */
#define N_TASKS          (4 * N_LOADS / 2)
#define COLUMN(ant, pol) ((ant) / 8 * 16 + (pol)*8 + (ant) % 8)

static __device__ __forceinline__ uint32_t task_group(int task)
{
    return task / (N_LOADS / 2);
}

/* Which of the block's column antennas, so that what the warp writes does not collide. */
static __device__ __forceinline__ uint32_t task_ant(int task)
{
    uint32_t group = task_group(task), ant = threadIdx.x % 32 / 8;

    ant = NIBBLES ? ant + group % 2 * 4 : ant % 2 + ant / 2 * 4 + group % 2 * 2;
    return threadIdx.x % GROUP_THREADS / 32 * 16 + group / 2 * 8 + ant;
}

/* Which of the antenna's loads. */
static __device__ __forceinline__ uint32_t task_load(int task)
{
    return task % (N_LOADS / 2) * 2 + threadIdx.x % 8 / 4;
}

static __device__ __forceinline__ uint32_t load_spectrum(uint32_t load)
{
    return (4 * load + threadIdx.x % 4) * LOAD_SPECTRA;
}

static __device__ __forceinline__ uint4 fetch_task(const struct cursor *c, int task)
{
    return load_voltages(c, c->column_ant + task_ant(task), load_spectrum(task_load(task)));
}

/* Writes the pieces of a load, and adds what is imaginary to the antenna's sums of it. */
static __device__ __forceinline__ void put_task(uint8_t *stage, int task, uint4 load, bool there, int (&sums)[2])
{
#pragma unroll
    for (int piece = 0; piece < LOAD_PIECES; piece++) {
        uint32_t words[2], chunk = task_load(task) * LOAD_PIECES + piece;
        separate(load, piece, &words[0], &words[1]);
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            uint32_t column = COLUMN(task_ant(task), pol);
            *(uint32_t *)(stage + column * COLUMN_BYTES + (chunk ^ column % 8) * 16 + threadIdx.x % 4 * 4) = words[pol];
#if !HALVES
            sums[pol] = __dp4a((int)words[pol], there ? 0x01000100 : 0, sums[pol]);
#endif
        }
    }
}

/* [pol][antenna]; eight lanes have parts of those of an antenna. */
static __device__ __forceinline__ void put_column_sums(int *to, int (&sums)[4][2])
{
#pragma unroll
    for (int group = 0; group < 4; group++)
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
#pragma unroll
            for (int lanes = 1; lanes < 8; lanes *= 2)
                sums[group][pol] += __shfl_xor_sync(~0u, sums[group][pol], lanes);
            if (threadIdx.x % 8 == 0)
                to[pol * COL_ANTS + task_ant(group * N_LOADS / 2)] = sums[group][pol];
            sums[group][pol] = 0;
        }
}

/* Waits until a slot's former content has been used. */
static __device__ __forceinline__ void wait_for_slot(uint64_t slot)
{
    if (slot >= N_STAGES)
        for (uint32_t group = 0; group < N_GROUPS; group++)
            barrier_wait(BARRIER_EMPTY(slot, group));
}

static __device__ __forceinline__ void hand_over_slot(uint64_t slot)
{
    for (uint32_t group = 0; group < N_GROUPS; group++)
        barrier_arrive(BARRIER_FULL(slot, group));
}

static __device__ void produce(struct cursor *c, uint8_t *shared)
{
    uint64_t slot = 0;
    int sums[4][2] = {};
    uint4 loads[N_TASKS];

#pragma unroll
    for (int i = 0; i < N_TASKS; i++)
        loads[i] = fetch_task(c, i);
    while (c->n_left > 0) {
        bool there[N_LOADS / 2];
#pragma unroll
        for (int i = 0; i < N_LOADS / 2; i++)
            there[i] = is_there(c, load_spectrum(task_load(i)));
        bool ended = advance(c);
        wait_for_slot(slot);
#pragma unroll
        for (int i = 0; i < N_TASKS; i++) {
            put_task(shared + slot % N_STAGES * STAGE_BYTES, i, loads[i], there[i % (N_LOADS / 2)],
                     sums[task_group(i)]);
            loads[i] = fetch_task(c, i);
        }
        publish_shared();
        hand_over_slot(slot++);
        if (ended) {
            wait_for_slot(slot);
            put_column_sums((int *)(shared + slot % N_STAGES * STAGE_BYTES), sums);
            hand_over_slot(slot++);
        }
    }
}

/* ---- Rows times columns ------------------------------------------------------------------------------------------ */

/* A thread's row antenna among those of the block. */
static __device__ __forceinline__ uint32_t thread_row(void)
{
    return threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4;
}

static __device__ __forceinline__ void fetch_rows(const struct cursor *c, uint4 (&loads)[N_LOADS])
{
#pragma unroll
    for (int i = 0; i < N_LOADS; i++)
        loads[i] = load_voltages(c, c->row_ant + thread_row(), load_spectrum(i));
}

/* A stage's rows: of each operation pol 0, pol 1 of its first 16 bytes, and of its second. */
static __device__ __forceinline__ void make_rows(const struct cursor *c, const uint4 (&loads)[N_LOADS],
                                                 uint32_t (&plain)[4][4], uint32_t (&turned)[4][4])
{
#pragma unroll
    for (int i = 0; i < N_LOADS; i++) {
        bool there = is_there(c, load_spectrum(i));
#pragma unroll
        for (int j = 0; j < LOAD_PIECES; j++) {
            int piece = i * LOAD_PIECES + j;
            uint32_t *p = &plain[piece / 2][piece % 2 * 2], *t = &turned[piece / 2][piece % 2 * 2];
            separate(loads[i], j, &p[0], &p[1]);
#pragma unroll
            for (int pol = 0; pol < 2; pol++) {
                p[pol] = there ? p[pol] : 0;
                t[pol] = there ? turn(p[pol]) : 0;
            }
        }
    }
}

/* Adds a baseline's sums to memory. */
static __device__ __forceinline__ void add_baseline(total *to, const partial (&values)[8], bool alone)
{
    if (alone) {
        union {
            uint4 vectors[sizeof(total) / 2];
            total totals[8];
        } sums;
#pragma unroll
        for (int i = 0; i < (int)sizeof(total) / 2; i++)
            sums.vectors[i] = ((const uint4 *)to)[i];
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums.totals[i] += (total)values[i];
#pragma unroll
        for (int i = 0; i < (int)sizeof(total) / 2; i++)
            ((uint4 *)to)[i] = sums.vectors[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
#if HALVES
            atomicAdd(to + i, (total)values[i]);
#else
            atomicAdd((unsigned long long *)to + i, (unsigned long long)(total)values[i]);
#endif
    }
}

/* Adds a thread's sums to memory: of its row antenna with the antennas of N columns from 'skip' on. */
template <unsigned N>
static __device__ __forceinline__ void add_sums(total *sums, uint32_t row_ant, uint32_t column_ant, uint32_t skip,
                                                const int *column_sums, const partial (&re)[N_PARTIAL],
                                                const partial (&im)[N_PARTIAL], bool alone)
{
#pragma unroll
    for (int eight = 0; eight < (int)N / 16; eight++) {
        uint32_t first = skip + 8 * eight + threadIdx.x % 4 * 2; /* of two column antennas */
#pragma unroll
        for (uint32_t second = 0; second < 2; second++) {
            partial values[8]; /* [product][re, im] */
#pragma unroll
            for (uint32_t product = 0; product < 4; product++) {
                uint32_t pol1 = product % 2, pol2 = product / 2, i = 4 * (2 * eight + pol2) + 2 * pol1 + second;
                values[2 * product] = re[i];
                values[2 * product + 1] = im[i];
#if !HALVES
                unsigned all = (unsigned)im[i] + (unsigned)column_sums[pol2 * COL_ANTS + first + second];
                values[2 * product] = re[i] >> (NIBBLES ? 8 : 0);
                values[2 * product + 1] = (int)all >> (NIBBLES ? 8 : 0);
#endif
            }
            uint32_t ant = column_ant + first + second;
            if (row_ant <= ant && ant < N_ANTS)
                add_baseline(sums + correlate_baseline(row_ant, ant) * 8, values, alone);
        }
    }
}

/* What a group has to know all the time. */
struct group {
    uint32_t number;
    uint64_t slot, n_slots;
    uint8_t *shared;
    total *sums;
};

static __device__ __forceinline__ void release_slot(struct group *group)
{
    if (group->slot + N_STAGES < group->n_slots)
        barrier_arrive(BARRIER_EMPTY(group->slot, group->number));
    group->slot++;
}

/* A group's part of an item, or of the block's share of it: its rows times N columns of every stage, the first of which
 * is that of antenna 'skip' of the block's.  'loads' has the rows of the first stage, and then of the next item's. */
template <unsigned N>
static __device__ void consume(struct cursor *c, struct group *group, uint32_t skip, uint4 (&loads)[N_LOADS])
{
    uint32_t row_ant = c->row_ant + thread_row(), column_ant = c->column_ant, first_stage = c->stage, stage;
    total *sums = group->sums + c->chan * ((uint64_t)correlate_n_baselines(N_ANTS) * 8);
    partial re[N_PARTIAL] = {}, im[N_PARTIAL] = {};
    bool ended;

#pragma unroll 1
    do {
        uint32_t plain[4][4], turned[4][4];
        uint8_t *columns = group->shared + group->slot % N_STAGES * STAGE_BYTES;
        make_rows(c, loads, plain, turned);
        stage = c->stage;
        ended = advance(c);
        fetch_rows(c, loads);
        barrier_wait(BARRIER_FULL(group->slot, group->number));
        if constexpr (N > 0) {
            matrix_begin();
#pragma unroll
            for (int step = 0; step < 4; step++) {
                multiply<N>(re, plain[step], columns, 2 * skip, step);
                multiply<N>(im, turned[step], columns, 2 * skip, step);
            }
            matrix_end();
        }
        release_slot(group);
    } while (!ended);
    barrier_wait(BARRIER_FULL(group->slot, group->number));
    add_sums<N>(sums, row_ant, column_ant, skip, (const int *)(group->shared + group->slot % N_STAGES * STAGE_BYTES),
                re, im, gridDim.y == 1 && first_stage == 0 && stage + 1 == c->n_stages);
    release_slot(group);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* How many columns a group multiplies in an item: of a block on the diagonal not those of antennas before its first. */
static __device__ __forceinline__ uint32_t count_columns(const struct cursor *c, uint32_t group, uint32_t skip)
{
    uint32_t n_ants = N_ANTS - c->column_ant < COL_ANTS ? N_ANTS - c->column_ant : COL_ANTS;

    return c->row_ant + group * GROUP_ANTS < N_ANTS ? (n_ants - skip + 15) / 16 * 32 : 0;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[];
    uint8_t *shared =
        (uint8_t *)shared_memory; /* operations need 1024-byte alignment, which is what blocks begin with */
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); /* the compiler sees that warps agree */
    struct cursor cursor;
    uint64_t n_slots = begin_share(&cursor, &args);

    if (n_slots == 0)
        return;
    if (role == N_GROUPS) {
        give_registers();
        produce(&cursor, shared);
        return;
    }
    take_registers();
    struct group group;
    group.number = role;
    group.slot = 0;
    group.n_slots = n_slots;
    group.shared = shared;
    group.sums = (total *)args.sums.integer;
    uint4 loads[N_LOADS];
    fetch_rows(&cursor, loads);
    while (cursor.n_left > 0) {
        uint32_t skip = cursor.row_ant == cursor.column_ant ? role * GROUP_ANTS : 0;
        switch (count_columns(&cursor, role, skip)) {
        case 0: consume<0>(&cursor, &group, skip, loads); break;
        case 32: consume<32>(&cursor, &group, skip, loads); break;
        case 64: consume<64>(&cursor, &group, skip, loads); break;
        case 96: consume<96>(&cursor, &group, skip, loads); break;
        default: consume<128>(&cursor, &group, skip, loads); break;
        }
    }
}
