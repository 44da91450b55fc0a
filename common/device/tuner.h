/* tuner.h - finds the fastest of a kernel's candidate shapes on a device, for the sizes of a configuration.
 *
 * A shape says how a kernel's work is split among blocks and threads, and never changes a bit of the result.  Each
 * kernel has a table of candidates (struct tuner_kernel).  The first candidate is the default, which follows from the
 * sizes and the device's properties.
 *
 * Flow:   --tune      jobs of the configuration --tuner_run()--> measured, logged, the fastest kept
 *         next start  the same jobs --tuner_load()--> the kept shapes, else the defaults
 * File:   one text for each model of GPU, kernel and sizes, beside the compiled kernels.  A file is written wholly or
 *         not at all.  A file is used only if no other user may write to it.  It must also be, byte for byte, the text
 *         that this program would write for one of the candidates.  A file can be removed at any time.
 * Time:   wall clock around launches that fill RUN_NS; shorter runs warm up; the median of N_RUNS counts (tuner.c).
 * Threads: main, while nothing else runs on the device. */
#ifndef COMMON_DEVICE_TUNER_H
#define COMMON_DEVICE_TUNER_H

#include "common/device/device.h"

#define TUNER_MAX_SHAPES  64
#define TUNER_MAX_NUMBERS 16
#define TUNER_TEXT_BYTES  512 /* text of a shape or of sizes, for people */

/* Memory of a candidate while it is measured; the tuner frees it. */
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

/* Contents of memory: TUNER_BITS is random bits, TUNER_FLOATS and TUNER_HALVES are random numbers of either sign from
 * 1/2 to 1, all in device memory.  TUNER_PINNED is zeros in pinned host memory. */
enum tuner_fill { TUNER_BITS, TUNER_FLOATS, TUNER_HALVES, TUNER_PINNED };
/* Allocates and fills memory.  Returns NULL if there is not enough memory, which the tuner notices. */
void *tuner_alloc(struct tuner_bed *bed, size_t bytes, enum tuner_fill fill);

struct tuner_kernel {
    const char *name;
    /* [n_numbers] names of a shape's members, which are all uint32_t.  NULL: a member that this kernel does not use;
     * all candidates have the same value there. */
    const char *const *numbers;
    size_t n_numbers;  /* <= TUNER_MAX_NUMBERS */
    size_t work_bytes; /* bytes of 'work' below */
    /* Writes valid shapes without repetition, the default first.  Returns their number, at most TUNER_MAX_SHAPES, or 0
     * if these sizes have no shape. */
    size_t (*candidates)(const struct tuner_kernel *kernel, const void *sizes, const struct device *device,
                         void *shapes);
    void (*format_sizes)(const void *sizes, char *text, size_t text_bytes);
    /* Makes the kernels and their arguments for a shape in 'work', which is zeroed. */
    int (*create)(struct tuner_bed *bed, const void *sizes, const void *shape, void *work);
    void (*queue)(void *work, struct device_stream *stream); /* the launches for one buffer of the data path */
    void (*destroy)(void *work);                             /* also after an error of 'create' */
};

struct tuner_job {
    const struct tuner_kernel *kernel;
    const void *sizes;
    const char *output; /* name, for the log */
    char key[64];       /* the configuration's key that decides the needed memory */
    void *shape;        /* set by tuner_load() */
};

/* Measures the candidates of each job, but equal jobs only once.  Logs the default, the time of each candidate and the
 * saved shape, or that there is nothing to tune.  Returns 0, or negative errno with one sentence in 'why'. */
int tuner_run(struct device *device, const struct tuner_job *jobs, size_t n_jobs, char *why, size_t why_bytes);

/* Sets the kernel's numbers in the job's shape to the saved ones, else to the default's.  Leaves the numbers if there
 * are neither.  Logs that a shape was saved, or why a file is ignored; 'program' --tune makes a new file. */
void tuner_load(struct device *device, const char *program, const struct tuner_job *job);

/* Measures the median time of 'queue' with one shape.  Stops after two runs if both are beyond 'hopeless_ns'.  *ns is
 * INFINITY if there is not enough memory.  Returns 0 or negative errno. */
int tuner_measure(struct device *device, const struct tuner_job *job, const void *shape, double hopeless_ns,
                  double *ns);

/* Writes "front_rows 64, front_columns 16, ...", without numbers that are 0. */
void tuner_format(const struct tuner_kernel *kernel, const void *shape, char text[TUNER_TEXT_BYTES]);

#endif
