/* time_keys.c - the keys of the section 'time'. */
#include "common/config/time_keys.h"

static const char *const timebase_choices[] = {"clock", "packets", NULL};

#define KEYS_OF struct config_time
const struct config_key config_time_keys[] = {
    KEY_DECIMAL("sync_time", sync_time_s, KEY_REQUIRED, UNIT_S, 0, 4e9,
                "UNIX time of ADC sample 0, at which the digitisers were synchronised.", .example = "1700000000"),
    KEY_DECIMAL("adc_sample_rate", adc_sample_rate_hz, KEY_REQUIRED, UNIT_HZ, 1, 1e11,
                "Samples per second of each digitiser.", .example = "1712000000"),
    KEY_ENUM(
        "timebase", timebase, "clock", timebase_choices,
        "Extension of the first 48-bit timestamp to 64 bits. clock: the host's clock gives the high bits. packets: the "
        "high bits are 0 (for recordings)."),
    KEY_DOUBLE(
        "clock_tolerance", clock_tolerance_s, "10", UNIT_S, 0, 1e6,
        "Largest permitted difference between the host's clock and the data's time after a jump of the timestamps. A "
        "jump to a larger difference is refused while the Linux kernel reports that the clock is synchronised. Only "
        "with timebase: clock. 0: no limit. visrec permits two integration times more."),
};
#undef KEYS_OF
