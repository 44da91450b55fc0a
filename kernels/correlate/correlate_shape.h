/* correlate_shape - how the CUDA variants of correlate cut their work, for array sizes, formats and GPUs.
 *
 * A warp has a tile of sums in registers: row_eights * 8 antennas against column_eights * 8, both polarisations each.
 * In correlate.cu rows are the second antennas of baselines and columns the first antennas.  In correlate_wgmma.cu and
 * correlate_whole.cu rows are the first antennas.  Only tiles that reach below the diagonal are there.  The antennas of
 * a block's tiles share the copies in shared memory.  The tiles of a block have one of two arrangements:
 *
 *   runs    (n_runs > 0)    all tiles of the triangle, strip by strip of rows, are cut into n_runs runs of equal length;
 *                           a block has a run, and reads all antennas up to its last row.  One run is the whole
 *                           triangle.  For arrays whose tiles fit into few blocks.
 *   squares (n_runs == 0)   a block has block_rows x block_columns tiles; blocks that reach below the diagonal are
 *                           there, and in those on it some warps are idle.
 *
 * In either there may be 'time_warps' sets of warps that have the same tiles and take alternate spectra: for arrays so
 * small that memory limits. */
#ifndef KERNELS_CORRELATE_CORRELATE_SHAPE_H
#define KERNELS_CORRELATE_CORRELATE_SHAPE_H

#include "kernels/correlate/correlate.h"

struct correlate_shape {
    uint32_t row_eights, column_eights; /* of a warp's tile */
    uint32_t n_runs;
    uint32_t block_rows, block_columns; /* squares: tiles of a block */
    uint32_t time_warps;
    uint32_t steps;       /* of 64 bytes of each antenna that a warp takes between two barriers */
    uint32_t stages;      /* of that size in shared memory; all but one are being loaded from global memory */
    uint32_t resident;    /* blocks that a multiprocessor is to have at once */
    uint32_t atomic_adds; /* 1: blocks add with atomics even to sums that are theirs alone */
    uint32_t wgmma;       /* 1: for compute capability 9.0: correlate_whole.cu, with more than 80 antennas
                           * correlate_wgmma.cu, too; all else above is ignored */
};

/* Blocks, threads and shared memory of the kernel on mma.sync for the sizes in 'args': n_ants, n_chan, n_spectra and
 * format.  A pure function. */
struct correlate_plan {
    uint32_t n_blocks;   /* of a channel */
    uint32_t tile_warps; /* of a block, at most */
    uint32_t n_slots;    /* antennas in shared memory, at most */
    uint32_t threads;
    uint32_t shared_bytes;
    double computed; /* of the products computed, those that are used: 0 to 1 */
};
struct correlate_plan correlate_plan(const struct correlate_args *args, const struct correlate_shape *shape);

/* Whether kernels can be compiled and launched like that, with so much shared memory in a block. */
bool correlate_shape_valid(const struct correlate_args *args, const struct correlate_shape *shape, size_t shared_bytes);

struct correlate_shape correlate_default_shape(const struct correlate_args *args, size_t shared_bytes);

/* Shapes that are worth measuring, valid ones only, the default first.  Returns how many there are, at most 'max'. */
size_t correlate_candidates(const struct correlate_args *args, size_t shared_bytes, size_t max,
                            struct correlate_shape *shapes);

/* "tiles 4 x 2, squares 2 x 4, ...", for people. */
void correlate_shape_format(const struct correlate_shape *shape, char *text, size_t text_bytes);

/* The best shape on 'device': wgmma for 17 antennas and more if the GPU has wgmma, else the default shape.  All 0 if
 * the device compiles nothing. */
struct correlate_shape correlate_device_shape(const struct correlate_args *args, const struct device *device);

/* The kernels of a shape, each of which has some of the baselines, made for one set of sizes. */
#define CORRELATE_MAX_KERNELS 2
struct correlate_kernels {
    struct correlate_shape shape;
    uint32_t n_multiprocessors; /* of the device */
    bool compiled;              /* or the twin */
    size_t n;
    struct device_kernel *kernels[CORRELATE_MAX_KERNELS];
};

/* Creates the kernels for the sizes in 'args' and the shape.  On a device that compiles nothing, creates the twin,
 * whatever the shape.  Returns 0, or negative errno with nothing to destroy. */
int correlate_kernels_create(struct device *device, const struct correlate_args *args,
                             const struct correlate_shape *shape, struct correlate_kernels *made);
/* Zeroed ones may be destroyed, too. */
void correlate_kernels_destroy(struct correlate_kernels *kernels);

/* The grid of the i-th compiled kernel for a launch of 'args'.  'n_parts' counts the parts of time; with wgmma it counts
 * the blocks that share the work, at most one on each multiprocessor.  0: as many as fill the device. */
struct kernel_grid correlate_kernels_grid(const struct correlate_kernels *kernels, const struct correlate_args *args,
                                          size_t i, uint32_t n_parts);

/* Queues a launch of 'args'; 'n_parts' as above. */
void correlate_kernels_launch(const struct correlate_kernels *kernels, struct device_stream *stream,
                              const struct correlate_args *args, uint32_t n_parts);

#endif
