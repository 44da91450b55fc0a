/* program.h - main() of dsim, fsim, visrec and beamrec.  These tools have a configuration file and a service
 * (common/daemon/service.h), but no device. */
#ifndef TOOLS_SHARED_PROGRAM_H
#define TOOLS_SHARED_PROGRAM_H

#include "common/config/config.h"

struct service;

struct program {
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* Creates the tool's parts from the checked 'values', runs them, and destroys them.  Returns the exit code. */
    int (*run)(const void *values, const struct config *config, struct service *service);
};

/* Sets up signals, log, configuration and service, then calls 'run'.  Shuts down in reverse order.  'values' is the
 * zeroed configuration.  Returns the exit code. */
int program_main(const struct program *program, int argc, char **argv, void *values);

#endif
