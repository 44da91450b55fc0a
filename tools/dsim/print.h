/* print.h - the inverse of dsim/parse.h: writes expressions as text.  If this text is parsed, the signals have the
 * same samples.  The text includes all seeds.
 *
 * Each use of a variable is replaced by its expression, because noise with the same seed is the same noise. */
#ifndef TOOLS_DSIM_PRINT_H
#define TOOLS_DSIM_PRINT_H

#include "tools/dsim/parse.h"

/* Returns the text, which the caller frees.  Returns NULL if memory runs out, or if the text would be longer than 64
 * KiB. */
char *dsim_print(const struct dsim_program *program);

#endif
