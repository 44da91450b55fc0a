/* keys.h - the sections of a configuration file that every daemon has and common/daemon uses. */
#ifndef COMMON_DAEMON_KEYS_H
#define COMMON_DAEMON_KEYS_H

#include "common/daemon/state_file.h"
#include "common/device/keys.h"
#include "common/http/keys.h"
#include "common/katcp/keys.h"

/* First member of the struct of a daemon's whole file. */
struct daemon_config {
    struct config_device device;
    struct config_http http;
    struct config_katcp katcp;
    struct config_state state;
};

#endif
