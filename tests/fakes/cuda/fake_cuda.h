/* fake_cuda.h - the cuda device without a GPU: common/device/cuda/ linked with a CUDA runtime that does everything on
 * the CPU.  Like the real cuda device, this device is a plugin.
 *
 * The fake tests the host's side: the choice of a GPU, messages, memory, callbacks and failures.  Under the thread
 * sanitizer the fake also tests the order of operations.  A stream is a stream of the cpu device.  A kernel is its C
 * version, or the CUDA variant on the emulator (device_emulated.h).  FFTs are the FFTs of the cpu device.
 *
 * $CBF_FAKE_CUDA is a list "name=number,...":
 *   gpus, major, memory_mib, driver:  number of GPUs, compute capability, memory in MiB, and driver version (0: no
 *                 driver).  The defaults are 1, 9, 1024 and the version of the runtime.
 *   compiler=0:   the compilation of every kernel fails.
 *   emulate=1:    kernels are their CUDA variants.
 *   idle=1:       kernels compute nothing; a launch takes 20 to 83 us, depending on the kernel's constants.
 *   register=0:   memory of the program cannot be registered.
 *   import=CODE, map=CODE:  memory of another library cannot be imported, or cannot be mapped.
 *   dmabuf=CODE:  memory cannot be shared with network cards; < 0: the driver does not know this attribute.
 *   has_dmabuf=0: the device says beforehand that memory cannot be shared.
 *   flushes=0:    writes by network cards cannot be flushed.
 *   ordering=0, flush=CODE: writes by network cards must be flushed; the flush fails.
 *   init=CODE:    cudaInitDevice() returns the error CODE.
 *   refuse=N:     only the Nth operation (copy, fill, launch, callback) is refused, when it is enqueued.
 *   die=N:        the GPU fails at the Nth operation: later operations and callbacks do not run, and every later call
 *                 returns the failure.
 *   hang=N:       the GPU never ends the Nth operation.
 *   flip=N:       a bit flips in every Nth copy from the device's memory to the host's. */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

#include "common/device/device.h"

#include <cuda_runtime_api.h>

/* If $CBF_FAKE_CUDA has a number for 'name', returns the number.  Otherwise returns 'otherwise'. */
long fake_setting(const char *name, long otherwise);

/* A kernel that computes nothing (idle=1).  Each launch takes 'ns' nanoseconds. */
struct fake_idle_kernel {
    struct device_kernel base;
    int64_t ns;
};

/* The cpu device or emulated device on which everything runs. */
struct device *fake_cuda_device(void);

/* Counts an operation of a stream.  Returns the code that the enqueuing call must return. */
cudaError_t fake_cuda_operation(struct device_stream *stream);

/* Kinds of memory.  The file $CBF_FAKE_CUDA_COUNTS has a 64-bit integer for each kind, in this order.  The integer is
 * the number of bytes that are allocated at present. */
enum fake_memory { FAKE_DEVICE, FAKE_PINNED, FAKE_N_MEMORIES };

void fake_taken(enum fake_memory kind, const void *memory, size_t bytes);
void fake_given_back(enum fake_memory kind, const void *memory);
/* Returns true if 'memory' lies in allocated memory of this kind. */
bool fake_has(enum fake_memory kind, const void *memory);

#endif
