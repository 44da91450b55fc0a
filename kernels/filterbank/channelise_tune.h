/* channelise_tune - measures on the device how channelise works fastest for given sizes.
 *
 * The two fused kernels are measured one without the other, as only front_rows is common to them.  For each number of
 * rows the search begins with the shape that the defaults' rules give, and varies one group of numbers after the other,
 * in all combinations that are valid and plausible; it keeps the best, and gives up rows that are far behind.  The
 * default is among what is measured, so what is found is not worse.  The stages are measured, too, with each number
 * of FFTs.  Each candidate is compiled, which takes about half
 * a second; the cache of the device keeps them all.
 *
 * Time:    wall clock around work that is queued for run_ns, the best of n_runs.
 * Threads: the caller's; nothing else may use the device.
 * Errors:  those of the device as usual (device.h). */
#ifndef KERNELS_FILTERBANK_CHANNELISE_TUNE_H
#define KERNELS_FILTERBANK_CHANNELISE_TUNE_H

#include "kernels/filterbank/channelise_choice.h"

struct channelise_tune_config {
    struct channelise_work work;
    int64_t run_ns;      /* of a run, at least */
    unsigned n_runs;     /* of a candidate */
    int64_t limit_ns;    /* no new candidate after so long */
    size_t n_candidates; /* nor after so many; 0: no limit */
};

struct channelise_tuned {
    struct channelise_choice choice;
    double default_ns, best_ns; /* for an output buffer */
    size_t n_candidates;        /* measured */
    bool complete;              /* no limit was met */
};

/* What fgpu --tune does for 'work'. */
struct channelise_tune_config channelise_tune_config(const struct channelise_work *work);

/* Returns 0 or negative errno. */
int channelise_tune(struct device *device, const struct channelise_tune_config *config, struct channelise_tuned *tuned);

/* ---- The parts, for tests ---- */

enum channelise_part { PART_FRONT, PART_BACK, N_PARTS };

/* How long a part takes with this choice: what timing_measure() is (channelise_timing.h), with 'timing' as 'of'. */
typedef int channelise_measure(void *of, const struct channelise_choice *choice, enum channelise_part part,
                               double hopeless_ns, double *ns);

/* The search itself. */
int channelise_search(const struct channelise_tune_config *config, size_t shared_bytes, channelise_measure *measure,
                      void *of, struct channelise_tuned *tuned);

#define CHANNELISE_TUNE_N_GROUPS 9
#define CHANNELISE_TUNE_MOST     64 /* candidates of a group, at most */

/* Valid shapes to begin with, the default first where it is one.  Returns how many, perhaps none. */
#define CHANNELISE_TUNE_STARTS 6
size_t channelise_tune_starts(const struct channelise_config *config, size_t shared_bytes,
                              struct channelise_shape starts[CHANNELISE_TUNE_STARTS]);

/* Valid and plausible shapes that differ from 'base' in the group's numbers only.  Returns how many. */
size_t channelise_tune_candidates(const struct channelise_config *config, size_t shared_bytes, unsigned group,
                                  const struct channelise_shape *base,
                                  struct channelise_shape candidates[CHANNELISE_TUNE_MOST]);

#endif
