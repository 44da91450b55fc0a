/* fuzz_service.h - a service (common/daemon/service.h) for the fuzz targets that need one. */
#ifndef TESTS_FUZZ_FUZZ_SERVICE_H
#define TESTS_FUZZ_FUZZ_SERVICE_H

#include "common/daemon/service.h"

#include <assert.h>
#include <signal.h>

/* Opens a service, then restores the fuzzer's signal handlers.  The fuzzer writes the failing input to a file when a
 * signal arrives. */
static inline struct service *fuzz_open_service(void)
{
    static const int signals[] = {SIGABRT, SIGTERM, SIGINT};
    struct sigaction before[3];
    struct service *service;

    for (int i = 0; i < 3; i++)
        sigaction(signals[i], NULL, &before[i]);
    int err = service_open(&service);
    assert(!err);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &before[i], NULL);
    return service;
}

#endif
