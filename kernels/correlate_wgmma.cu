/* correlate_wgmma.cu - see correlate.h: the variant for sm_90a, whose matrix unit works for 128 threads at a time.
 *
 * An item of work is the products of ROW_ANTS antennas (the first of a baseline) with COL_ANTS (the second) in one
 * channel, in stages of STAGE_SPECTRA spectra.  Blocks stay, and take one item after the other; the last ones, too few
 * for all of them, are shared stage by stage, and added to memory by atomics.
 *
 * The last four warps of a block, the producer, fetch the voltages of the columns and lay them out in shared memory as
 * the matrix unit wants its second operand: for each input two columns, 'plain' (re, im) and 'turned' (-im, re), so that
 * a row's dot products with them are the real and the imaginary part of e1 conj(e2).  Two groups of four warps have 32
 * row antennas each.  They load those voltages straight into registers, which is where the matrix unit takes its first
 * operand from; the registers of a piece for the two polarisations are rows i and i + 8 of what a warp multiplies.
 *
 * Which spectra stand side by side in an operation is free, as long as rows and columns agree: thread t of four has 16
 * bytes of an antenna as they lie in memory, which are its part of 'pieces', half operations, one after another.  The
 * order of the columns is free too: the antenna modulo 8 comes first, so that a thread ends up with whole baselines,
 * and what a warp writes to shared memory does not collide.
 *
 * While the matrix unit works on a stage, a group prepares the registers of the next, and loads those of the one after.
 * The producer has the loads of AHEAD stages on their way, 1 or 2: two are faster, and leave the groups fewer registers.
 *
 * Integers: 'turned' has ~im = -im - 1 in place of -im, for which -128 has no room; what that lacks, the sum of re of
 *           the row, is summed beside and added at the end.  4 bits are widened to 16 times their value: sums are 256
 *           times too large, and shifted back at the end.  Partial sums in int32 hold 65 535 spectra of full scale.
 * Floats:   partial sums in float32.
 *
 * Blocks: x: shares of the work.
 * Constants: of correlate_constants() BITS, OFFSET, N_ANTS, N_CHAN, N_SPECTRA, N_BLOCKS, AHEAD. */
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
#define BATCH_BYTES    (N_ANTS * HEAP_BYTES)

#define LOAD_SPECTRA (16 / SPECTRUM_BYTES) /* of a thread; four lie side by side */
#define LOAD_PIECES  (NIBBLES ? 4 : 2)     /* 4 bytes of either polarisation: half of an operation's of a thread */
#define N_LOADS      (STAGE_SPECTRA / (4 * LOAD_SPECTRA))

#define COLUMN_BYTES 128
#define STAGE_BYTES  (4 * COL_ANTS * COLUMN_BYTES)
#define N_STAGES     4

/* Within a batch: 32 bits where they do, because registers are short. */
template <bool SMALL> struct offset_type {
    typedef uint64_t type;
};
template <> struct offset_type<true> {
    typedef uint32_t type;
};
typedef offset_type<(BATCH_BYTES >> 32) == 0>::type batch_offset;

#if HALVES
typedef float partial;
#else
typedef int partial;
#endif

/* ---- What threads do together ------------------------------------------------------------------------------------ */

/* A slot of shared memory holds a stage: the producer's threads fill it, each group's warps empty it.  Who waits does so
 * in a loop, behind which the compiler does not put off what comes before. */
#ifdef EMULATE_CUDA
#define BARRIER_FULL(slot, group)  ((slot) % N_STAGES * N_GROUPS + (group))
#define BARRIER_EMPTY(slot, group) (N_STAGES * N_GROUPS + BARRIER_FULL(slot, group))
#define begin_slots(shared)

static void hand_over_slot(const uint8_t *, uint32_t slot)
{
    for (uint32_t group = 0; group < N_GROUPS; group++)
        emulate_barrier_arrive(BARRIER_FULL(slot, group), 2 * GROUP_THREADS);
}

