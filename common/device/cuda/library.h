/* library.h - libraries of the CUDA toolkit that are loaded only when they are needed. */
#ifndef COMMON_DEVICE_CUDA_LIBRARY_H
#define COMMON_DEVICE_CUDA_LIBRARY_H

#include <stddef.h>

/* A function to find, and the pointer to store it in. */
struct library_symbol {
    const char *name;
    void *function;
};

/* Loads the first library of 'names' that is found, and finds 'symbols' in it; both lists end with NULL.  Searches the
 * places of the dynamic linker, then the toolkit of this build.  'path' (may be NULL) gets the file's name.  The
 * library stays loaded.  Returns 0, or -ENODEV with a sentence in 'why'. */
int library_open(const char *const *names, const struct library_symbol *symbols, const char **path, char *why,
                 size_t why_bytes);

#endif
