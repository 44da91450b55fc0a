/* time_keys.h - the section 'time' of a configuration file, which defines the meaning of timestamps. */
#ifndef COMMON_CONFIG_TIME_KEYS_H
#define COMMON_CONFIG_TIME_KEYS_H

#include "common/config/config.h"
#include "common/time/timebase.h"

enum config_timebase { CONFIG_TIMEBASE_CLOCK, CONFIG_TIMEBASE_PACKETS };

struct config_time {
    struct decimal sync_time_s;
    struct decimal adc_sample_rate_hz;
    int timebase; /* enum config_timebase */
    double clock_tolerance_s;
};

#define CONFIG_N_TIME_KEYS 4

extern const struct config_key config_time_keys[CONFIG_N_TIME_KEYS];

/* The row of the section 'time' in a table of sections.  'type' is the struct of the whole file, whose member 'time'
 * is a struct config_time. */
#define CONFIG_TIME_SECTION(type) CONFIG_SECTION(type, time, config_time_keys, "Time: the meaning of timestamps.")

#endif