static void wait_for_stage(const uint8_t *, uint32_t slot, uint32_t group)
{
    emulate_barrier_wait(BARRIER_FULL(slot, group), 2 * GROUP_THREADS);
}

static void release_slot(const uint8_t *, uint32_t slot, uint32_t group)
{
    emulate_barrier_arrive(BARRIER_EMPTY(slot, group), 2 * GROUP_THREADS);
}

static void wait_for_slot(const uint8_t *, uint32_t slot)
{
    for (uint32_t group = 0; group < N_GROUPS && slot >= N_STAGES; group++)
        emulate_barrier_wait(BARRIER_EMPTY(slot, group), 2 * GROUP_THREADS);
}
#else
/* Behind the stages: for each slot a barrier that says that it is full, and one that it is empty. */
static __device__ __forceinline__ uint32_t slot_barrier(const uint8_t *shared, uint32_t slot, uint32_t which)
{
    return (uint32_t)__cvta_generic_to_shared(shared) + N_STAGES * STAGE_BYTES + slot % N_STAGES * 16 + which * 8;
}

static __device__ __forceinline__ void begin_slots(const uint8_t *shared)
{
    if (threadIdx.x == 0) {
        for (uint32_t slot = 0; slot < N_STAGES; slot++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(slot_barrier(shared, slot, 0)),
                         "n"(GROUP_THREADS)
                         : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(slot_barrier(shared, slot, 1)),
                         "n"(N_GROUPS * GROUP_THREADS / 32)
                         : "memory");
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t open;

    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(open)
                     : "r"(barrier), "r"(phase % 2)
                     : "memory");
    } while (!open);
}

static __device__ __forceinline__ void hand_over_slot(const uint8_t *shared, uint32_t slot)
{
    barrier_arrive(slot_barrier(shared, slot, 0));
}

static __device__ __forceinline__ void wait_for_stage(const uint8_t *shared, uint32_t slot, uint32_t)
{
    barrier_wait(slot_barrier(shared, slot, 0), slot / N_STAGES);
}

static __device__ __forceinline__ void release_slot(const uint8_t *shared, uint32_t slot, uint32_t)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(slot_barrier(shared, slot, 1));
}

static __device__ __forceinline__ void wait_for_slot(const uint8_t *shared, uint32_t slot)
{
    if (slot >= N_STAGES)
        barrier_wait(slot_barrier(shared, slot, 1), slot / N_STAGES - 1);
}
#endif

/* ---- The matrix unit --------------------------------------------------------------------------------------------- */

