/* command_line.h - from the command line to loaded and checked values, the same for all programs. */
#ifndef COMMON_DAEMON_COMMAND_LINE_H
#define COMMON_DAEMON_COMMAND_LINE_H

#include "common/config/config.h"

/* The command line that all programs share: PROGRAM [--check-config|--print-config|--print-schema|--print-example|
 * --version|--help] CONFIG.yaml, and --tune where the table offers it.  Loads and runs 'check' (cross-key checks, may be
 * NULL), prints what was asked for.  Returns CONFIG_RUN or CONFIG_TUNE to go on with 'values' loaded, else the exit code
 * (0, EXIT_CONFIG for a bad file or command line). */
#define CONFIG_RUN  (-1)
#define CONFIG_TUNE (-2)
int command_line_main(const struct config_table *table, int argc, char **argv,
                      void (*check)(void *values, struct config *config), void *values, struct config **config);

#endif
