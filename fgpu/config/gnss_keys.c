/* gnss_keys.c - the keys of the sections `gnss` and `satellites`. */
#include "fgpu/config/gnss_keys.h"

#include "common/base/units.h"
#include "fgpu/config/config.h"

static const char *const signal_choices[] = {"L1CA", "L5I", "L5Q", "E1B", "E1C", NULL}; /* enum gnss_signal */

#define KEYS_OF struct fgpu_config_gnss
const struct config_key fgpu_gnss_keys[FGPU_GNSS_N_KEYS] = {
    KEY_STRING("name", name, KEY_REQUIRED, 1, 64, "Name of the stream."),
    KEY_ENDPOINTS("destination", destination, KEY_REQUIRED, 1, 1, "Address to which the stream's heaps are sent."),
    FGPU_BAND_ROWS(0),
    KEY_DOUBLE("sky_frequency", sky_hz, KEY_REQUIRED, UNIT_HZ, 1e6, 1e11,
               "Radio frequency that corresponds to centre_frequency in the digitised band."),
    KEY_BOOL("inverted", is_inverted, false,
             "true: the digitised band is inverted, so a rising sky frequency appears as a falling frequency, as in "
             "even Nyquist zones."),
    KEY_STRING("codes", codes, "", 0, 4096,
               "File of Galileo's E1 codes, in the format of the annex of Galileo's ICD; required for E1B and E1C."),
    KEY_INT(
        "acquire_periods", acquire_periods, "1", UNIT_NONE, 1, 20,
        "Number of code periods that a search adds coherently, 1 to 20; numbers above 1 are suitable for L1CA only."),
    KEY_INT("acquire_blocks", acquire_blocks, "10", UNIT_NONE, 1, 1000,
            "Number of coherent sums whose powers a search adds; with 50 sums of 20 periods a search finds signals of "
            "30 dB-Hz."),
    KEY_DOUBLE("max_antenna_delay", max_delay_s, "100e-6", UNIT_S, 0, 400e-6,
               "Largest delay of a satellite's signal between two antennas of this process: cables and geometry. All "
               "antennas share the replicas of a satellite, so the sums are late by this time."),
};
#undef KEYS_OF

#define KEYS_OF struct fgpu_config_satellite
const struct config_key fgpu_satellite_keys[FGPU_SATELLITE_N_KEYS] = {
    KEY_ENUM("signal", signal, KEY_REQUIRED, signal_choices, "Signal that is tracked from these satellites."),
    KEY_INT_LIST("prns", prns, KEY_REQUIRED, UNIT_NONE, 1, 63, "Numbers (PRN) of these satellites."),
    KEY_BOOL("acquire", acquire, true,
             "true: each of these satellites is searched for until it is followed; false: it is followed only after "
             "?gnss-steer."),
    KEY_DOUBLE("doppler", doppler_hz, "0", UNIT_HZ, -50000, 50000, "Middle of the Doppler range of the search."),
    KEY_DOUBLE("doppler_range", doppler_range_hz, "10000", UNIT_HZ, 10, 50000,
               "Half width of the Doppler range of the search."),
};
#undef KEYS_OF

const char fgpu_gnss_example[] = "  - name: gnss-l1\n"
                                 "    destination: 239.10.2.0:7148\n"
                                 "    centre_frequency: 719420000\n"
                                 "    decimation: 32\n"
                                 "    pass_bandwidth: 20000000\n"
                                 "    sky_frequency: 1575420000\n";
const char fgpu_satellite_example[] = "  - signal: L1CA\n"
                                      "    prns: [5, 7, 13, 15, 21, 30]\n";
