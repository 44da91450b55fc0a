/* time_keys.c - the keys of the section time. */
#include "common/config/time_keys.h"

static const char *const timebase_choices[] = {"clock", "packets", NULL};

#define AT(member) offsetof(struct config_time, member)
const struct config_key config_time_keys[] = {
    {"sync_time", CFG_DECIMAL, UNIT_S, 0, 4e9, NULL, false, AT(sync_time_s), NULL,
     "UNIX time of ADC sample 0, as the digitisers were synchronised.", .example = "1700000000"},
    {"adc_sample_rate", CFG_DECIMAL, UNIT_HZ, 1, 1e11, NULL, false, AT(adc_sample_rate_hz), NULL,
     "Samples per second of each digitiser.", .example = "1712000000"},
    {"timebase", CFG_ENUM, UNIT_NONE, 0, 0, "clock", false, AT(timebase), timebase_choices,
     "How the first 48-bit timestamp is placed: by the host's clock, or as it is (recordings)."},
    {"clock_tolerance", CFG_DOUBLE, UNIT_S, 0, 1e6, "10", false, AT(clock_tolerance_s), NULL,
     "With timebase clock: timestamps do not jump further from the host's clock than this while the kernel calls the "
     "clock synchronised; 0: as far as they like. visrec adds two dumps."},
};
#undef AT
