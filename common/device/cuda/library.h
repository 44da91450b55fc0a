/* library.h - loads libraries of the CUDA toolkit when they are needed. */
#ifndef COMMON_DEVICE_CUDA_LIBRARY_H
#define COMMON_DEVICE_CUDA_LIBRARY_H

#include <stddef.h>

/* A function to find, and the address of the pointer to set. */
struct library_symbol {
    const char *name;
    void *function;
};

/* Loads the first library of 'names' that exists, and finds its functions 'symbols'.  Both lists end with NULL.
 * Searches the directories of the dynamic linker, then the CUDA toolkit of this build.  Sets '*path' to the file's
 * name, unless 'path' is NULL.  The library stays loaded.  Returns 0, or -ENODEV with a sentence in 'why'. */
int library_open(const char *const *names, const struct library_symbol *symbols, const char **path, char *why,
                 size_t why_bytes);

#endif
