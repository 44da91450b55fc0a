/* nvrtc.h - NVIDIA's run-time compiler: texts of kernels to code for a GPU.
 *
 * A text can include "kernels/X.h" and all other embedded files of kernels/ (texts.h).  There "common/device/device.h" is
 * a few lines with the fixed-width integers and 'struct kernel', so that one header serves both variants of a kernel.
 * Nothing comes from the disk.  Options: C++17, every function for the device, FMA contraction as CUDA has it by
 * default, no fast-math; line numbers, for profilers and compute-sanitizer, which change no code. */
#ifndef COMMON_DEVICE_CUDA_NVRTC_H
#define COMMON_DEVICE_CUDA_NVRTC_H

#include "common/device/device.h"

/* Loads it if it is not yet; what is below needs it, but for nvrtc_choose_target(), which does that.  Returns 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_load(char *why, size_t why_bytes);

/* Writes a text that differs between builds of NVRTC: "13.0, 109338064 bytes". */
void nvrtc_identity(char *text, size_t text_bytes);

/* Code, or what the driver makes code of. */
struct nvrtc_target {
    char option[32]; /* --gpu-architecture=... */
    bool ptx;        /* the compiler is older than the GPU: no code, but PTX with a final zero */
};

/* For a GPU of this compute capability.  Returns 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_choose_target(int major, int minor, struct nvrtc_target *target, char *why, size_t why_bytes);

/* Compiles nvrtc_text_of(kernel) with -D options of the constants.  Returns 0 with memory to free(), or negative errno
 * after the compiler's own words in the log. */
int nvrtc_compile(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                  const struct nvrtc_target *target, void **code, size_t *bytes);

/* Compiles like nvrtc_compile(), for what the assembler says of registers, memory and spills: a text to free().  Returns
 * the same. */
int nvrtc_report(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                 const struct nvrtc_target *target, char **report);

/* The options that do not depend on the kernel; for keys of the cache. */
extern const char *const nvrtc_options[];
extern const size_t n_nvrtc_options;
/* The kernel's own text, or kernels/<name>.cu as embedded; NULL: there is none. */
const char *nvrtc_text_of(const struct kernel *kernel);

#endif
