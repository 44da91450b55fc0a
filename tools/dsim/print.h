/* print.h - the way back of dsim/parse.h: expressions as text that gives the same samples, seeds included.
 *
 * Variables are written out where they are used: noise of the same seed is the same noise. */
#ifndef TOOLS_DSIM_PRINT_H
#define TOOLS_DSIM_PRINT_H

#include "tools/dsim/parse.h"

/* Returns text that the caller frees; where that would be longer than 64 KiB, or without memory, NULL. */
char *dsim_print(const struct dsim_program *program);

#endif
