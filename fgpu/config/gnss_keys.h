/* gnss_keys.h - the sections `gnss` and `satellites` of fgpu's YAML. */
#ifndef FGPU_CONFIG_GNSS_KEYS_H
#define FGPU_CONFIG_GNSS_KEYS_H

#include "common/config/config.h"

#define FGPU_GNSS_N_KEYS      13
#define FGPU_SATELLITE_N_KEYS 5
extern const struct config_key fgpu_gnss_keys[FGPU_GNSS_N_KEYS], fgpu_satellite_keys[FGPU_SATELLITE_N_KEYS];
extern const char fgpu_gnss_example[], fgpu_satellite_example[];

#endif
