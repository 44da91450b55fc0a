/* nvrtc.h - compiles kernels with NVRTC, NVIDIA's run-time compiler.
 *
 * A kernel's text can include "kernels/X.h" and all other embedded files of kernels/ (texts.h).  In these texts
 * "common/device/device.h" stands for a few lines that declare the fixed-width integers and 'struct kernel'.  So a
 * kernel's header is the same for CUDA and C.  No file is read from the disk.  Options: C++17, every function is
 * compiled for the device, CUDA's default FMA contraction, no fast-math.  Line numbers are included for profilers and
 * compute-sanitizer, and do not change the code. */
#ifndef COMMON_DEVICE_CUDA_NVRTC_H
#define COMMON_DEVICE_CUDA_NVRTC_H

#include "common/device/device.h"

/* Loads NVRTC if it is not loaded yet.  Call before the functions below, except nvrtc_choose_target(), which loads
 * NVRTC itself.  Returns 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_load(char *why, size_t why_bytes);

/* Writes a text that identifies the build of NVRTC: "13.0, 109338064 bytes". */
void nvrtc_identity(char *text, size_t text_bytes);

/* The target of the compiler: machine code, or PTX that the driver compiles. */
struct nvrtc_target {
    char option[32]; /* --gpu-architecture=... */
    bool ptx;        /* true: PTX with a final zero byte, because the compiler is older than the GPU */
};

/* Chooses the target for a GPU of this compute capability.  Returns 0, or -ENODEV with one sentence in 'why'. */
int nvrtc_choose_target(int major, int minor, struct nvrtc_target *target, char *why, size_t why_bytes);

/* Compiles nvrtc_text_of(kernel) with a -D option for each constant.  On success, stores the compiled code in '*code'
 * and returns 0.  The caller must free() the code.  On failure, logs the compiler's messages and returns negative
 * errno. */
int nvrtc_compile(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                  const struct nvrtc_target *target, void **code, size_t *bytes);

/* Compiles in the same way as nvrtc_compile(), and returns the same results.  Sets '*report' to the assembler's text
 * about registers, memory and spills, which the caller must free(). */
int nvrtc_report(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                 const struct nvrtc_target *target, char **report);

/* Compiler options that all kernels have in common; part of the cache's keys. */
extern const char *const nvrtc_options[];
extern const size_t n_nvrtc_options;
/* Returns kernel->cuda_text, or else the embedded file <name>.cu.  Returns NULL if neither exists. */
const char *nvrtc_text_of(const struct kernel *kernel);

#endif
