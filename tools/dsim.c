/* dsim.c - main of the digitiser simulator: configuration, signals, then one thread that sends until it is stopped. */
#include "common/config.h"
#include "common/http.h"
#include "common/log.h"
#include "common/service.h"
#include "tools/dsim_config.h"
#include "tools/dsim_send.h"
#include "tools/dsim_signal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Errors at the start that no restart cures end with EXIT_CONFIG. */
static int report(int err, const char *why)
{
    log_error("%s.", why);
    return err == -EIO ? EXIT_FAILURE : EXIT_CONFIG;
}