/* Sums of a thread: [column / 8][row i, row i + 8][column % 2]. */
#define N_PARTIAL (2 * COL_ANTS)

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
#define PRODUCER_REGISTERS (AHEAD == 2 ? 88 : 72)
#define GROUP_REGISTERS    (AHEAD == 2 ? 208 : 216)
static_assert(N_GROUPS * GROUP_REGISTERS + PRODUCER_REGISTERS <= 65536 / N_THREADS / 8 * 8 * (N_GROUPS + 1),
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

/* ---- A block's share of the work --------------------------------------------------------------------------------- */

/* A place in a block's share: first as many whole items as every block has, one of each round, so that blocks beside
 * each other have the same voltages at the same time; then a part of what is left.  Of stages there are always two,
 * which take turns with registers. */
struct cursor {
    const uint8_t *voltages;    /* antenna 0, channel 0, in the first batch of the launch */
    uint32_t n_units, n_stages; /* of the launch */
    uint32_t round, n_rounds;
    uint32_t last_item, last_stage; /* where the last part begins */
    uint32_t n_left;                /* stages of the share, this one counted */
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

/* Blocks take turns, so that each has items of all kinds. */
static __device__ __forceinline__ void begin_round(struct cursor *c)
{
    if (c->round < c->n_rounds) {
        c->stage = 0;
        find_item(c, c->round * gridDim.x + (blockIdx.x + c->round) % gridDim.x);
    } else {
        c->stage = c->last_stage;
        find_item(c, c->last_item);
    }
}

static __device__ __forceinline__ void begin_share(struct cursor *c, const struct correlate_args *args)
{
    c->voltages = (const uint8_t *)args->voltages + args->first_batch * BATCH_BYTES;
    c->n_units = args->n_batches * HEAP_UNITS;
    c->n_stages = (c->n_units + 2 * STAGE_UNITS - 1) / (2 * STAGE_UNITS) * 2;
    c->round = 0;
    c->n_rounds = N_CHAN * N_BLOCKS / gridDim.x;
    uint64_t n_pairs = (uint64_t)(c->n_stages / 2) * (N_CHAN * N_BLOCKS % gridDim.x);
    uint64_t first = n_pairs * blockIdx.x / gridDim.x * 2, end = n_pairs * (blockIdx.x + 1) / gridDim.x * 2;
    c->last_item = c->n_rounds * gridDim.x + (uint32_t)(first / c->n_stages);
    c->last_stage = (uint32_t)(first % c->n_stages);
    c->n_left = c->n_rounds * c->n_stages + (uint32_t)(end - first);
    if (c->n_left)
        begin_round(c);
}

/* To the next stage, if there is one; says whether the share of the item ends before it. */
static __device__ __forceinline__ bool advance(struct cursor *c)
{
    if (c->n_left <= 1) {
        c->n_left = 0;
        return true;
    }
    c->n_left--;
    if (++c->stage < c->n_stages)
        return false;
    if (c->round < c->n_rounds) {
        c->round++;
        begin_round(c);
    } else {
        c->stage = 0;
        find_item(c, c->item + 1);
    }
    return true;
}

/* The unit that a spectrum of the stage is in: 'first' is the same for all threads, and known when this is compiled, and
 * 'lane' a thread's own, below 'span'. */
static __device__ __forceinline__ uint32_t find_unit(const struct cursor *c, uint32_t first, uint32_t span,
                                                     uint32_t lane)
{
    bool common = first % UNIT_SPECTRA + span <= UNIT_SPECTRA; /* to the threads, for which there are registers */

    return c->stage * STAGE_UNITS + (common ? first : first + lane) / UNIT_SPECTRA;
}

/* Where an antenna's spectra of that unit are, for the thread that has those from 'lane' on; of the last unit where there
 * is none, and likewise of antennas, because what one adds that is not there is not kept. */
static __device__ __forceinline__ const uint8_t *find_voltages(const struct cursor *c, uint32_t ant, uint32_t unit,
                                                               uint32_t lane)
{
    uint32_t at = unit < c->n_units ? unit : c->n_units - 1;
    const uint8_t *voltages = c->voltages + (at / HEAP_UNITS * BATCH_BYTES + c->chan * (uint64_t)CHAN_BYTES +
                                             at % HEAP_UNITS * UNIT_SPECTRA * SPECTRUM_BYTES);

    voltages += (batch_offset)(N_ANTS % ROW_ANTS == 0 || ant < N_ANTS ? ant : N_ANTS - 1) * (batch_offset)HEAP_BYTES +
                lane * SPECTRUM_BYTES;
    asm volatile("" : "+l"(voltages)); /* one pointer for all that is at fixed distances from it */
    return voltages;
}

/* Loads 16 bytes of an antenna for each of 'N', in which 'span' spectra lie side by side. */
template <int N>
static __device__ __forceinline__ void load_voltages(const struct cursor *c, uint32_t ant, uint32_t span, uint32_t lane,
                                                     uint4 *loads)
{
    const uint8_t *from = NULL;

#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t first = i * span, within = first % UNIT_SPECTRA;
        if (within + span > UNIT_SPECTRA) { /* not all threads in the same unit */
            uint32_t own = first + lane;
            from = find_voltages(c, ant, find_unit(c, first, span, lane), own % UNIT_SPECTRA);
            within = 0;
        } else if (within == 0) {
            from = find_voltages(c, ant, find_unit(c, first, span, lane), lane);
        }
        loads[i] = __ldg((const uint4 *)(from + within * SPECTRUM_BYTES));
    }
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

/* (re, im) to (-im, re), of integers (~im, re). */
static __device__ __forceinline__ uint32_t turn(uint32_t plain)
{
#if HALVES
    return __byte_perm(plain, 0, 0x1032) ^ 0x8000;
#else
    return __byte_perm(plain ^ 0xff00ff00, 0, 0x2301);
#endif
}

/* ---- Columns: memory to shared memory ---------------------------------------------------------------------------- */

/* Antennas come in groups of 4, of which a warp has one in every 16, so that few antennas are few groups for each of the
 * four warps.  Of a group's antennas 128 bytes are loaded at a time: eight lanes, two loads each of a quarter.  Which
 * antennas a group has is so chosen that what a warp writes does not collide.  Columns: [antenna / 8][pol][plain,
 * turned][antenna % 8]; the 16-byte chunks of a column are swizzled by its number modulo 8. */
#define GROUP_TASKS   (N_LOADS / 2)
#define N_ANT_GROUPS  (COL_ANTS / 16) /* of a warp */
#define EIGHT_COLUMNS 32              /* of eight antennas */

static __device__ __forceinline__ uint32_t producing_warp(void)
{
    return threadIdx.x % GROUP_THREADS / 32;
}

/* A thread's antenna modulo 8, the same in all groups. */
static __device__ __forceinline__ uint32_t lane_ant(void)
{
    uint32_t ant = threadIdx.x % 32 / 8, odd = producing_warp() % 2;

    return NIBBLES ? ant + odd * 4 : ant % 2 + ant / 2 * 4 + odd * 2;
}

static __device__ __forceinline__ void fetch_group(const struct cursor *c, uint32_t group, uint4 *loads)
{
    uint32_t ant = group * 16 + producing_warp() / 2 * 8 + lane_ant();

    load_voltages<GROUP_TASKS>(c, c->column_ant + ant, 8 * LOAD_SPECTRA, threadIdx.x % 8 * LOAD_SPECTRA, loads);
}

/* How many groups of a warp the item's columns take. */
static __device__ __forceinline__ uint32_t count_groups(const struct cursor *c)
{
    uint32_t n_ants = N_ANTS - c->column_ant;

    return n_ants < COL_ANTS ? (n_ants + 15) / 16 : N_ANT_GROUPS;
}

/* Where a thread writes in a stage: the first chunk of the first group. */
static __device__ __forceinline__ uint32_t find_place(void)
{
    uint32_t column = producing_warp() / 2 * EIGHT_COLUMNS + lane_ant();
    uint32_t chunk = (threadIdx.x % 8 / 4 * LOAD_PIECES) ^ lane_ant();

    return column * COLUMN_BYTES + chunk * 16 + threadIdx.x % 4 * 4;
}

static __device__ __forceinline__ void put_task(uint8_t *stage, uint32_t place, uint32_t group, int task, uint4 load)
{
#pragma unroll
    for (int piece = 0; piece < LOAD_PIECES; piece++) {
        uint32_t words[2], chunk = task * 2 * LOAD_PIECES + piece;
        uint8_t *to = stage + group * 2 * EIGHT_COLUMNS * COLUMN_BYTES + (place ^ chunk * 16);
        separate(load, piece, &words[0], &words[1]);
#pragma unroll
        for (int pol = 0; pol < 2; pol++) {
            *(uint32_t *)(to + pol * 16 * COLUMN_BYTES) = words[pol];
            *(uint32_t *)(to + (pol * 16 + 8) * COLUMN_BYTES) = turn(words[pol]);
        }
    }
}

/* A baseline's sums in memory: [product][re, im]. */
struct __align__(16) baseline
{
    partial sums[8];
};

/* An item's sums, so that they are near when they are added to: of each column antenna the rows' lie side by side. */
static __device__ __forceinline__ void prefetch_sums(const struct cursor *c, const struct baseline *sums)
{
    uint32_t thread = threadIdx.x % GROUP_THREADS;
    asm volatile("" : "+r"(thread)); /* once in an item: nothing of this is worth a register in between */
    uint32_t line = thread % 16 * 4; /* of 128 bytes */

    sums += c->chan * (uint64_t)correlate_n_baselines(N_ANTS) + c->row_ant + line;
#pragma unroll 1
    for (uint32_t i = thread / 16; i < COL_ANTS; i += GROUP_THREADS / 16) {
        uint32_t ant = c->column_ant + i;
        if (c->row_ant + line <= ant && ant < N_ANTS)
            prefetch(&sums[ant * (ant + 1) / 2]);
    }
}

/* What the producer has on its way of a stage. */
struct columns {
    uint4 loads[N_ANT_GROUPS][GROUP_TASKS];
    uint32_t n_groups;
};

/* Puts a stage into its slot, and loads that which is AHEAD of it in its place. */
static __device__ __forceinline__ bool produce_stage(struct cursor *ahead, uint32_t slot, uint8_t *shared,
                                                     uint32_t place, struct columns *columns)
{
    bool begins = advance(ahead);
    uint32_t n_now = columns->n_groups;

    wait_for_slot(shared, slot);
    columns->n_groups = count_groups(ahead);
#pragma unroll
    for (uint32_t group = 0; group < N_ANT_GROUPS; group++) {
        if (group < n_now) {
#pragma unroll
            for (int task = 0; task < GROUP_TASKS; task++)
                put_task(shared + slot % N_STAGES * STAGE_BYTES, place, group, task, columns->loads[group][task]);
        }
        if (group < columns->n_groups)
            fetch_group(ahead, group, columns->loads[group]);
    }
    publish_shared();
    hand_over_slot(shared, slot);
    return begins;
}

static __device__ void produce(struct cursor ahead, uint8_t *shared, const struct baseline *sums)
{
    uint32_t n_slots = ahead.n_left, place = find_place();
    struct columns columns[AHEAD];
    bool begins = true; /* an item */

#pragma unroll
    for (int stage = 0; stage < AHEAD; stage++) {
        columns[stage].n_groups = count_groups(&ahead);
#pragma unroll
        for (uint32_t group = 0; group < N_ANT_GROUPS; group++)
            fetch_group(&ahead, group, columns[stage].loads[group]);
        if (stage + 1 < AHEAD)
            advance(&ahead);
    }
    for (uint32_t slot = 0; slot < n_slots; slot += AHEAD) {
        if (begins)
            prefetch_sums(&ahead, sums);
        begins = false;
#pragma unroll
        for (int stage = 0; stage < AHEAD; stage++)
            begins |= produce_stage(&ahead, slot + stage, shared, place, &columns[stage]);
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
    load_voltages<N_LOADS>(c, c->row_ant + thread_row(), 4 * LOAD_SPECTRA, threadIdx.x % 4 * LOAD_SPECTRA, loads);
}

/* rows: of a stage, for each operation pol 0, pol 1 of its first 16 bytes, and of its second. */
static __device__ __forceinline__ void make_rows(const struct cursor *c, const uint4 (&loads)[N_LOADS],
                                                 uint32_t (&rows)[4][4])
{
#pragma unroll
    for (int i = 0; i < N_LOADS; i++) {
        bool there = find_unit(c, i * 4 * LOAD_SPECTRA, 4 * LOAD_SPECTRA, threadIdx.x % 4 * LOAD_SPECTRA) < c->n_units;
#pragma unroll
        for (int j = 0; j < LOAD_PIECES; j++) {
            int piece = i * LOAD_PIECES + j;
            uint32_t *to = &rows[piece / 2][piece % 2 * 2];
            separate(loads[i], j, &to[0], &to[1]);
            to[0] = there ? to[0] : 0;
            to[1] = there ? to[1] : 0;
        }
    }
}

/* Sums of re of the rows: 4 bytes of a register, of which the even ones are real parts. */
static __device__ __forceinline__ void add_row_sums(const uint32_t (&rows)[4][4], int (&row_sums)[2])
{
#if !HALVES
#pragma unroll
    for (int i = 0; i < 16; i++)
        row_sums[i % 2] = __dp4a((int)rows[i / 4][i % 4], 0x00010001, row_sums[i % 2]);
#endif
}

#define ADD_TOGETHER (AHEAD == 2 ? 1 : 2) /* baselines that are fetched at a time */

/* Which baseline is number i of a thread's, with a row antenna and those from 'column_ant' on; says whether there is. */
static __device__ __forceinline__ bool find_baseline(uint32_t row_ant, uint32_t column_ant, int i, uint32_t *baseline)
{
    uint32_t ant = column_ant + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;

    *baseline = ant * (ant + 1) / 2 + row_ant;
    return row_ant <= ant && ant < N_ANTS;
}

/* What a thread adds to baseline i of its row antenna and N columns. */
static __device__ __forceinline__ partial find_product(const partial (&partials)[N_PARTIAL], const int (&row_sums)[2],
                                                       int i, int value)
{
    int eight = i / 2, second = i % 2, pol1 = value / 2 % 2, pol2 = value / 4, turned = value % 2;
    partial found = partials[4 * (4 * eight + 2 * pol2 + turned) + 2 * pol1 + second];
#if HALVES
    return found;
#else
    return (int)((unsigned)found + (turned ? (unsigned)row_sums[pol1] : 0)) >> (NIBBLES ? 8 : 0);
#endif
}

/* Adds a thread's sums to memory: of its row antenna with the antennas of N columns from 'column_ant' on.  'alone': no
 * other block has sums of this item. */
template <unsigned N>
static __device__ __forceinline__ void add_sums(struct baseline *sums, uint32_t row_ant, uint32_t column_ant,
                                                const partial (&partials)[N_PARTIAL], int (&row_sums)[2], bool alone)
{
#pragma unroll
    for (int pol = 0; pol < 2; pol++) {
        row_sums[pol] += __shfl_xor_sync(~0u, row_sums[pol], 1);
        row_sums[pol] += __shfl_xor_sync(~0u, row_sums[pol], 2);
    }
#pragma unroll
    for (int first = 0; first < (int)N / 16; first += ADD_TOGETHER) {
        struct baseline old[ADD_TOGETHER];
        uint32_t at[ADD_TOGETHER];
        bool there[ADD_TOGETHER];
#pragma unroll
        for (int i = 0; i < ADD_TOGETHER; i++) {
            there[i] = find_baseline(row_ant, column_ant, first + i, &at[i]);
            if (there[i] && alone)
                old[i] = sums[at[i]];
        }
#pragma unroll
        for (int i = 0; i < ADD_TOGETHER; i++) {
            if (there[i] && alone) {
#pragma unroll
                for (int value = 0; value < 8; value++)
                    old[i].sums[value] += find_product(partials, row_sums, first + i, value);
                sums[at[i]] = old[i];
            } else if (there[i]) {
#pragma unroll
                for (int value = 0; value < 8; value++)
                    atomicAdd(&sums[at[i]].sums[value], find_product(partials, row_sums, first + i, value));
            }
        }
        asm volatile("" ::: "memory"); /* so few registers are needed at a time */
    }
}

/* What a group works with all the time.  'at' is the stage to multiply, whose rows are 'rows'; 'ahead' is that which
 * 'loads' are of: the next, if there is one. */
struct group {
    struct cursor at, ahead;
    uint32_t rows[4][4];
    uint4 loads[N_LOADS];
    uint32_t slot;
};

/* Makes 'rows' of what was loaded, and loads the next stage. */
static __device__ __forceinline__ void load_ahead(struct group *group, uint32_t (&rows)[4][4])
{
    make_rows(&group->ahead, group->loads, rows);
    advance(&group->ahead);
    fetch_rows(&group->ahead, group->loads);
}

/* What a group has of an item. */
struct products {
    partial partials[N_PARTIAL];
    int row_sums[2];
};

/* Multiplies a stage's rows with N columns, the first of which is that of antenna 'skip' of the block's, and meanwhile
 * makes the rows of the next stage.  Says whether the item ends, or the block's share of it. */
template <unsigned N>
static __device__ __forceinline__ bool multiply_stage(struct group *group, uint32_t number, uint32_t skip,
                                                      const uint8_t *shared, struct products *products,
                                                      const uint32_t (&rows)[4][4], uint32_t (&next)[4][4])
{
    wait_for_stage(shared, group->slot, number);
    if constexpr (N > 0) {
        matrix_begin();
#pragma unroll
        for (int step = 0; step < 4; step++)
            multiply<N>(products->partials, rows[step], shared + group->slot % N_STAGES * STAGE_BYTES, 4 * skip, step);
        matrix_end();
        add_row_sums(rows, products->row_sums);
    }
    load_ahead(group, next);
    bool ended = advance(&group->at);
    if constexpr (N > 0) {
        matrix_wait();
    }
    if (group->at.n_left >= N_STAGES)
        release_slot(shared, group->slot, number);
    group->slot++;
    return ended;
}

/* A group's part of an item, or of the block's share of it. */
template <unsigned N>
static __device__ __forceinline__ void consume(struct group *group, uint32_t number, uint32_t skip,
                                               const uint8_t *shared, struct baseline *sums)
{
    const struct cursor began = group->at;
    struct products products = {};

#pragma unroll 1
    for (bool ended = false; !ended;) {
        uint32_t next[4][4];
        multiply_stage<N>(group, number, skip, shared, &products, group->rows, next);
        ended = multiply_stage<N>(group, number, skip, shared, &products, next, group->rows);
    }
    sums += began.chan * (uint64_t)correlate_n_baselines(N_ANTS);
    add_sums<N>(sums, began.row_ant + thread_row(), began.column_ant + skip, products.partials, products.row_sums,
                began.stage == 0 && began.n_left >= began.n_stages);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* How many columns a group multiplies in an item: of a block on the diagonal not those of antennas before its first. */
static __device__ __forceinline__ uint32_t count_columns(const struct cursor *c, uint32_t number, uint32_t skip)
{
    uint32_t n_ants = N_ANTS - c->column_ant < COL_ANTS ? N_ANTS - c->column_ant : COL_ANTS;

    return c->row_ant + number * GROUP_ANTS < N_ANTS ? (n_ants - skip + 15) / 16 * 64 : 0;
}

extern "C" __global__ void __launch_bounds__(N_THREADS, 1) correlate_wgmma(const struct correlate_wgmma_args args)
{
    extern __shared__ float4 shared_memory[];
    uint8_t *shared =
        (uint8_t *)shared_memory; /* operations need 1024-byte alignment, which is what blocks begin with */
    uint32_t role = __shfl_sync(~0u, threadIdx.x / GROUP_THREADS, 0); /* the compiler sees that warps agree */
    struct group group;

    begin_share(&group.at, &args);
    if (group.at.n_left == 0)
        return;
    begin_slots(shared);
    if (role == N_GROUPS) {
        give_registers();
        produce(group.at, shared, (const struct baseline *)args.sums.integer);
        return;
    }
    take_registers();
    group.ahead = group.at;
    group.slot = 0;
    fetch_rows(&group.ahead, group.loads);
    load_ahead(&group, group.rows);
    while (group.at.n_left > 0) {
        uint32_t skip = group.at.row_ant == group.at.column_ant ? role * GROUP_ANTS : 0;
        struct baseline *sums = (struct baseline *)args.sums.integer;
        switch (count_columns(&group.at, role, skip)) {
        case 0: consume<0>(&group, role, skip, shared, sums); break;
        case 64: consume<64>(&group, role, skip, shared, sums); break;
        case 128: consume<128>(&group, role, skip, shared, sums); break;
        case 192: consume<192>(&group, role, skip, shared, sums); break;
        default: consume<256>(&group, role, skip, shared, sums); break;
        }
    }
}
