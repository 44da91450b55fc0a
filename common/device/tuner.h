/* tuner.h - finds the fastest shape of a kernel on a device, for the sizes of a configuration.
 *
 * A shape determines how a kernel's work is split among blocks and threads.  Each kernel has a list of candidates
 * (struct tuner_kernel).  The first candidate is the default, which is computed from the sizes and the device's
 * properties.  All candidates give the same result, bit for bit.  Sums of half floats would depend on the shape, so the
 * correlator of half floats has only the default (kernels/correlate/correlate_tuner.h).
 *
 * Flow:    --tune      jobs of the configuration --tuner_run()--> candidates measured and logged, the fastest saved
 *          next start  the same jobs --tuner_load()--> the saved shapes, or else the defaults
 * File:    a text file for each combination of GPU model, kernel and sizes, in the directory of the compiled kernels.
 *          A file is written wholly or not at all.  A file is used only if no other user may write to it.  It must also
 *          equal, byte for byte, the text that this program would write for one of the candidates.  A file may be
 *          removed at any time.
 * Time:    a run is a series of launches that takes at least RUN_NS of wall-clock time.  Shorter runs only warm up the
 *          GPU.  The result is the median of N_RUNS runs (tuner.c).
 * Threads: main, while nothing else runs on the device. */
#ifndef COMMON_DEVICE_TUNER_H
#define COMMON_DEVICE_TUNER_H

#include "common/device/device.h"

#define TUNER_MAX_SHAPES  64
#define TUNER_MAX_NUMBERS 16
#define TUNER_TEXT_BYTES  512 /* size in bytes of the longest text that describes a shape or sizes */

/* The stream and the memory with which a candidate is measured.  The tuner frees the memory. */
struct tuner_bed {
    struct device *device;
    struct device_stream *stream;
    struct tuner_memory {
        void *at;
        size_t bytes;
        bool pinned;
    } memory[8];
    size_t n_memory;
    bool is_short; /* true if an allocation has failed */
};

/* Kinds of memory.  TUNER_BITS: random bits in device memory.  TUNER_FLOATS, TUNER_HALVES: random numbers of either
 * sign, with magnitudes from 1/2 to 1, in device memory.  TUNER_PINNED: zeros in pinned host memory. */
enum tuner_fill { TUNER_BITS, TUNER_FLOATS, TUNER_HALVES, TUNER_PINNED };
/* Allocates and fills memory.  If there is not enough memory, sets bed->is_short and returns NULL. */
void *tuner_alloc(struct tuner_bed *bed, size_t bytes, enum tuner_fill fill);

struct tuner_kernel {
    const char *name;
    /* [n_numbers] names of the members of a shape.  Each member is a uint32_t.  NULL: the kernel does not use this
     * member, so the member is the same in all candidates. */
    const char *const *numbers;
    size_t n_numbers;  /* <= TUNER_MAX_NUMBERS */
    size_t work_bytes; /* size in bytes of the memory 'work' of create() */
    /* Writes all distinct valid shapes to 'shapes', beginning with the default.  Returns the number of shapes, at most
     * TUNER_MAX_SHAPES, or 0 if no shape is valid for these sizes. */
    size_t (*candidates)(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                         void *shapes);
    void (*format_sizes)(const void *sizes, char *text, size_t text_bytes);
    /* Creates the kernels and their arguments for a shape, in the zeroed memory 'work'.  Returns 0 or negative
     * errno. */
    int (*create)(struct tuner_bed *bed, const void *sizes, const void *shape, void *work);
    void (*queue)(void *work, struct device_stream *stream); /* enqueues the launches for one buffer */
    void (*destroy)(void *work);                             /* called also after a failure of create() */
};

struct tuner_job {
    const struct tuner_kernel *kernel;
    const void *sizes;
    const char *output; /* name of the output, for the log */
    char key[64];       /* configuration key that determines the needed memory */
    void *shape;        /* the shape's struct; tuner_load() sets its members */
};

/* Measures the candidates of each job, and saves the fastest candidate.  Measures jobs with the same kernel and sizes
 * only once.  Logs the time of each candidate and the saved shape.  If there is nothing to tune, logs this fact.
 * Returns 0, or negative errno with one sentence in 'why'. */
int tuner_run(struct device *device, const struct tuner_job *jobs, size_t n_jobs, char *why, size_t why_bytes);

/* Sets the members of the job's shape to the saved shape, or else to the default.  If no shape is valid, leaves the
 * members unchanged.  Logs that a saved shape is used, or why a file is ignored.  The log message recommends the
 * command 'program' --tune. */
void tuner_load(struct device *device, const char *program, const struct tuner_job *job);

/* Measures one shape.  Sets '*ns' to the median time of 'queue', or to INFINITY if there is not enough memory.  Stops
 * after two runs if both take longer than 'hopeless_ns'.  Returns 0 or negative errno. */
int tuner_measure(struct device *device, const struct tuner_job *job, const void *shape, double hopeless_ns,
                  double *ns);

/* Writes a shape as text: "front_rows 64, front_columns 16, ...", without members that are 0. */
void tuner_format(const struct tuner_kernel *kernel, const void *shape, char text[TUNER_TEXT_BYTES]);

#endif
