/* emulator_example - sums of rows, by methods that need the threads of a block together.  Only check_emulator uses it.
 *   in   uint32 [block][n]
 *   out  uint64 [block][EXAMPLE_N_SUMS]   every one is the sum of the block's row
 *
 * Constants: MISTAKE, one of the enum, and THREADS, the number of threads of a block.  'args' reaches the .cu file as
 * the arguments of product kernels do. */
#ifndef TESTS_FAKES_EMULATOR_EMULATOR_EXAMPLE_H
#define TESTS_FAKES_EMULATOR_EMULATOR_EXAMPLE_H

#include "common/device/device.h"

#define EXAMPLE_N_SUMS 5 /* tree in shared memory, shuffles, atomic, ballots, barriers in shared memory */

enum emulator_mistake {
    MISTAKE_NONE,
    MISTAKE_NO_BARRIER,
    MISTAKE_WARP_AHEAD, /* a warp waits for itself alone, and reads what another one writes */
    MISTAKE_SHARED_OVERRUN,
    MISTAKE_SHARED_UNWRITTEN, /* not caught by itself: it makes NaN */
    MISTAKE_MISALIGNED,
    MISTAKE_INDEX,
    MISTAKE_EARLY_EXIT,
    MISTAKE_LONE_LANE,
    MISTAKE_BARRIER_UNMADE,
    MISTAKE_BARRIER_TOO_FEW, /* arrive, fewer than it was made for */
    MISTAKE_BARRIER_AHEAD,   /* a wait for the opening behind the next */
    MISTAKE_BARRIER_BEHIND,  /* for one before the last */
    MISTAKE_GLOBAL_OVERRUN,  /* caught where the program has the address sanitizer */
};

struct emulator_example_args {
    const uint32_t *in;
    uint64_t *out;
    uint32_t n;
};

#endif
