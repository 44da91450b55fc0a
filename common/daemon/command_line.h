/* command_line.h - handles the command line, and loads and checks the configuration, in the same way for all
 * programs. */
#ifndef COMMON_DAEMON_COMMAND_LINE_H
#define COMMON_DAEMON_COMMAND_LINE_H

#include "common/config/config.h"

/* Handles the command line that all programs share: PROGRAM [--check-config|--print-config|--print-schema|
 * --print-example|--version|--help] CONFIG.yaml, and --tune if the table offers it.  Loads the file into 'values',
 * runs 'check' (checks that compare several keys; may be NULL), and prints the text that an option requests.  Returns
 * CONFIG_RUN or CONFIG_TUNE if the program must continue.  Otherwise returns the exit code: 0, EXIT_CONFIG for a wrong
 * file or command line, or 1 if the file could not be read or checked for another reason, such as a lack of memory. */
#define CONFIG_RUN  (-1)
#define CONFIG_TUNE (-2)
int command_line_main(const struct config_table *table, int argc, char **argv,
                      void (*check)(void *values, struct config *config), void *values, struct config **config);

#endif
