/* correlate_shape.c - chooses tile sizes and grids with pure arithmetic: once when a kernel is created, and once per
 * launch. */
#include "kernels/correlate/correlate_shape.h"

#include "common/base/units.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define STEP_BYTES 64 /* number of bytes of an antenna in a step */
#define MAX_WARPS  32
/* maximum number of squares of 8 x 8 antennas in a tile; the sums of a square need 16 registers */
#define MAX_TILE_EIGHTS   12
#define MAX_REGISTERS     256 /* maximum number of registers of a thread */
#define QUARTER_REGISTERS 16384
/* registers of a thread besides those of the sums; with fewer registers the assembler spills */
#define OTHER_REGISTERS 56
#define MAX_PARTS       64

/* Sizes of both wgmma kernels. */
#define WGMMA_THREADS 512 /* threads of a block */
#define WGMMA_SLICE   256 /* number of bytes of an antenna in a stage; 128 bytes with 4-bit voltages */
#define WGMMA_SHARE   8   /* minimum number of stages for a block, if the launch has enough stages */
#define WGMMA_ANTS    64  /* number of antennas in a block of antennas, if there is more than one block */

/* Sizes of correlate_wgmma.cu. */
/* Bytes of stages (N_STAGES x STAGE_BYTES), column sums (2 N_STAGES x SUM_SLOT_BYTES) and barriers (N_STAGES x 16).
 * STAGE_BYTES is COL_ANTS x 256, and SUM_SLOT_BYTES is COL_ANTS x 8. */
#define BETWEEN_SHARED (8 * 16384 + 16 * 512 + 8 * 16)

/* Sizes of correlate_whole.cu. */
#define WHOLE_TILE_ANTS  16
#define WHOLE_TILE_BYTES 4096 /* size of a tile in a stage, in bytes */
#define WHOLE_MIN_ANTS   17   /* minimum number of antennas; for fewer antennas correlate.cu is faster */
#define WHOLE_MAX_ANTS   80   /* maximum number of antennas in one block */

#define N_WGMMA_CONSTANTS 6 /* number of constants that the wgmma kernels use: the first constants of the list */

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- Tiles of blocks --------------------------------------------------------------------------------------------- */

/* Returns the number of slots for rows [first, end): all antennas up to 'end', rounded up to whole tiles. */
static uint32_t slots_up_to(uint32_t end, const struct correlate_shape *s)
{
    uint32_t height = 8 * s->row_eights, width = 8 * s->column_eights;
    uint32_t rows = divide_up(end, height) * height, columns = divide_up(end, width) * width;

    return rows > columns ? rows : columns;
}

static void plan_runs(uint32_t n_ants, const struct correlate_shape *s, struct correlate_plan *plan)
{
    uint32_t height = 8 * s->row_eights, n_tiles = 0;

    for (uint32_t row = 0; row < n_ants; row += height)
        n_tiles += divide_up(smaller(row + height, n_ants), 8 * s->column_eights);
    plan->tile_warps = divide_up(n_tiles, s->n_runs);
    plan->n_blocks = divide_up(n_tiles, plan->tile_warps);
    plan->n_slots = slots_up_to(n_ants, s);
}

static void plan_squares(uint32_t n_ants, const struct correlate_shape *s, struct correlate_plan *plan)
{
    uint32_t rows = s->block_rows * 8 * s->row_eights, columns = s->block_columns * 8 * s->column_eights;

    for (uint32_t first = 0; first < n_ants; first += rows)
        plan->n_blocks += divide_up(smaller(first + rows, n_ants), columns);
    plan->tile_warps = s->block_rows * s->block_columns;
    plan->n_slots = rows + (n_ants > rows ? columns : 0);
}

struct correlate_plan correlate_plan(const struct correlate_args *args, const struct correlate_shape *shape)
{
    struct correlate_plan plan = {0};
    uint32_t sums = 16 * shape->row_eights * shape->column_eights + 2 * shape->row_eights;

