/* gather - copies pieces of device memory, for example the payloads of packets from a NIC's ring, to other places.
 *   pieces   struct gather_piece [n_pieces]  the array and all bytes are in device or pinned memory; destinations do
 *                                            not overlap
 *
 * Requires: no alignment.   Exactness: exact.
 * Bound by: memory, 2 B per byte, for pieces of a KiB or more whose addresses 'from' and 'to' are equal modulo 16.  If
 *           the addresses are equal only modulo 8 or 4, pieces need two or four times as many loads. */
#ifndef KERNELS_UTIL_GATHER_H
#define KERNELS_UTIL_GATHER_H

#include "common/device/device.h"

struct gather_piece {
    uint64_t from, to; /* addresses of uint8 [n_bytes] */
    uint64_t n_bytes;
};

struct gather_args {
    const struct gather_piece *pieces; /* [n_pieces] */
    uint64_t n_pieces;
};

extern const struct kernel gather_kernel;

/* gather_constants() writes the constants of the CUDA variant.  gather_grid() returns the grid of a launch of at least
 * one piece. */
#define GATHER_N_CONSTANTS 1
void gather_constants(struct kernel_constant *constants);
struct kernel_grid gather_grid(const struct gather_args *args);

#endif
