/* emulator_example - a kernel that sums rows by several methods.  In each method the threads of a block work
 * together.  Only check_emulator uses the kernel.
 *   in:  uint32 [block][n].
 *   out: uint64 [block][EXAMPLE_N_SUMS]: the sum of the block's row, computed by each method.
 *
 * Constants: MISTAKE, a value of enum emulator_mistake, and THREADS, the number of threads of a block.  'args' reaches
 * the .cu file in the same way as the arguments of the product's kernels. */
#ifndef TESTS_FAKES_EMULATOR_EMULATOR_EXAMPLE_H
#define TESTS_FAKES_EMULATOR_EMULATOR_EXAMPLE_H

#include "common/device/device.h"

/* methods: a tree in shared memory, shuffles, an atomic addition, ballots, and barriers in shared memory */
#define EXAMPLE_N_SUMS 5

enum emulator_mistake {
    MISTAKE_NONE,
    MISTAKE_NO_BARRIER,
    MISTAKE_WARP_AHEAD, /* a warp synchronises only its own lanes, then reads data of another warp */
    MISTAKE_SHARED_OVERRUN,
    MISTAKE_SHARED_UNWRITTEN, /* not reported by the emulator, but the result is NaN, because the emulator fills the
                               * memory with NaN */
    MISTAKE_MISALIGNED,
    MISTAKE_INDEX,
    MISTAKE_EARLY_EXIT,
    MISTAKE_LONE_LANE,
    MISTAKE_BARRIER_UNMADE,
    MISTAKE_BARRIER_TOO_FEW, /* fewer threads arrive than the number for which the barrier was initialised */
    MISTAKE_BARRIER_AHEAD,   /* a thread waits for the phase after the current phase of a barrier */
    MISTAKE_BARRIER_BEHIND,  /* a thread waits for a phase older than the last completed phase */
    MISTAKE_GLOBAL_OVERRUN,  /* detected only if the program was built with the address sanitizer */
};

struct emulator_example_args {
    const uint32_t *in;
    uint64_t *out;
    uint32_t n;
};

#endif