    if (shape->n_runs)
        plan_runs(args->n_ants, shape, &plan);
    else
        plan_squares(args->n_ants, shape, &plan);
    plan.threads = 32 * plan.tile_warps * shape->time_warps;
    plan.shared_bytes = shape->stages * shape->time_warps * shape->steps * plan.n_slots * STEP_BYTES;
    if (shape->time_warps > 1)
        plan.shared_bytes += plan.tile_warps * sums * 32 * 4;
    plan.computed = (double)args->n_ants * (args->n_ants + 1) / 2 /
                    ((double)plan.n_blocks * plan.tile_warps * 64 * shape->row_eights * shape->column_eights);
    return plan;
}

/* ---- Blocks of the wgmma variant --------------------------------------------------------------------------------- */

static uint32_t wgmma_blocks(uint32_t n_ants)
{
    return n_ants <= WHOLE_MAX_ANTS ? 1 : divide_up(n_ants, WGMMA_ANTS);
}

static uint32_t whole_shared_bytes(uint32_t n_ants)
{
    uint32_t n_tiles = n_ants <= WHOLE_MAX_ANTS ? divide_up(n_ants, WHOLE_TILE_ANTS) : WGMMA_ANTS / WHOLE_TILE_ANTS;
    uint32_t n_slots = n_tiles * WHOLE_TILE_ANTS, n_stages = n_tiles < 3 ? 16 : divide_up(48, n_tiles);

    return n_stages * (n_tiles * WHOLE_TILE_BYTES + 2 * n_slots * 8 + 16); /* stages, sums, barriers */
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

bool correlate_shape_valid(const struct correlate_args *args, const struct correlate_shape *shape, size_t shared_bytes)
{
    const struct correlate_shape *s = shape;

    if (s->wgmma)
        return args->n_ants >= WHOLE_MIN_ANTS && shared_bytes >= whole_shared_bytes(args->n_ants) &&
               shared_bytes >= BETWEEN_SHARED;
    if (s->row_eights < 1 || s->column_eights < 1 || s->row_eights * s->column_eights > MAX_TILE_EIGHTS ||
        s->time_warps < 1 || s->steps < 1 || s->steps > 8 || s->stages < 2 || s->stages > 8 || s->resident < 1)
        return false;
    /* The height of a block must be a multiple of its width.  Then one row of blocks has all column antennas of a block
     * as rows. */
    if (!s->n_runs && (s->block_rows < 1 || s->block_columns < 1 ||
                       (s->block_rows * s->row_eights) % (s->block_columns * s->column_eights)))
        return false;
    struct correlate_plan plan = correlate_plan(args, s);
    /* A multiprocessor has four quarters.  Each quarter has a quarter of the registers, and runs a quarter of the
     * warps (rounded up). */
    uint32_t registers = OTHER_REGISTERS + 16 * s->row_eights * s->column_eights;
    uint32_t quarter_warps = divide_up(plan.threads / 32 * s->resident, 4);
    return plan.threads <= 32 * MAX_WARPS && plan.threads >= 4 * s->steps * s->time_warps &&
           plan.shared_bytes * s->resident <= shared_bytes && registers < MAX_REGISTERS &&
           quarter_warps * 32 * registers <= QUARTER_REGISTERS;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* Shapes by array size.  The first shape that is large enough and valid is the default.  The others are candidates. */
static const struct {
    uint32_t from_ants, to_ants;
    struct correlate_shape shape;
} known[] = {
    {1, 8, {1, 1, .n_runs = 1, .time_warps = 8, .steps = 1, .stages = 6, .resident = 2}},
    {1, 8, {1, 1, .n_runs = 1, .time_warps = 4, .steps = 2, .stages = 6, .resident = 4}},
    {9, 16, {2, 2, .n_runs = 1, .time_warps = 4, .steps = 2, .stages = 5, .resident = 3}},
    {9, 16, {2, 2, .n_runs = 1, .time_warps = 4, .steps = 2, .stages = 5, .resident = 3, .atomic_adds = true}},
    {9, 16, {2, 2, .n_runs = 1, .time_warps = 4, .steps = 2, .stages = 5, .resident = 2}},
    {9, 16, {2, 2, .n_runs = 1, .time_warps = 8, .steps = 1, .stages = 6, .resident = 1}},
    {9, 16, {2, 2, .n_runs = 1, .time_warps = 8, .steps = 1, .stages = 4, .resident = 2}},
    {9, 16, {1, 1, .n_runs = 1, .time_warps = 4, .steps = 1, .stages = 6, .resident = 2}},
    {17, 32, {4, 2, .n_runs = 1, .time_warps = 4, .steps = 1, .stages = 5, .resident = 1}},
    {17, 32, {2, 2, .n_runs = 1, .time_warps = 4, .steps = 1, .stages = 5, .resident = 1}},
    {17, 32, {2, 2, .n_runs = 1, .time_warps = 2, .steps = 2, .stages = 4, .resident = 2}},
    {33, 48, {2, 2, .n_runs = 1, .time_warps = 2, .steps = 1, .stages = 5, .resident = 1}},
    {33, 48, {2, 2, .n_runs = 1, .time_warps = 2, .steps = 1, .stages = 5, .resident = 1, .atomic_adds = true}},
    {33, 48, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 2, .stages = 4, .resident = 2}},
    {49, 64, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 2, .stages = 5, .resident = 1}},
    {49, 64, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 2, .stages = 5, .resident = 1, .atomic_adds = true}},
    {49, 64, {4, 2, .n_runs = 1, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {49, 64, {2, 2, .n_runs = 2, .time_warps = 1, .steps = 2, .stages = 4, .resident = 2}},
    {49, 64, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 1, .stages = 6, .resident = 1}},
    {65, 80, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 1, .stages = 6, .resident = 1}},
    {65, 80, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 1, .stages = 6, .resident = 1, .atomic_adds = true}},
    {65, 80, {2, 2, .n_runs = 1, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 80, {4, 2, .n_runs = 2, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 128, {2, 2, .n_runs = 3, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 128, {2, 2, .n_runs = 3, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1, .atomic_adds = true}},
    {65, 128, {2, 2, .n_runs = 3, .time_warps = 1, .steps = 1, .stages = 6, .resident = 1}},
    {65, 128, {2, 2, .n_runs = 2, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 128, {4, 2, .n_runs = 5, .time_warps = 1, .steps = 2, .stages = 3, .resident = 2}},
    {129, 160, {2, 2, .n_runs = 5, .time_warps = 1, .steps = 1, .stages = 5, .resident = 1}},
    {161, 192, {2, 2, .n_runs = 7, .time_warps = 1, .steps = 1, .stages = 5, .resident = 1}},
    {65, 160, {4, 2, .n_runs = 3, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 4096, {4, 2, .block_rows = 2, .block_columns = 4, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 4096, {4, 2, .block_rows = 2, .block_columns = 4, .time_warps = 1, .steps = 1, .stages = 6, .resident = 1}},
    {65, 4096, {4, 2, .block_rows = 2, .block_columns = 4, .time_warps = 1, .steps = 2, .stages = 3, .resident = 1}},
    {65, 4096, {4, 2, .block_rows = 4, .block_columns = 2, .time_warps = 1, .steps = 2, .stages = 4, .resident = 1}},
    {65, 4096, {4, 2, .block_rows = 2, .block_columns = 2, .time_warps = 1, .steps = 2, .stages = 3, .resident = 2}},
    {65, 4096, {2, 2, .block_rows = 4, .block_columns = 4, .time_warps = 1, .steps = 1, .stages = 5, .resident = 1}},
    {65, 4096, {4, 3, .block_rows = 3, .block_columns = 2, .time_warps = 1, .steps = 1, .stages = 5, .resident = 1}},
    {1, 4096, {2, 2, .block_rows = 2, .block_columns = 2, .time_warps = 1, .steps = 1, .stages = 3, .resident = 1}},
    {1, 4096, {1, 1, .block_rows = 2, .block_columns = 2, .time_warps = 1, .steps = 1, .stages = 2, .resident = 1}},
};

size_t correlate_candidates(const struct correlate_args *args, size_t shared_bytes, size_t max,
                            struct correlate_shape *shapes)
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(known) && n < max; i++)
        if (args->n_ants >= known[i].from_ants && args->n_ants <= known[i].to_ants &&
            correlate_shape_valid(args, &known[i].shape, shared_bytes))
            shapes[n++] = known[i].shape;
    return n;
}

struct correlate_shape correlate_default_shape(const struct correlate_args *args, size_t shared_bytes)
{
    struct correlate_shape shape;
    size_t n = correlate_candidates(args, shared_bytes, 1, &shape);

    assert(n == 1); /* the last shape of the table always fits: it needs 16 KiB */
    return shape;
}

void correlate_shape_format(const struct correlate_shape *shape, char *text, size_t text_bytes)
{
    char blocks[32];

    if (shape->wgmma) {
        snprintf(text, text_bytes, "wgmma");
        return;
    }
    if (shape->n_runs)
        snprintf(blocks, sizeof(blocks), "%u runs", shape->n_runs);
    else
        snprintf(blocks, sizeof(blocks), "squares of %u x %u", shape->block_rows, shape->block_columns);
    snprintf(text, text_bytes, "tiles %u x %u, %s, %u in time, %u steps, %u stages, %u resident%s", shape->row_eights,
             shape->column_eights, blocks, shape->time_warps, shape->steps, shape->stages, shape->resident,
             shape->atomic_adds ? ", atomics" : "");
}

/* ---- Making and launching ---------------------------------------------------------------------------------------- */

struct correlate_shape correlate_device_shape(const struct correlate_args *args, const struct device *device)
{
    const struct correlate_shape wgmma = {.wgmma = true};
    size_t shared_bytes = device_shared_bytes(device);

    if (!device_compiles(device))
        return (struct correlate_shape){0};
    return device_has_wgmma(device) && correlate_shape_valid(args, &wgmma, shared_bytes)
               ? wgmma
               : correlate_default_shape(args, shared_bytes);
}

static long sample_bits(enum voltage_format format)
{
    return 4 * (long)voltage_bytes(format);
}

/* One of the kernels that a shape needs. */
struct part {
    const struct kernel *kernel;
    /* constant N_BLOCKS: for correlate, the number of blocks of threads per channel; for the wgmma kernels, the
     * number of items per channel */
    uint32_t n_blocks;
    uint32_t threads, shared_bytes;
};

/* Lists the kernels that a shape needs.  Returns the number of kernels. */
static size_t find_parts(const struct correlate_args *args, const struct correlate_shape *shape,
                         struct part parts[CORRELATE_MAX_KERNELS])
{
    uint32_t n = wgmma_blocks(args->n_ants);

    if (!shape->wgmma) {
        struct correlate_plan plan = correlate_plan(args, shape);
        parts[0] = (struct part){&correlate_kernel, plan.n_blocks, plan.threads, plan.shared_bytes};
        return 1;
    }
    /* correlate_whole has an item for each block of antennas.  correlate_wgmma has an item for each pair of different
     * blocks, in the order of its find_block(). */
    parts[0] = (struct part){&correlate_whole_kernel, n, WGMMA_THREADS, whole_shared_bytes(args->n_ants)};
    parts[1] = (struct part){&correlate_wgmma_kernel, n * (n - 1) / 2, WGMMA_THREADS, BETWEEN_SHARED};
    return n > 1 ? 2 : 1;
}

static int create_part(struct device *device, const struct correlate_args *args, const struct correlate_shape *shape,
                       const struct part *part, struct device_kernel **made)
{
    struct correlate_plan plan = shape->wgmma ? (struct correlate_plan){0} : correlate_plan(args, shape);
    const struct kernel_constant constants[] = {
        {"N_ANTS", args->n_ants},
        {"N_CHAN", args->n_chan},
        {"N_SPECTRA", args->n_spectra},
        {"BITS", sample_bits(args->format)},
        {"OFFSET", args->format == VOLTAGES_4_BITS_OFFSET},
        {"N_BLOCKS", part->n_blocks},
        {"ROW_EIGHTS", shape->row_eights},
        {"COLUMN_EIGHTS", shape->column_eights},
        {"N_RUNS", shape->n_runs},
        {"BLOCK_ROWS", shape->block_rows},
        {"BLOCK_COLUMNS", shape->block_columns},
        {"TIME_WARPS", shape->time_warps},
        {"STEPS", shape->steps},
        {"STAGES", shape->stages},
        {"RESIDENT", shape->resident},
        {"ATOMIC_ADDS", shape->atomic_adds},
        {"TILE_WARPS", plan.tile_warps},
        {"N_SLOTS", plan.n_slots},
    };

    assert(args->n_spectra % 16 == 0);
    return device_kernel_create(device, part->kernel, constants,
                                shape->wgmma ? N_WGMMA_CONSTANTS : ARRAY_LEN(constants), made);
}

int correlate_kernels_create(struct device *device, const struct correlate_args *args,
                             const struct correlate_shape *shape, struct correlate_kernels *made)
{
    struct part parts[CORRELATE_MAX_KERNELS];

    *made = (struct correlate_kernels){
        .shape = *shape, .n_multiprocessors = device_multiprocessors(device), .compiled = device_compiles(device)};
    if (!made->compiled) {
        int err = device_kernel_create(device, &correlate_kernel, NULL, 0, &made->kernels[0]);
        made->n = err ? 0 : 1;
        return err;
    }
    size_t n = find_parts(args, shape, parts);
    for (; made->n < n; made->n++) {
        int err = create_part(device, args, shape, &parts[made->n], &made->kernels[made->n]);
        if (err) {
            correlate_kernels_destroy(made);
            return err;
        }
    }
    return 0;
}

void correlate_kernels_destroy(struct correlate_kernels *kernels)
{
    for (size_t i = 0; i < kernels->n; i++)
        device_kernel_destroy(kernels->kernels[i]);
    kernels->n = 0;
}

/* A launch is split over time into parts.  Returns the best number of parts.  The device runs 'room' blocks at a time.
 * These blocks form a round.  At the end a block adds its sums to memory.  This addition takes about as long as the
 * products of 'overhead' slices. */
static uint32_t best_parts(uint64_t n_blocks, uint32_t n_slices, uint64_t room)
{
    const uint64_t overhead = 24;
    uint64_t least = UINT64_MAX;
    uint32_t best = 1;

    for (uint32_t n = 1; n <= MAX_PARTS && n <= n_slices; n++) {
        uint64_t cost = (n_blocks * n + room - 1) / room * (divide_up(n_slices, n) + overhead);
        if (cost < least) {
            least = cost;
            best = n;
        }
    }
    return best;
}

struct kernel_grid correlate_kernels_grid(const struct correlate_kernels *kernels, const struct correlate_args *args,
                                          size_t i, uint32_t n_parts)
{
    const struct correlate_shape *shape = &kernels->shape;
    uint32_t slice_bytes = shape->wgmma ? WGMMA_SLICE : STEP_BYTES * shape->steps * shape->time_warps;
    uint64_t bytes = (uint64_t)args->n_batches * args->n_spectra * N_POLS * voltage_bytes(args->format);
    uint32_t n_slices = (uint32_t)((bytes + slice_bytes - 1) / slice_bytes);
    struct part parts[CORRELATE_MAX_KERNELS];

    find_parts(args, shape, parts);
    uint64_t n_blocks = (uint64_t)parts[i].n_blocks * args->n_chan;
    if (shape->wgmma) { /* the blocks share all of the launch's work */
        uint64_t n_shares = n_parts ? n_parts : n_blocks * divide_up(n_slices, WGMMA_SHARE);
        n_blocks = n_shares < kernels->n_multiprocessors ? n_shares : kernels->n_multiprocessors;
        n_parts = 1;
    } else if (!n_parts) {
        n_parts = best_parts(n_blocks, n_slices, (uint64_t)kernels->n_multiprocessors * shape->resident);
    }
    return (struct kernel_grid){
        .blocks = {(uint32_t)n_blocks, n_parts, 1}, .threads = parts[i].threads, .shared_bytes = parts[i].shared_bytes};
}

void correlate_kernels_launch(const struct correlate_kernels *kernels, struct device_stream *stream,
                              const struct correlate_args *args, uint32_t n_parts)
{
    if (!kernels->compiled)
        device_launch(stream, kernels->kernels[0], NULL, args);
    for (size_t i = 0; i < kernels->n && kernels->compiled; i++) {
        struct kernel_grid grid = correlate_kernels_grid(kernels, args, i, n_parts);
        device_launch(stream, kernels->kernels[i], &grid, args);
    }
}
