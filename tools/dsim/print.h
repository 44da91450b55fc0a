/* print.h - the inverse of dsim/parse.h: expressions as text that yields the same samples, seeds included.
 *
 * Variables are written out at each use, because noise with the same seed is the same noise. */
#ifndef TOOLS_DSIM_PRINT_H
#define TOOLS_DSIM_PRINT_H

#include "tools/dsim/parse.h"

/* Returns text that the caller frees.  Returns NULL without memory, or if the text would be longer than 64 KiB. */
char *dsim_print(const struct dsim_program *program);

#endif
