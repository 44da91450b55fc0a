/* tuner.h - which of a kernel's candidate shapes is the fastest on a device, for the sizes of a configuration.
 *
 * A shape says how a kernel's work is split among blocks and threads, and never changes a bit of the result.  Each kernel
 * has a table of candidates (struct tuner_kernel); the default, which follows from the sizes and the device's properties,
 * is the first.
 *
 * Flow:   --tune      jobs of the configuration --tuner_run()--> measured, logged, the fastest kept
 *         next start  the same jobs --tuner_load()--> the kept shapes, else the defaults
 * File:   one text for each model of GPU, kernel and sizes, beside the compiled kernels.  It is written wholly or not at
 *         all.  A file is taken only if no other user may write to it and if it is, byte for byte, what this program would
 *         write for one of the candidates.  It can be removed at any time.
 * Time:   wall clock around launches that fill RUN_NS; shorter runs warm up; the median of N_RUNS (tuner.c).
 * Threads: main, while nothing else runs on the device. */
#ifndef COMMON_DEVICE_TUNER_H
#define COMMON_DEVICE_TUNER_H

#include "common/device/device.h"

#define TUNER_MAX_SHAPES  64
#define TUNER_MAX_NUMBERS 16
#define TUNER_TEXT_BYTES  512 /* of a shape or of sizes, for people */

/* Memory of a candidate that is measured, which the tuner frees. */
struct tuner_bed {
    struct device *device;
    struct device_stream *stream;
    struct tuner_memory {
        void *at;
        size_t bytes;
        bool pinned;
    } memory[8];
    size_t n_memory;
    bool is_short; /* an allocation has failed */
};

/* Device memory of random bits, or of random numbers of either sign from 1/2 to 1; or pinned host memory of zeros. */
enum tuner_fill { TUNER_BITS, TUNER_FLOATS, TUNER_HALVES, TUNER_PINNED };
/* Returns NULL if there is not enough memory, which the tuner notices. */
void *tuner_alloc(struct tuner_bed *bed, size_t bytes, enum tuner_fill fill);

struct tuner_kernel {
    const char *name;
    /* [n_numbers] names of a shape's members, all of which are uint32_t; NULL of one that is not this kernel's, and the same
     * in all candidates */
    const char *const *numbers;
    size_t n_numbers;  /* <= TUNER_MAX_NUMBERS */
    size_t work_bytes; /* of 'work' below */
    /* Valid shapes without repetition, the default first.  Returns how many, at most TUNER_MAX_SHAPES; 0 where these sizes
     * have no shape. */
    size_t (*candidates)(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                         void *shapes);
    void (*format_sizes)(const void *sizes, char *text, size_t text_bytes);
    /* Makes the kernels and their arguments for a shape in 'work', which is zeroed. */
    int (*create)(struct tuner_bed *bed, const void *sizes, const void *shape, void *work);
    void (*queue)(void *work, struct device_stream *stream); /* the launches for one buffer of the data path */
    void (*destroy)(void *work);                             /* also what 'create' has left after an error */
};

struct tuner_job {
    const struct tuner_kernel *kernel;
    const void *sizes;
    const char *output; /* name, for the log */
    char key[64];       /* the configuration's key that decides how much memory is needed */
    void *shape;        /* for tuner_load() */
};

/* Measures the candidates of each job; equal jobs once.  Says in the log what the default is, how long each candidate takes
 * and what is kept; or that there is nothing to tune.  Returns 0, or negative errno with one sentence in 'why'. */
int tuner_run(struct device *device, const struct tuner_job *jobs, size_t n_jobs, char *why, size_t why_bytes);

/* Sets the kernel's numbers of the job's shape to the kept ones, else to the default's; leaves them where there are none.
 * Says in the log if a shape was kept, or why a file is ignored; 'program' --tune makes a new one. */
void tuner_load(struct device *device, const char *program, const struct tuner_job *job);

/* Median time of 'queue' with one shape; or of two runs, if both are beyond 'hopeless_ns'; INFINITY if there is not
 * enough memory.  Returns 0 or negative errno. */
int tuner_measure(struct device *device, const struct tuner_job *job, const void *shape, double hopeless_ns,
                  double *ns);

/* "front_rows 64, front_columns 16, ...", without numbers that are 0. */
void tuner_format(const struct tuner_kernel *kernel, const void *shape, char text[TUNER_TEXT_BYTES]);

#endif
