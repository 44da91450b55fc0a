/* gather - pieces of one place in device memory, such as the payloads of packets where a network card put them, to their
 * places in another.
 *   pieces   struct gather_piece [n_pieces]  in device or pinned memory, and so are the bytes of the pieces; no two
 *                                            pieces have a byte of 'to' in common
 *
 * Requires: nothing of alignment.   Exactness: exact.
 * Bound by: memory, 2 B per byte, of pieces of a KiB or more that begin alike modulo 16 there and here; those that
 *           begin alike modulo 8 or 4 take as many more loads. */
#ifndef KERNELS_UTIL_GATHER_H
#define KERNELS_UTIL_GATHER_H

#include "common/device/device.h"

struct gather_piece {
    uint64_t from, to; /* addresses; of uint8 [n_bytes] */
    uint64_t n_bytes;
};

struct gather_args {
    const struct gather_piece *pieces; /* [n_pieces] */
    uint64_t n_pieces;
};

extern const struct kernel gather_kernel;

/* Constants that the CUDA variant is compiled with, and the grid of a launch of at least one piece. */
#define GATHER_N_CONSTANTS 1
void gather_constants(struct kernel_constant *constants);
struct kernel_grid gather_grid(const struct gather_args *args);

#endif
