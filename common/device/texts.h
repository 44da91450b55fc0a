/* texts.h - the files of kernels/ that are embedded in this program by the Makefile. */
#ifndef COMMON_DEVICE_TEXTS_H
#define COMMON_DEVICE_TEXTS_H

#include <stddef.h>

struct kernel_text {
    const char *name; /* path in the source tree, "kernels/filterbank/pfb_fir.cu" */
    const char *text;
};

extern const struct kernel_text kernel_texts[];
extern const size_t n_kernel_texts;

#endif
