/* program.h - main() of the tools that have a configuration file and a service, and no device: dsim, fsim,
 * visrec, beamrec. */
#ifndef TOOLS_SHARED_PROGRAM_H
#define TOOLS_SHARED_PROGRAM_H

#include "common/config/config.h"

struct service;

struct program {
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
    /* From the checked values to the end: creates, runs and destroys everything.  Returns the exit code. */
    int (*run)(const void *values, const struct config *config, struct service *service);
};

/* Signals, log, configuration, service, then 'run'; shutdown is the mirror.  'values' is the zeroed configuration.
 * Returns the exit code. */
int program_main(const struct program *program, int argc, char **argv, void *values);

#endif
