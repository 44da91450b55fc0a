/* program.h - main() of the tools with a configuration file and a service, but without a device: dsim, fsim, visrec,
 * beamrec. */
#ifndef TOOLS_SHARED_PROGRAM_H
#define TOOLS_SHARED_PROGRAM_H

#include "common/config/config.h"

struct service;

struct program {
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* Creates, runs and destroys everything, from the checked values to the end.  Returns the exit code. */
    int (*run)(const void *values, const struct config *config, struct service *service);
};

/* Sets up signals, log, configuration and service, then calls 'run'.  Shuts down in reverse order.  'values' is the
 * zeroed configuration.  Returns the exit code. */
int program_main(const struct program *program, int argc, char **argv, void *values);

#endif
