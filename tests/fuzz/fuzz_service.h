/* fuzz_service.h - a service for the targets that need one. */
#ifndef TESTS_FUZZ_FUZZ_SERVICE_H
#define TESTS_FUZZ_FUZZ_SERVICE_H

#include "common/daemon/service.h"

#include <assert.h>
#include <signal.h>

/* Opens a service, then gives the signals back to the fuzzer, which writes the failing input when it gets one. */
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
