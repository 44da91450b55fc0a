/* keys.h - the sections of a configuration file that common/daemon uses.  Both daemons have these sections. */
#ifndef COMMON_DAEMON_KEYS_H
#define COMMON_DAEMON_KEYS_H

#include "common/daemon/state_file.h"
#include "common/device/keys.h"
#include "common/http/keys.h"
#include "common/katcp/keys.h"

/* Values of the keys in these sections.  The struct of each daemon's whole file begins with this struct. */
struct daemon_config {
    struct config_device device;
    struct config_http http;
    struct config_katcp katcp;
    struct config_state state;
};

#endif
