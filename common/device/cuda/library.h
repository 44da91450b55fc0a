/* library.h - libraries of the CUDA toolkit that are loaded only when they are needed. */
#ifndef COMMON_DEVICE_CUDA_LIBRARY_H
#define COMMON_DEVICE_CUDA_LIBRARY_H

#include <stddef.h>

/* A function to find, and the pointer to store it in. */
struct library_symbol {
    const char *name;
    void *function;
};

/* Loads the first of 'names' that there is, where the dynamic linker looks or else in the toolkit that was built with,
 * and finds 'symbols'; both lists end with NULL.  'path' (may be NULL) gets the file's name.  It stays loaded.
 * Returns 0, or -ENODEV with a sentence in 'why'. */
int library_open(const char *const *names, const struct library_symbol *symbols, const char **path, char *why,
                 size_t why_bytes);

#endif
