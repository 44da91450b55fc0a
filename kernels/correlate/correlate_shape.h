/* correlate_shape - tile sizes of the CUDA variants of correlate, for array sizes, formats and GPUs.
 *
 * A warp has a tile of sums in registers.  The rows of a tile are row_eights * 8 antennas.  The columns of a tile are
 * column_eights * 8 antennas.  Rows and columns have both polarisations.  In correlate.cu rows are the second antennas
 * of baselines and columns the first antennas.  In correlate_wgmma.cu and correlate_whole.cu rows are the first
 * antennas.  Only tiles that reach below the diagonal exist.  All tiles of a block use the same copies of voltages in
 * shared memory.  The tiles of a block have one of two arrangements:
 *
 *   runs    (n_runs > 0)    a strip is a row of tiles.  The tiles of the triangle are numbered strip by strip, and are
 *                           divided into n_runs runs of equal length.  A block computes one run, and reads all antennas
 *                           up to the run's last row.  One run is the whole triangle.  Runs suit arrays whose tiles fit
 *                           into few blocks.
 *   squares (n_runs == 0)   a block has block_rows x block_columns tiles.  Only blocks that reach below the diagonal
 *                           exist.  In blocks on the diagonal some warps are idle.
 *
 * In both arrangements 'time_warps' sets of warps may compute the same tiles and process alternate spectra.  Such sets
 * suit small arrays, which are limited by memory. */
#ifndef KERNELS_CORRELATE_CORRELATE_SHAPE_H
#define KERNELS_CORRELATE_CORRELATE_SHAPE_H

#include "kernels/correlate/correlate.h"

struct correlate_shape {
    uint32_t row_eights, column_eights; /* size of a warp's tile, in units of 8 antennas */
    uint32_t n_runs;
    uint32_t block_rows, block_columns; /* for squares: numbers of rows and of columns of tiles in a block */
    uint32_t time_warps;
    uint32_t steps; /* steps between two barriers; a step is 64 bytes of each antenna */
    /* number of slices in shared memory, each of 'steps' steps; all slices but one are being loaded */
    uint32_t stages;
    uint32_t resident;    /* number of blocks that a multiprocessor runs at a time */
    uint32_t atomic_adds; /* 1: blocks add with atomic operations, even if no other block adds to the same sums */
    uint32_t wgmma;       /* 1: uses the kernels for compute capability 9.0: correlate_whole.cu, and with more than 80
                           * antennas also correlate_wgmma.cu; all fields above are ignored */
};

/* Blocks, threads and shared memory of the mma.sync kernel for the sizes in 'args': n_ants, n_chan, n_spectra and
 * format.  correlate_plan() is a pure function. */
struct correlate_plan {
    uint32_t n_blocks;   /* blocks of a channel */
    uint32_t tile_warps; /* maximum number of warps of a block */
    uint32_t n_slots;    /* maximum number of antennas in shared memory */
    uint32_t threads;
    uint32_t shared_bytes;
    double computed; /* fraction of the computed products that the sums use: 0 to 1 */
};
struct correlate_plan correlate_plan(const struct correlate_args *args, const struct correlate_shape *shape);

/* Returns true if the kernels can be compiled and launched with this shape and 'shared_bytes' of shared memory for a
 * block. */
bool correlate_shape_valid(const struct correlate_args *args, const struct correlate_shape *shape, size_t shared_bytes);

/* Returns the default shape of correlate.cu, without wgmma. */
struct correlate_shape correlate_default_shape(const struct correlate_args *args, size_t shared_bytes);

/* Lists valid shapes of correlate.cu that are worth measuring.  The default shape comes first.  Returns the number of
 * shapes, at most 'max'.  No listed shape has wgmma.  The tuner adds correlate_device_shape().  bench_xbgpu.c and
 * compile_kernels.c add the shape with wgmma. */
size_t correlate_candidates(const struct correlate_args *args, size_t shared_bytes, size_t max,
                            struct correlate_shape *shapes);

/* Writes the shape as readable text: "tiles 4 x 2, squares of 2 x 4, ...". */
void correlate_shape_format(const struct correlate_shape *shape, char *text, size_t text_bytes);

/* Returns the best shape on 'device': wgmma for 17 antennas and more if the GPU has wgmma, otherwise the default shape.
 * Returns a zeroed shape if the device does not run CUDA variants. */
struct correlate_shape correlate_device_shape(const struct correlate_args *args, const struct device *device);

/* The kernels of a shape for one set of sizes.  Each kernel computes some of the baselines. */
#define CORRELATE_MAX_KERNELS 2
struct correlate_kernels {
    struct correlate_shape shape;
    uint32_t n_multiprocessors; /* number of multiprocessors of the device */
    bool compiled;              /* false: the C version */
    size_t n;
    struct device_kernel *kernels[CORRELATE_MAX_KERNELS];
};

/* Creates the kernels for the sizes in 'args' and the shape.  On a device that does not run CUDA variants, creates the
 * plain C version, and ignores the shape.  Returns 0, or negative errno with nothing to destroy. */
int correlate_kernels_create(struct device *device, const struct correlate_args *args,
                             const struct correlate_shape *shape, struct correlate_kernels *made);
/* Destroys the kernels.  Accepts a structure that is all zeros. */
void correlate_kernels_destroy(struct correlate_kernels *kernels);

/* Returns the grid of the i-th compiled kernel for a launch of 'args'.  'n_parts' is the number of parts into which the
 * launch is split over time.  With wgmma 'n_parts' is the number of blocks that share the work, at most one on each
 * multiprocessor.  With n_parts = 0, the function chooses a number that fills the device. */
struct kernel_grid correlate_kernels_grid(const struct correlate_kernels *kernels, const struct correlate_args *args,
                                          size_t i, uint32_t n_parts);

/* Queues a launch of 'args'.  'n_parts' is as in correlate_kernels_grid(). */
void correlate_kernels_launch(const struct correlate_kernels *kernels, struct device_stream *stream,
                              const struct correlate_args *args, uint32_t n_parts);

#endif
