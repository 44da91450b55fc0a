/* command_line.h - turns the command line into loaded and checked values, in the same way for all programs. */
#ifndef COMMON_DAEMON_COMMAND_LINE_H
#define COMMON_DAEMON_COMMAND_LINE_H

#include "common/config/config.h"

/* Handles the command line that all programs share: PROGRAM [--check-config|--print-config|--print-schema|
 * --print-example|--version|--help] CONFIG.yaml, and --tune if the table offers it.  Loads the file, runs 'check'
 * (checks across keys, may be NULL), and prints the text that the option asks for.  Returns CONFIG_RUN or CONFIG_TUNE,
 * with 'values' loaded, if the program must continue.  Otherwise returns the exit code (0, or EXIT_CONFIG for a bad
 * file or command line). */
#define CONFIG_RUN  (-1)
#define CONFIG_TUNE (-2)
int command_line_main(const struct config_table *table, int argc, char **argv,
                      void (*check)(void *values, struct config *config), void *values, struct config **config);

#endif
