/* nvrtc.h - NVIDIA's run-time compiler: makes code for a GPU from texts of kernels.
 *
 * A text can include "kernels/X.h" and all other embedded files of kernels/ (texts.h).  For these texts
 * "common/device/device.h" is a few lines with the fixed-width integers and 'struct kernel', so that one header serves
 * both variants of a kernel.  No file is read from the disk.  Options: C++17, every function for the device, CUDA's
 * default FMA contraction, no fast-math.  Line numbers are for profilers and compute-sanitizer, and change no code. */
#ifndef COMMON_DEVICE_CUDA_NVRTC_H
#define COMMON_DEVICE_CUDA_NVRTC_H

#include "common/device/device.h"

/* Loads NVRTC if it is not loaded.  The functions below need NVRTC; nvrtc_choose_target() loads it by itself.  Returns
 * 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_load(char *why, size_t why_bytes);

/* Writes a text that differs between builds of NVRTC: "13.0, 109338064 bytes". */
void nvrtc_identity(char *text, size_t text_bytes);

/* The compiler's result: code, or PTX from which the driver makes code. */
struct nvrtc_target {
    char option[32]; /* --gpu-architecture=... */
    bool ptx;        /* true: PTX with a final zero, because the compiler is older than the GPU */
};

/* Chooses the target for a GPU of this compute capability.  Returns 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_choose_target(int major, int minor, struct nvrtc_target *target, char *why, size_t why_bytes);

/* Compiles nvrtc_text_of(kernel) with -D options of the constants.  Returns 0 with memory to free(), or negative errno
 * after the compiler's messages in the log. */
int nvrtc_compile(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                  const struct nvrtc_target *target, void **code, size_t *bytes);

/* Compiles like nvrtc_compile().  'report' gets the assembler's text about registers, memory and spills, to free().
 * Returns the same as nvrtc_compile(). */
int nvrtc_report(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                 const struct nvrtc_target *target, char **report);

/* Options that do not depend on the kernel, for keys of the cache. */
extern const char *const nvrtc_options[];
extern const size_t n_nvrtc_options;
/* Returns the kernel's own text, or else the embedded file <name>.cu, or else NULL. */
const char *nvrtc_text_of(const struct kernel *kernel);

#endif
